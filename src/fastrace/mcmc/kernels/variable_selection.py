"""Which coefficients are in a model: spike-and-slab priors."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln

from fastrace._base import _checks, _frames
from fastrace._base._blas import one_blas_thread
from fastrace._base._words import counted
from fastrace._models._priors import JointPrior
from fastrace.mcmc._variables import Variable, shaped
from fastrace.mcmc.compression import compress, expansion_of
from fastrace.mcmc.kernels._inclusion import InclusionMove
from fastrace.mcmc.kernels._metropolis import RowMetropolis
from fastrace.mcmc.kernels._racing import AFFORDABLE
from fastrace.mcmc.kernels._rows import ChainState, Tuning, first_inside, usual_rows
from fastrace.mcmc.kernels.metropolis import Metropolis
from fastrace.mcmc.kernels.poisson_metropolis import PoissonMinibatchMetropolis
from fastrace.mcmc.kernels.racing_metropolis import RacingMetropolis
from fastrace.mcmc.models._joint import INTERCEPT, DensityOf, Layout
from fastrace.mcmc.models._modes import CORRELATED
from fastrace.mcmc.models.base import LogPrior, left_of_prior
from fastrace.mcmc.models.model import Model, Reference
from fastrace.mcmc.models.priors import Beta
from fastrace.mcmc.protocol import StepInfo, Steps
from fastrace.mcmc.trace import Trace

__all__ = ["VariableSelection"]

Array = NDArray[np.float64]
Prior = ArrayLike | Mapping[str, float] | Beta | Callable[[int], float]

MOST_FLIPS = 1 << 20
LEAST_SCALE = 1e-6  # of slabs, where an expansion begins
_FLAT = ("flat", 0.0, 1.0, 0.0, -1)
_ARRIVING = 30      # moves on the surrogate that lead from a set at random to a start


class VariableSelection:
    r"""Spike-and-slab selection of coefficients: each is 0, or has the model's prior.

    Parameters
    ----------
    model : GLM, Softmax or other Model with derivatives
        Log-likelihood terms, and the slab: independent priors of its coefficients, normal ones by `prior_mean` and
        `prior_sd`, or `Normal`, `StudentT` and `Laplace` objects. Their scales are fixed, or learned: with
        ``Normal(0.0, HalfCauchy(1.0))`` all coefficients that are given this object share one. A learned scale of
        outcomes may have any prior, and is always in.
    prior : float, array_like of shape (dim,), dict, Beta or callable, default 0.5
        Probability of each coefficient to be in the model; 1 for those that always are, which may have a flat prior. A
        dict, or a series of pandas, goes by the names of the parameters; in a dict the column of a `Softmax` stands for
        those of all classes, and an intercept or a learned scale may be left out. With `Beta` the probability is
        unknown, the same for all, and integrated out. Or a function of the number of coefficients in the model, of
        those that may be out, that returns the log prior of each set of this size, up to a constant, or -inf: sizes
        that are possible, two at least, must follow on each other, as those up to a largest one. An intercept,
        which is a constant column, is always in unless an array or a dict gives it a probability below 1. Parameters
        that are no coefficients, as the logarithm of a learned scale or dispersion, are always in.
    decision : {"auto", "race", "poisson", "exact"}, default "auto"
        How a move is decided on the rows: by a race, wrong with probability `delta` at most; exactly from a Poisson
        minibatch, where the model has bounds for its rows; or by a pass over all of them. "auto" is "poisson" where the
        bounds make minibatches small, else "race".
    always : array_like of int, or of names, optional
        Coefficients that are always in the model, beside those with `prior` 1: their numbers, or their names in
        ``model.names``. "intercept" is a constant column of a `GLM`.
    n_flips : int, optional
        Coefficients, drawn at random, of which a step draws anew whether they are in; by default as many as there are
        to choose.
    control_variate : Reference, array_like or "auto", default "auto"
        Where the log-likelihood is expanded, by default at the posterior mode with all coefficients in the model.
    delta : float, default 0.05
        As in `RacingMetropolis`.

    Raises
    ------
    ValueError
        If the model has groups, a `Horseshoe`, a `log_prior` or no derivatives, if a coefficient that may be out has a
        flat prior, or if an argument is out of range.

    See Also
    --------
    laplace : For one set of coefficients.

    Notes
    -----
    A draw has exact zeros: ``(trace.draws != 0).mean(axis=(0, 1))`` are the probabilities of inclusion, see
    `inclusion`.

    A Student-t or Laplace slab is normal given a scale of each coefficient [3]_. A step first draws these scales, given
    the value of each coefficient that is in, and from their prior for those that are out; all else is done given them.
    They are not kept in a draw. A learned scale of slabs follows the coefficients in a draw. A step moves it last,
    given the coefficients that are in, by Metropolis's rule and without a row; of a set without any it is drawn from
    its prior. Values of a set could not be integrated out under slabs that are not normal mixtures, and the scales of
    effects of groups would have to move with the set: these are refused.

    A step is a surrogate transition [1]_. The surrogate is prior times second-order expansion of the likelihood. Given
    a set of coefficients it is normal, so that their values can be integrated out: a step first runs Gibbs over sets,
    `n_flips` coefficients at random one after the other, then draws the values [2]_. No row is read. The move is
    reversible for the surrogate, so that accepting it with probability :math:`\min(1, \exp(R(b') - R(b)))` leaves the
    posterior invariant, where R is what the expansion leaves of the log-likelihood, and of the prior of a learned
    scale; the rows are asked for the former alone. Where few rows leave a scale a prior with long tails, draws of it
    move slowly there: compare chains.
    A coefficient that stays as it is costs O(1), one that changes O(dim^2), the values O(dim^3 / 3).

    Sets that lack a coefficient which the data ask for strongly are badly expanded, and have no mass. `sample` warns
    where less than 20 % of the moves are accepted: the expansion then does not follow the posterior.

    References
    ----------
    .. [1] Liu, "Monte Carlo Strategies in Scientific Computing", 2001, section 9.4.3.
    .. [2] George, McCulloch, "Approaches for Bayesian variable selection", Statistica Sinica 7, 1997.
    .. [3] Andrews, Mallows, "Scale mixtures of normal distributions", JRSS-B 36(1), 1974.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 6))
    >>> y = rng.random(5000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0, 0.0, 0.0, 0.0]))
    >>> kernel = mcmc.VariableSelection(mcmc.GLM(X, y, prior_sd=1.0), prior=0.2)
    >>> trace = mcmc.sample(kernel, n_draws=1000, n_chains=2, n_tune=0, rng=1)
    >>> (kernel.inclusion(trace) > 0.5).tolist()
    [True, True, False, False, False, False]
    """

    variable = "theta"
    full_pass_advice = ""
    least_accepted = 0.2
    _rows: Any = None  # the model at held scales; of kernels saved before these were learned, the model itself
    _log_scales: Array = np.zeros(0)  # these

    @one_blas_thread()
    def __init__(
        self,
        model: Model,
        prior: Prior = 0.5,
        *,
        decision: str = "auto",
        always: ArrayLike | Sequence[str] | str | None = None,
        n_flips: int | None = None,
        control_variate: str | ArrayLike | Reference = "auto",
        delta: float = 0.05,
    ) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model is {_checks.shown(model)}; a GLM or other mcmc.Model is needed"
                            f"{_checks.of_pymc(model)}")
        _checks.choice(decision, "decision", ("auto", "race", "poisson", "exact"))
        if not model.has_derivatives:
            raise ValueError(f"{type(model).__name__} has no derivatives to expand; selection needs them")
        _require_slab(model)
        if model.joint_prior is None and model.log_prior is not None:
            raise ValueError("the model has a log_prior, and values of coefficients are integrated out: give prior_mean"
                             " and prior_sd alone, or Normal, StudentT or Laplace priors")
        if model.prior_part is not None:
            raise ValueError(CORRELATED.format("the slab must be independent"))
        if control_variate is None:
            raise ValueError("control_variate is None; selection moves on an expansion: 'auto', a point or a Reference "
                             "is needed")
        self.model = model
        self._rows, self._log_scales = _at_scales(model)
        self._gain, self._free, self._counts = _odds(model, prior, always)
        if n_flips is None:
            n_flips = max(1, len(self._free))
        self.n_flips = _checks.integer(n_flips, "n_flips", 1, "a step must be able to change the set")
        if self.n_flips > MOST_FLIPS:
            raise ValueError(f"n_flips is {n_flips}; at most {MOST_FLIPS} are done in one step, which nothing "
                             f"interrupts")
        reference = control_variate
        if not isinstance(reference, Reference):
            auto = isinstance(reference, str) and _checks.choice(reference, "control_variate", ("auto",))
            if not auto and self.records_natural:
                reference = model.unconstrain(
                    _frames.floats_in_order(reference, model.natural_names, "control_variate"))
                reference = reference[: model.n_seen]
            at_scales = len(self._log_scales) > 0       # the point of expansion has been found with them
            reference = self._rows.reference(
                (self._rows._hat if at_scales else None) if auto else reference)
        self.reference: Reference = reference
        self._plan, self._beside = self._planned(reference)
        weights = reference.weights
        if decision == "auto":
            small = weights is not None and usual_rows(weights, model.n_seen) <= AFFORDABLE
            decision = "poisson" if small else "race"
        self.decision = decision
        self.delta = _checks.probability(delta, "delta")
        self._kernel = self._deciding(decision)

    def _deciding(self, decision: str) -> Any:
        """A kernel over rows that makes these moves and decides on them so."""
        options: dict[str, Any] = {"delta": self.delta} if decision == "race" else {}
        kernel = _KERNELS[decision](self._rows or self.model, control_variate=self.reference, proposal="independent",
                                    **options)
        kernel.plan, kernel.beside, kernel.whole = self._plan, self._beside, self.model
        kernel._engines = []  # of pilots, whose moves are others
        return kernel

    def _planned(self, reference: Reference) -> tuple[tuple[Any, ...], JointPrior | None]:
        """What an `InclusionMove` takes, and a prior whose normal approximation is in it, if slabs are not normal."""
        more = self._gain, self._free, self._counts, self.n_flips
        mixed = _mixed_slabs(self.model)
        if mixed is None:
            root = np.linalg.inv(reference.factor)
            precision = root.T @ root
            return (precision, precision @ reference.center, *more), None
        assert self.model.joint_prior is not None
        coefficients, _, _, aux, _ = self.model.joint_prior.given
        others = JointPrior([c if c[0] == "normal" and c[4] < 0 else _FLAT for c in coefficients], aux=aux)
        others.expand_at(reference.theta_hat)
        mean, precision = others.conditional_of(())
        _, slope, curvature = expansion_of(self._rows, np.array(reference.theta_hat))
        bend = curvature.to_dense()
        linear = bend @ reference.theta_hat + slope + precision * mean
        scales = (self.model.joint_prior,) if len(self._log_scales) else ()
        return (bend + np.diag(precision), linear, *more, mixed, *scales), others

    def __repr__(self) -> str:
        return f"VariableSelection({self.model!r}, decision={self.decision!r}, n_flips={self.n_flips})"

    @property
    def names(self) -> tuple[str, ...] | None:
        """What draws call the model's parameters: a learned scale with a prior of its own is not its logarithm."""
        return self.model.natural_names

    @property
    def records_natural(self) -> bool:
        """Whether draws hold a learned scale itself, and not its logarithm as `reference` does."""
        return self.model.joint_prior is not None

    def _unconstrained(self, draws: Array) -> Array:
        """Draws in the coordinates of `reference`."""
        return np.asarray(self._kernel._unconstrained(draws))

    @property
    def outside(self) -> bool:
        """Whether a race met a difference that it was not promised."""
        return bool(getattr(self._kernel, "outside", False))

    def _variables_of(self, names: tuple[str, ...]) -> tuple[Variable, ...]:
        """Those of the model, and which coefficients are in it."""
        own = self.model._variables_of(names)
        if not own:
            return ()
        called = names or tuple(f"x{j}" for j in range(self.model.dim))
        return (*own, shaped("included", range(self.model.dim), [("coefficient", called)], "nonzero"))

    def describe(self) -> dict[str, Any]:
        """What a trace remembers of the kernel."""
        about = {"kernel": "VariableSelection", "decision": self.decision, "n_flips": self.n_flips}
        return about | ({"delta": self.delta} if self.decision == "race" else {})

    def inclusion(self, trace: Trace) -> Array:
        """Posterior probability of each coefficient to be in the model.

        Parameters
        ----------
        trace : Trace
            Draws of this kernel.

        Returns
        -------
        ndarray of shape (dim,)
            Shares of the draws in which it is not 0.

        Raises
        ------
        TypeError, ValueError
            If it is no trace, one of another kernel, or one of draws of another number of parameters.
        """
        dim, shape = self.model.dim, getattr(getattr(trace, "draws", None), "shape", None)
        if shape is None:
            raise TypeError(f"trace is {_checks.shown(trace)}; the Trace that mcmc.sample(kernel) returned is needed")
        kind = getattr(trace, "kernel", {}).get("kernel")
        if kind != "VariableSelection":
            raise TypeError(f"trace is of {kind}, whose coefficients are never 0; one of VariableSelection is needed")
        if shape[2:] != (dim,):
            raise ValueError(f"draws of trace have shape {shape}; (n_chains, n_draws, {dim}), those of this kernel, is "
                             f"needed")
        return np.asarray((trace.draws != 0.0).mean(axis=(0, 1)), dtype=np.float64)

    def init(self, position: ArrayLike | None = None, rng: _checks.RngLike = None) -> ChainState:
        """The state at a position.

        Parameters
        ----------
        position : array_like of shape (dim,), optional
            With zeros for what is not in the model. By default a draw of the surrogate, from a set at random.
        rng : None, int, SeedSequence or Generator, optional
            For that draw.

        Returns
        -------
        ChainState
            Where a chain begins.
        """
        allowed = np.flatnonzero(self._counts > -math.inf)
        if position is None:
            gen = _checks.generator(rng)
            position = self._kernel._recorded(first_inside(self.model, np.empty(0), lambda: self._drawn(gen, allowed)))
        state = self._kernel.init(position)
        size = np.count_nonzero(state.position[self._free])
        if size not in allowed:
            raise ValueError(f"position has {size} coefficients of those that may be out, which has prior 0: "
                             f"{allowed[0]} to {allowed[-1]} are possible")
        return state

    def _drawn(self, rng: np.random.Generator, allowed: NDArray[np.intp]) -> Array:
        """A draw of the surrogate from a set at random, whose size is an allowed one, in the coordinates of moves."""
        position = np.where(rng.random(self.model.n_seen) < 0.5, 1.0, 0.0)
        if np.count_nonzero(position[self._free]) not in allowed:
            position[self._free] = 0.0
            position[rng.permutation(self._free)[: rng.integers(allowed[0], allowed[-1] + 1)]] = 1.0
        position = np.concatenate([position, self._log_scales])
        return np.asarray(InclusionMove(*self._plan).drawn(rng, position, _ARRIVING))

    def step(self, rng: np.random.Generator, state: ChainState) -> tuple[ChainState, StepInfo]:
        """One transition: the next state, and what it took."""
        return self._kernel.step(rng, state)

    def run(
        self, rng: np.random.Generator, state: ChainState, n: int, *, tune: bool = False
    ) -> tuple[ChainState, Steps]:
        """Many transitions in one call, without the GIL where the model's terms are compiled; nothing is tuned."""
        return self._kernel.run(rng, state, n)


