"""Metropolis-Hastings over a likelihood written in JAX, its accept decisions raced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import ArrayLike

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace.mcmc.doors.jax._races import (
    ACCEPTED,
    LOST,
    UNKNOWN,
    LogPrior,
    Race,
    RaceInfo,
    Rows,
    Terms,
    call,
    info_of,
    key_words,
)
from fastrace.mcmc.kernels._metropolis import FOLLOWING, PROPOSALS, checked_proposal, coefficients
from fastrace.mcmc.kernels._rows import NEAR, cholesky_of
from fastrace.mcmc.models._modes import find_mode, normal_density
from fastrace.mcmc.models.base import Reference

Propose = Callable[[jax.Array, Any], tuple[Any, Any]]

SETUP_CHUNK = 65_536  # rows whose derivatives are summed at once
# A row of a race over a row of a full pass: gathering, two values and the expansion. Rough; a user may know better.
ADVANTAGE = {None: 5.0, 1: 8.0, 2: 12.0}


class RaceState(NamedTuple):
    """State of a raced chain.

    Attributes
    ----------
    position : pytree of Array
    whitened : Array of shape (dim,)
        The position in the kernel's coordinates.
    log_prior, expansion : Array
        At the position: the log prior, and what the control variate makes of the log-likelihood, up to a constant.
    total : Array of uint32, shape (2,)
        The log-likelihood as the words of a double, nan if no full pass was made here.
    losses : Array of int32
        Races in a row that read all rows.
    """

    position: Any
    whitened: jax.Array
    log_prior: jax.Array
    expansion: jax.Array
    total: jax.Array
    losses: jax.Array


class JaxRacingMetropolis:
    r"""Metropolis-Hastings over a log-likelihood written in JAX, which reads few rows a step.

    Parameters
    ----------
    terms : callable
        ``terms(position, rows)`` returns the log-likelihood of each of some rows, shape (k,); `rows` is `data` with k
        entries in the first dimension of each array. -inf is allowed at a proposal, nan and +inf are not.
    data : pytree of array_like
        Arrays with one entry a row in their first dimension.
    position : pytree of array_like
        What a position looks like, and where to look for the mode from: any tree of real arrays.
    log_prior : callable, optional
        ``log_prior(position)``; flat by default.
    delta, bound, size, walk_share, covariance, delayed
        As in `fastrace.mcmc.RacingMetropolis`; `bound` is "normal" without `support`, and `covariance` is for the
        raveled position.
    proposal : str or callable, default "auto"
        As there. Or ``proposal(key, position)`` that returns a position and
        ``log q(position | new) - log q(new | position)``.
    control_variate : {2, 1, None}, default 2
        Order of the expansion of each term at the reference, by JAX's derivatives; what it leaves is raced. Without it
        nearly every race at the scale of a posterior reads all rows.
    reference : pytree of array_like, optional
        Where to expand; by default the posterior mode, found from `position` by Newton's method.
    support : tuple of float, optional
        Interval (low, high) that holds every raced difference of terms but -inf, for the rigorous bounds; one outside
        it ends the program with an error that names the row.
    skewness_guard : bool, optional
        As in `fastrace.AcceptTest`: on by default with the normal rule. It judges by the rows that it has read; rare
        large differences need a `support` and a rigorous bound.
    first_look : int, default 64
        Rows of the first look, and of each block until sixteen of them; then blocks are sixteen times as large.
    scan_advantage : float, optional
        Cost of a row of the race over one of a full pass; at 1 the race never turns to a full pass.

    Attributes
    ----------
    reference : Reference or None
        Where the terms are expanded, and the normal density near the posterior, for the raveled position.
    dim, n_rows : int
    bound : str

    Raises
    ------
    ValueError
        If an argument is out of range, or shapes and dtypes do not fit; while tracing, before anything runs.
    ImportError
        Without JAX.

    See Also
    --------
    CompiledKernel : the compiled models of `fastrace.mcmc` inside JAX.
    fastrace.mcmc.doors.blackjax.racing_metropolis : the same as an algorithm of BlackJAX.

    Notes
    -----
    `init` and `step` are pure functions, for jit, vmap, scan and threads. The same key gives the same step, batched or
    not, up to the rounding of sums that XLA arranges in its own way. No host callback is involved: XLA calls the
    compiled verdicts directly, on the CPU only.

    A term of nan or +inf, or a state whose log-likelihood is -inf, ends the program with an error that names the row: a
    `jax.errors.JaxRuntimeError`, or a ValueError where the step is not compiled into a larger program.

    Start near the mode, such as at ``reference.center``: there is no tuning that walks there from far out, and only
    `walk_share` of the steps, which are short, lead back from a tail heavier than the reference's.

    Within one decision rows are read without replacement in a pseudo-random order that needs no memory. Moments are
    kept in double precision, whatever the precision of the terms. For sources see `fastrace.mcmc.RacingMetropolis`.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from fastrace.mcmc.doors.jax import JaxRacingMetropolis
    >>> x = jax.random.normal(jax.random.key(0), (50_000, 2))
    >>> y = x @ jnp.array([1.0, -0.5]) + jax.random.t(jax.random.key(1), 4.0, (50_000,))
    >>> def terms(theta, rows):
    ...     return -2.5 * jnp.log1p((rows["y"] - rows["x"] @ theta) ** 2 / 4.0)
    >>> kernel = JaxRacingMetropolis(terms, {"x": x, "y": y}, jnp.zeros(2))
    >>> step = lambda state, key: (lambda new, info: (new, (new.position, info)))(*kernel.step(key, state))
    >>> keys = jax.random.split(jax.random.key(2), 500)
    >>> _, (draws, info) = jax.lax.scan(step, kernel.init(jnp.array([1.0, -0.5])), keys)
    >>> draws.mean(axis=0).round(1).tolist() == jnp.array([1.0, -0.5]).tolist()
    True
    >>> bool(info.rows.mean() < 1000)
    True
    """

    def __init__(
        self,
        terms: Terms,
        data: Any,
        position: Any,
        log_prior: LogPrior | None = None,
        *,
        delta: float = 0.05,
        bound: str = "auto",
        proposal: str | Propose = "auto",
        size: float = 1.0,
        walk_share: float = 0.1,
        covariance: ArrayLike | None = None,
        control_variate: int | None = 2,
        reference: Any = None,
        delayed: bool = True,
        support: _checks.Support | None = None,
        skewness_guard: bool | None = None,
        first_look: int = 64,
        scan_advantage: float | None = None,
    ) -> None:
        self.terms, self.log_prior = terms, log_prior
        self.rows = Rows(data)
        self.n_rows = self.rows.n
        self._shapes = _described(position, "position")
        flat, self._unravel = ravel_pytree(jax.tree_util.tree_map(jnp.asarray, position))
        self.dim, self._dtype = len(flat), flat.dtype
        if control_variate not in (None, 1, 2):
            raise ValueError(f"control_variate is {_checks.shown(control_variate)}; the order 1 or 2 of an expansion, "
                             f"or None, is "
                             f"needed")
        self.order = control_variate
        self._check_terms(flat)
        self.propose = proposal if callable(proposal) else None
        controlled = self.order is not None
        names = tuple(name for name in PROPOSALS if name != "student-t")  # it rests on a pilot
        self.proposal, self.size, self.walk_share = checked_proposal(proposal, size, walk_share, controlled, names)
        screens = controlled or (log_prior is not None and self.proposal in FOLLOWING)
        screened = _checks.flag(delayed, "delayed") and screens
        self._race = Race(
            self.n_rows, n_arms=0, delta=delta, bound=bound, support=support, first_look=first_look, delayed=screened,
            advantage=ADVANTAGE[self.order] if scan_advantage is None else scan_advantage, guard=skewness_guard,
        )
        self.bound, self.delta = self._race.bound, self._race.delta
        self._near = math.sqrt(self.dim) + NEAR
        self.reference: Reference | None = None
        center, factor = np.zeros(self.dim), np.eye(self.dim)
        if controlled or self.proposal in FOLLOWING:
            if covariance is not None:
                raise ValueError("covariance came with a control variate; its proposals follow the reference")
            self.reference, gradient, hessian = self._refer(flat, reference)
            center, factor = self.reference.center, self.reference.factor
            self._hat = jnp.asarray(self.reference.theta_hat, self._dtype)
            self._gradient = jnp.asarray(gradient, self._dtype)
            self._hessian = jnp.asarray(hessian, self._dtype)
        elif covariance is not None:
            factor = cholesky_of(covariance, self.dim)
        self._center, self._factor = jnp.asarray(center, self._dtype), jnp.asarray(factor, self._dtype)
        self._inverse = jnp.asarray(np.linalg.inv(factor), self._dtype)

    def __repr__(self) -> str:
        return (f"JaxRacingMetropolis({counted(self.n_rows, 'row')}, {counted(self.dim, 'parameter')}, "
                f"bound={self.bound!r}, delta={self.delta}, proposal={self.proposal!r}, "
                f"control_variate={self.order!r})")

    # The model.

    def _log_terms(self, theta: jax.Array, rows: Any) -> jax.Array:
        return self.terms(self._unravel(theta), rows)

    def _check_terms(self, flat: jax.Array) -> None:
        size = min(2, self.n_rows)
        some = jax.eval_shape(lambda: self.rows.piece(0, size)[0])
        out = jax.eval_shape(self._log_terms, flat, some)
        good = hasattr(out, "shape") and out.shape == (size,) and jnp.issubdtype(out.dtype, jnp.floating)
        if not good or out.dtype.itemsize < 4:
            raise ValueError(f"terms returned {out} for {size} rows; a float32 or float64 array of shape ({size},), "
                             f"one log-likelihood a row, is needed")
        if self.log_prior is not None:
            self._check_scalar(jax.eval_shape(lambda t: self._prior(t), flat), "log_prior")

    @staticmethod
    def _check_scalar(out: Any, name: str) -> None:
        if getattr(out, "shape", None) != ():
            raise ValueError(f"{name} returned {out}; one number is needed")

    def _prior(self, theta: jax.Array) -> jax.Array:
        if self.log_prior is None:
            return jnp.zeros((), self._dtype)
        return jnp.asarray(self.log_prior(self._unravel(theta)), self._dtype)

    def _expanded(self, theta: jax.Array) -> jax.Array:
        """What the expansion makes of the log-likelihood, up to a constant."""
        if self.order is None:
            return jnp.zeros((), self._dtype)
        step = theta - self._hat
        slope = self._gradient @ step
        return slope if self.order == 1 else slope + 0.5 * (step @ (self._hessian @ step))

    def _differences(self, now: jax.Array, new: jax.Array, rows: Any) -> jax.Array:
        """Terms at `new` less those at `now`, less what their expansions make of it."""
        out = self._log_terms(new, rows) - self._log_terms(now, rows)
        if self.order is None:
            return out

        def slope(theta: jax.Array) -> jax.Array:
            along: jax.Array = jax.jvp(lambda t: self._log_terms(t, rows), (theta,), (new - now,))[1]
            return along

        if self.order == 1:
            return out - slope(self._hat)
        middle = 0.5 * (now + new) - self._hat
        first, second = jax.jvp(slope, (self._hat,), (middle,))
        return out - first - second

    def _refer(self, flat: jax.Array, where: Any) -> tuple[Reference, Any, Any]:
        """The point of expansion, with the sums of derivatives there."""
        size = min(self.n_rows, SETUP_CHUNK)

        def piece(theta: jax.Array, k: Any) -> jax.Array:
            rows, start, first = self.rows.piece(k, size)
            return jnp.where(start + jnp.arange(size) >= first, self._log_terms(theta, rows), 0.0).sum()

        parts = jax.jit(lambda t, k: (piece(t, k), jax.grad(piece)(t, k), jax.hessian(piece)(t, k)))
        prior = jax.jit(lambda t: (self._prior(t), jax.grad(self._prior)(t), jax.hessian(self._prior)(t)))

        def add(out: Any, more: Any) -> Any:
            return [a + np.asarray(b, np.float64) for a, b in zip(out, more, strict=True)]

        def likelihood(theta: Any) -> Any:
            out = [0.0, np.zeros(self.dim), np.zeros((self.dim, self.dim))]
            for k in range(-(-self.n_rows // size)):
                out = add(out, parts(jnp.asarray(theta, self._dtype), k))
            return out

        def posterior(theta: Any) -> Any:
            out = add(likelihood(theta), prior(jnp.asarray(theta, self._dtype)))
            return float(out[0]), out[1], out[2]

        if where is None:
            hat = np.asarray(flat, np.float64)
            if not np.isfinite(posterior(hat)[0]):
                raise ValueError(f"the log-posterior is {posterior(hat)[0]} at the position given; the search for the "
                                 f"mode must start where it is finite")
            hat = find_mode(posterior, hat, 1e-9 if self._dtype == jnp.float64 else 1e-3)
        else:
            hat = np.asarray(self._flat(where, "reference"), np.float64)
        hat = np.asarray(jnp.asarray(hat, self._dtype), np.float64)  # as the chain will see it
        _, gradient, hessian = likelihood(hat)
        _, slope, curvature = posterior(hat)
        if not (np.isfinite(slope).all() and np.isfinite(curvature).all()):
            raise ValueError(f"the derivatives of the log-posterior at {hat} are not finite; give another reference, "
                             f"or control_variate=None with a random walk")
        center, factor = normal_density(hat, slope, curvature, lambda step: math.nan, False)
        return Reference(hat, center, factor, None, math.inf), gradient, hessian

    # The chain.

    def _flat(self, position: Any, name: str = "position") -> jax.Array:
        given = _described(position, name)
        if given != self._shapes:
            raise ValueError(f"{name} has {_in_words(given)}; {_in_words(self._shapes)}, as the kernel was made with, "
                             f"is needed")
        flat: jax.Array = ravel_pytree(position)[0]
        return flat.astype(self._dtype)

    def init(self, position: Any, rng_key: Any = None) -> RaceState:
        """The state at a position, of the form that the kernel was made with; `rng_key` is not needed."""
        theta = self._flat(position)
        return RaceState(
            position=self._unravel(theta),
            whitened=self._inverse @ (theta - self._center),
            log_prior=self._prior(theta),
            expansion=self._expanded(theta),
            total=jnp.asarray(UNKNOWN),
            losses=jnp.int32(0),
        )

    def step(self, rng_key: Any, state: RaceState) -> tuple[RaceState, RaceInfo]:
        """One transition.

        Parameters
        ----------
        rng_key : key
            Decides the proposal, the threshold and the order of rows.
        state : RaceState

        Returns
        -------
        state : RaceState
        info : RaceInfo
        """
        words = key_words(rng_key)
        now = self._flat(state.position)
        if self.propose is not None:
            new, whitened, ratio = self._asked(rng_key, state.position)
            walks: Any = False
        else:
            new, whitened, ratio, walks = self._proposed(words, state.whitened)
        log_prior, expansion = self._prior(new), self._expanded(new)
        ratio = jnp.where(log_prior == -jnp.inf, -jnp.inf,
                          ratio + (log_prior - state.log_prior) + (expansion - state.expansion))
        farthest = jnp.maximum((whitened * whitened).sum(), (state.whitened * state.whitened).sum())
        near = ((farthest <= self._near**2) & ~jnp.asarray(walks)).astype(jnp.int32)
        race = self._race.call("fastrace_race_open", words, ratio, state.losses, near)
        race = self._race.run(race, lambda rows: self._differences(now, new, self.rows.some(rows)))
        lost = race[0] == LOST
        unknown = (state.total == jnp.asarray(UNKNOWN)).all()
        before = self._total(now, jnp.where(lost & unknown, 1, 0))
        before = jnp.where(lost & unknown, before, state.total)
        after = self._total(new, jnp.where(lost, 2, 0))
        race = call("fastrace_race_close", (self._race.words,), jnp.uint32, race, before, after,
                    expansion - state.expansion)
        accepted = race[0] == ACCEPTED
        info = info_of(race, lost, accepted, self.n_rows)
        total = jnp.where(accepted, jnp.where(lost, after, jnp.asarray(UNKNOWN)), before)
        losses = jnp.where(info.undecided | (race[3] != 0), state.losses + 1, 0)
        after_step = RaceState(
            position=self._unravel(jnp.where(accepted, new, now)),
            whitened=jnp.where(accepted, whitened, state.whitened),
            log_prior=jnp.where(accepted, log_prior, state.log_prior),
            expansion=jnp.where(accepted, expansion, state.expansion),
            total=total,
            losses=jnp.where(info.looks > 0, losses, state.losses).astype(jnp.int32),
        )
        return after_step, info

    def _total(self, theta: jax.Array, on: jax.Array) -> jax.Array:
        return self.rows.totals(lambda rows: self._log_terms(theta, rows)[None], 1, on)

    def _proposed(self, words: jax.Array, whitened: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        keep, noise, walk, share = coefficients(self.proposal, self.size, self.dim, self.walk_share)
        shapes = [jax.ShapeDtypeStruct(shape, self._dtype) for shape in ((self.dim,), ())]
        normals, uniform = jax.ffi.ffi_call("fastrace_noise", shapes, vmap_method="broadcast_all")(words)
        walks = uniform < share
        new = jnp.where(walks, 1.0, keep) * whitened + jnp.where(walks, walk, noise) * normals
        weight = jnp.where(walks, 0.0, (1.0 - keep * keep) / (noise * noise)).astype(self._dtype)
        ratio = 0.5 * weight * ((new * new).sum() - (whitened * whitened).sum())
        return self._center + self._factor @ new, new, ratio, walks

    def _asked(self, rng_key: Any, position: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        assert self.propose is not None
        answer = self.propose(jax.random.fold_in(rng_key, 1), position)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise ValueError(f"the proposal returned {_checks.shown(answer)}; a position and log q(x | x') - log q(x' "
                             f"| x) are "
                             f"needed")
        new = self._flat(answer[0], "the proposal")
        self._check_scalar(jnp.asarray(answer[1]), "the proposal's log ratio")
        return new, self._inverse @ (new - self._center), jnp.asarray(answer[1], self._dtype)


def _described(position: Any, name: str) -> tuple[Any, tuple[tuple[int, ...], ...]]:
    """The form of a tree of real arrays."""
    leaves, form = jax.tree_util.tree_flatten(position)
    kinds = [jnp.result_type(leaf) for leaf in leaves]
    if not leaves or not all(jnp.issubdtype(kind, jnp.floating) for kind in kinds):
        raise ValueError(f"{name} has dtypes {[str(kind) for kind in kinds]}; a tree of arrays of real numbers is "
                         f"needed, at least one: a walk moves in real space")
    return form, tuple(np.shape(leaf) for leaf in leaves)


def _in_words(described: tuple[Any, tuple[tuple[int, ...], ...]]) -> str:
    form, shapes = described
    return f"shapes {list(shapes)}" if len(shapes) == 1 else f"the form {form} with shapes {list(shapes)}"