class _Selecting(RowMetropolis):
    """A kernel over rows whose moves choose coefficients; `plan` is what `InclusionMove` takes.

    Its model has the learned scales of slabs held; `whole`, if it is set, has them among its parameters.
    """

    whole: Model | None = None
    plan: tuple[Any, ...] | None = None
    beside: JointPrior | None = None  # all of the prior that is not in the slabs that moves hold themselves

    def _move(self, tuning: Tuning, rng: np.random.Generator | None, tune: bool) -> Any:
        return super()._move(tuning, rng, tune) if self.plan is None else InclusionMove(*self.plan)

    @property
    def _shown(self) -> Model:
        return self.model if self.whole is None else self.whole

    @property
    def dim(self) -> int:
        return self._shown.dim

    @property
    def names(self) -> tuple[str, ...] | None:
        return self._shown.natural_names

    @property
    def records_natural(self) -> bool:
        return self._shown.joint_prior is not None

    def _recorded(self, draws: Array) -> Array:
        return np.asarray(self._shown.constrain(draws)) if self.records_natural else draws

    def _unconstrained(self, draws: Array) -> Array:
        return np.asarray(self._shown.unconstrain(draws)) if self.records_natural else draws

    def _chain(self, *args: Any, **options: Any) -> Any:
        return super()._chain(*args, **options, n_hyper=self.dim - self.model.n_seen)

    def _log_prior_beside(self) -> LogPrior | None:
        if self.beside is None:
            return super()._log_prior_beside()
        return None if self.beside.normal else left_of_prior(self.beside)


class _SelectingByRace(_Selecting, RacingMetropolis):
    pass


class _SelectingByMinibatch(_Selecting, PoissonMinibatchMetropolis):
    pass


class _SelectingExactly(_Selecting, Metropolis):
    pass


_KERNELS: dict[str, Any] = {"race": _SelectingByRace, "poisson": _SelectingByMinibatch, "exact": _SelectingExactly}


def _layout(model: Model) -> Layout | None:
    """The columns of a model, None where it has none."""
    try:
        return model._layout()
    except NotImplementedError:
        return None


def _names(model: Model) -> tuple[str, ...]:
    """What is called in the model, learned scales of slabs aside."""
    return tuple(model.names or ())[: model.n_seen]


def _intercepts(model: Model) -> list[int]:
    """Numbers of the coefficients of constant columns."""
    layout = _layout(model)
    return [] if layout is None else [j for j in range(len(layout.columns)) if layout.constant(j)]


def _require_slab(model: Model) -> None:
    """Refuse priors of coefficients whose values cannot be integrated out."""
    if model.joint_prior is None:
        return
    coefficients, pools, factors, _, own = model.joint_prior.given
    if factors:
        raise ValueError("the model has groups, and sets of coefficients are drawn with all values integrated out of "
                         "one normal density: the scales of group effects would have to move too, which no move of "
                         "this kernel does. Leave out the groups, or give their indicators as columns, with prior_sd "
                         "and always")
    if any(kind != "shared" for kind, *_ in pools):
        last = (model.names or ("a scale",))[-1]
        raise ValueError(f"the prior is a Horseshoe, with hyperparameters such as {last!r}: its local scales would "
                         f"have to move with the set of coefficients, which no move of this kernel does. Give Normal, "
                         f"StudentT or Laplace priors, whose scale may be learned; a Student-t slab has a scale for "
                         f"each coefficient besides")
    if own:
        raise ValueError("the model has a LogDensity; the slab must be independent Normal, StudentT or Laplace priors "
                         "of coefficients, since their values are integrated out")


def _slab(model: Model) -> tuple[Array, Array]:
    """Means and precisions of the normal priors of known scale; precisions are 0 of flat ones and nan of others."""
    if model.joint_prior is None:
        return model.prior_mean, model.prior_precision
    coefficients, mean, precision = model.joint_prior.given[0], np.zeros(model.n_seen), np.zeros(model.n_seen)
    for j, (kind, middle, sd, _, pool) in enumerate(coefficients):
        known = {"flat": 0.0, "normal": sd**-2.0} if pool < 0 else {}
        mean[j], precision[j] = middle, known.get(kind, np.nan)
    return mean, precision


def _mixed_slabs(model: Model) -> tuple[NDArray[np.int64], Array, Array, Array, Array] | None:
    """What `InclusionMove` calls so: of Student-t or Laplace slabs and those of learned scales; None without."""
    given = () if model.joint_prior is None else model.joint_prior.given[0]
    found = [(j, {"student": c[3], "laplace": 0.0, "normal": -1.0}[c[0]], c[1], c[2], c[4]) for j, c in enumerate(given)
             if c[0] in ("student", "laplace") or c[4] >= 0]
    if not found:
        return None
    places, df, mean, scale, learned = map(np.array, zip(*found, strict=True))
    return places.astype(np.int64), df, mean, scale, learned


def _at_scales(model: Model) -> tuple[Any, Array]:
    """The model with the learned scales of slabs held where its expansion finds them, and their logarithms."""
    if not model.n_hyper:
        return model, np.zeros(0)
    assert model.joint_prior is not None
    coefficients, pools, _, aux, _ = model.joint_prior.given
    hat, logs, held = np.array(compress(model).psi_hat), [], list(coefficients)
    for number in range(len(pools)):
        own = [j for j, c in enumerate(coefficients) if c[4] == number]
        away = np.array([hat[j] - coefficients[j][1] for j in own])
        scale = max(math.sqrt(float(np.mean(np.square(away)))), LEAST_SCALE) if own else 1.0
        logs.append(math.log(scale))
        for j in own:
            kind, mean, width, df, _ = coefficients[j]
            held[j] = (kind, mean, width * scale, df, -1)
    rows: Any = copy.copy(model)
    rows.joint_prior, rows.dim = JointPrior(held, (), (), aux), model.n_seen
    rows.names = None if model.names is None else model.names[: model.n_seen]
    rows.log_prior, rows._hat = DensityOf(rows.joint_prior), hat
    return rows, np.array(logs)


def _no_coefficients(model: Model) -> NDArray[np.bool_]:
    """Which parameters multiply nothing, of shape (dim,): the logarithm of a learned scale."""
    out = np.zeros(model.n_seen, dtype=np.bool_)
    if getattr(model, "learns_scale", False):
        out[model.n_seen - 1] = True  # the last that the rows see
    return out


def _numbers(model: Model, listed: list[str], of: str = "always") -> NDArray[np.int64]:
    """Numbers of coefficients by name; the column of a Softmax stands for those of all classes."""
    names = list(_names(model))
    layout = _layout(model)
    out: list[int] = []
    for name in listed:
        found = [names.index(name)] if name in names else []
        if not found and layout is not None:
            found = [j for j, owner in enumerate(layout.owners) if owner == name] or (
                _intercepts(model) if name == INTERCEPT else [])
        if not found:
            known = ", ".join(map(repr, names[:20])) or "none"
            raise ValueError(f"{of} names {name!r}; the names of the model are {known}"
                             f"{', ...' if names[20:] else ''}")
        out += found
    return np.array(out, dtype=np.int64)


def _always_in(model: Model, always: ArrayLike | Sequence[str] | str | None) -> NDArray[np.bool_]:
    """Which parameters `always` says are in, and those that are no coefficients."""
    held, d = _no_coefficients(model), model.n_seen
    if always is None:
        return held
    listed = np.atleast_1d(_checks.as_array(always, "always"))
    listed = listed if listed.size else np.zeros(0, dtype=np.intp)
    if listed.ndim == 1 and listed.size and listed.dtype.kind in "UO" and all(isinstance(v, str) for v in listed):
        listed = _numbers(model, listed.tolist())
    far = listed[(listed < 0) | (listed >= d)] if listed.ndim == 1 and listed.dtype.kind in "iu" else listed[:0]
    if far.size:
        raise ValueError(f"always is {_checks.shown(always)} and holds {far[0]}; the model has {d} coefficients, "
                         f"numbered from 0 to {d - 1}")
    if listed.ndim != 1 or (listed.size and listed.dtype.kind not in "iu"):
        raise ValueError(f"always is {_checks.shown(always)}; numbers of coefficients, from 0 to {d - 1}, "
                         f"or names of them, are needed")
    held[listed] = True
    return held


def _by_name(model: Model, prior: Mapping[Any, Any], held: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
    """Probabilities of a dict, and which parameters it says nothing of: they must be `held`, or intercepts."""
    share, said = np.ones(model.n_seen), np.zeros(model.n_seen, dtype=np.bool_)
    names = tuple(_names(model) or map(str, range(model.n_seen)))
    for key, value in prior.items():
        places = _numbers(model, [str(key)], "prior")
        twice = places[said[places]]
        if len(twice):
            raise ValueError(f"prior gives {names[twice[0]]!r} two probabilities, one of them as {str(key)!r}: one is "
                             f"needed")
        share[places], said[places] = _checks.real(value, f"prior[{str(key)!r}]"), True
    must = ~said & ~held
    must[_intercepts(model)] = False
    if must.any():
        some = ", ".join(repr(names[j]) for j in np.flatnonzero(must)[:10])
        raise ValueError(f"prior has no probability of {some}{', ...' if must.sum() > 10 else ''}; one of each "
                         f"coefficient is needed, 1 for those that are always in")
    return share, ~said


def _shares(model: Model, prior: Prior, held: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
    """Probability of each parameter to be in the model, and which are in whatever it is."""
    held = held.copy()
    _refuse_truths(list(prior.values()) if isinstance(prior, Mapping) else prior, f"prior is {_checks.shown(prior)}",
                   "coefficients that are always in the model are named in always=")
    if callable(prior) or isinstance(prior, Beta):
        held[_intercepts(model)] = True
        return np.ones(model.n_seen), held
    if isinstance(prior, Mapping):
        share, unsaid = _by_name(model, prior, held)
        held |= unsaid
        each = True
    else:
        given: Any = _frames.in_order(prior, _names(model), "prior", "parameters")
        share = _checks.arm_values(given, "prior", model.n_seen, "parameter")
        each = np.ndim(given) > 0
        if not each:
            held[_intercepts(model)] = True
    if not ((share > 0.0) & (share <= 1.0)).all():
        raise ValueError(f"prior is {_checks.shown(prior)}; probabilities of inclusion above 0 and up to 1 are "
                         f"needed, 1 for coefficients that are always in: leave out columns that never are")
    beside = np.flatnonzero(_no_coefficients(model) & (share < 1.0) & each)
    if len(beside):
        called = model.names[beside[0]] if model.names else f"parameter {beside[0]}"
        raise ValueError(f"prior is {share[beside[0]]} for {called}, which is no coefficient and cannot be out of "
                         f"the model: give it 1")
    return share, held | (share == 1.0)


def _refuse_truths(values: Any, said: str, advice: str) -> None:
    """Refuse truth values among probabilities or their logarithms, as those of prior_mean and prior_sd are."""
    kinds = {type(value) for value in values} if isinstance(values, (list, tuple)) else {type(values)}
    if getattr(getattr(values, "dtype", None), "kind", "") == "b" or kinds & {bool, np.bool_}:
        raise TypeError(f"{said}; numbers are needed, and a truth value would be read as 1 or 0: {advice}")


def _odds(
    model: Model, prior: Prior, always: ArrayLike | Sequence[str] | str | None
) -> tuple[Array, NDArray[np.int64], Array]:
    """Log of what the prior of each coefficient that is in adds; those to choose; log prior of their number."""
    share, held = _shares(model, prior, _always_in(model, always))
    log_odds = np.zeros(model.n_seen)
    known = ~held & (share < 1.0)
    log_odds[known] = np.log(share[known]) - np.log1p(-share[known])
    free, (mean, precision) = np.flatnonzero(~held), _slab(model)
    flat = free[precision[free] == 0.0]
    if len(flat):
        called = model.names[flat[0]] if model.names else str(flat[0])
        raise ValueError(f"coefficient {called} may be out of the model and has a flat prior, which no data "
                         f"can speak for: give it a finite prior_sd, or name it in always")
    sizes = np.arange(len(free) + 1)
    counts = np.zeros(len(sizes))
    if isinstance(prior, Beta):
        counts = betaln(prior.a + sizes, prior.b + len(free) - sizes) - betaln(prior.a, prior.b)
    elif callable(prior):
        found = [prior(k) for k in sizes.tolist()]
        _refuse_truths(found, f"prior returned {_checks.shown(found)} for sizes 0 to {len(free)}",
                       "return 0.0 for sizes that are equally likely, and -inf for impossible ones")
        counts = np.array([_checks.real(value, f"prior({k})") for k, value in enumerate(found)])
        if (np.isnan(counts) | (counts == math.inf)).any():
            odd = counts[np.isnan(counts) | (counts == math.inf)][0]
            raise ValueError(f"prior returned {odd} for a number of coefficients; finite log priors are needed, or "
                             f"-inf for sizes that are impossible")
        allowed = np.flatnonzero(counts > -math.inf)
        if len(allowed) < min(2, len(sizes)) or np.ptp(allowed) != len(allowed) - 1:
            raise ValueError(f"prior returned -inf for a number of coefficients, so that "
                             f"{counted(len(allowed), 'size')} of a set are possible, "
                             f"{_checks.shown(allowed.tolist())}: one comes in or goes out at a time, so that these "
                             f"must follow on each other, and be two at least")
    precision = np.nan_to_num(precision)  # slabs that are not normal come in when their scales are drawn
    gain = log_odds - 0.5 * precision * np.square(mean)
    normal = free[precision[free] > 0.0]
    gain[normal] += 0.5 * np.log(precision[normal])
    return gain, free.astype(np.int64), counts
