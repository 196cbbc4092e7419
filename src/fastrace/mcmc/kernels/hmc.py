"""Hamiltonian Monte Carlo on the posterior itself: each gradient is that of all rows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace._base._blas import one_blas_thread
from fastrace._base._progress import phase, stage
from fastrace._models._arrow import Arrow, Quadratic
from fastrace._models._slopes import Slopes
from fastrace.mcmc._scales import with_part
from fastrace.mcmc.compression import FLAT, Compressed
from fastrace.mcmc.kernels._chain import Chain
from fastrace.mcmc.kernels._row_hamiltonian import RowChain, RowInner, RowMove
from fastrace.mcmc.kernels._rows import PILOT_SEED, WINDOW, ChainState, Tuning
from fastrace.mcmc.kernels._surrogate_moves import FIRST_TRAJECTORIES, OnSurrogate
from fastrace.mcmc.kernels._trajectories import TRIED, UNSTABLE, WIDEST, Trajectories, trajectories_of, unstable_share
from fastrace.mcmc.models._modes import PrecisionError
from fastrace.mcmc.models.model import Model, NoModeError, Reference
from fastrace.mcmc.protocol import Steps
from fastrace.results import Result

__all__ = ["HMC"]

Array = NDArray[np.float64]

LENGTH = 1.8  # mean angle of a trajectory: beyond a quarter of a turn means of draws are better, and squares still good
STEP, OF_DIM = 0.8, 100.0  # angle of a step before tuning, in so many dimensions; by their fourth root in others
LEAST, MOST = 1e-3, 1.6  # of that angle
MIDDLE = 300  # draws of the surrogate whose mean is its middle, where no mode of it is one
PER_POINT, FEWEST = 10, 3  # draws for each one whose curvature is found for a warning, and how many must be too narrow
GAIN = 3.0  # of the logarithm of the step, for the share of a window by which too few were accepted


def stable_curvature(angle: float) -> float:
    """Curvature, in units of the normal density's, up to which turns by an angle between kicks stay bounded."""
    return 1.0 + 2.0 / (angle * math.tan(0.5 * angle))


class HMC(OnSurrogate):
    r"""Hamiltonian Monte Carlo by the gradients of all rows: exact, and dependable where no expansion holds.

    The kernels that read few rows rest on an expansion of the likelihood at its mode. Where rows are few for the number
    of parameters, or many columns are rare, the posterior is far from such an expansion, and these kernels refuse most
    moves or stand still in the tails. Trajectories that follow the gradient of the posterior do not. The expansion
    then only says in which units they move.

    Parameters
    ----------
    model : GLM, Softmax or other Model
        Log-likelihood terms, with derivatives, and a prior. A `GLM` has compiled gradients, and its chains run side by
        side in threads; a `Softmax` has those of NumPy, and the gradients of other models are the first part of their
        expansions, at the price of one.
    target_accept : float, default 0.9
        Share of trajectories accepted that tuning aims at, in (0, 1). A higher one makes steps smaller.
    psi_hat : Trace, Compressed or array_like of shape (n_seen,), optional
        Where to expand the likelihood, as in `SurrogateMetropolis`. By default `compress` finds it. A posterior without
        a mode that a normal density follows needs it.
    progress : bool, default False
        Say on standard error what the set-up is at.

    Raises
    ------
    ValueError
        If an argument is out of range, no mode is found to expand at, the model has no derivatives, its rows see a map
        of its parameters, or its prior has a log density without a gradient. While chains run, if the log-likelihood
        is nan or +inf, or its gradient is not finite.

    See Also
    --------
    SurrogateMetropolis : trajectories that read no row, for likelihoods that an expansion follows.

    Notes
    -----
    With z the parameters in units of the inverse curvature of prior times likelihood at the mode, and a velocity r of
    independent standard normals, the energy is :math:`(|z|^2 + |r|^2) / 2` plus what the negative log posterior has
    beyond :math:`|z|^2 / 2`. The first part alone would turn (z, r) on circles, which is done exactly; the gradient of
    the second one changes r before and after each turn [1]_. A trajectory is accepted by the change of the energy, so
    that the posterior is invariant [2]_. With the leapfrog method in its place, which splits off the velocities alone,
    twice as many gradients were needed on a posterior of 100 parameters and 4,000 rows. The angle of a trajectory is
    drawn anew each time, between 1.26 and 2.34: a quarter of a turn, after which draws of a normal density are
    independent, is 1.57, and beyond it means are better. The steps are as few as are no longer than a largest angle,
    which tuning finds for each chain.

    Tuning changes that angle every 50 steps, by less and less (Robbins and Monro), and nothing else. So the draws that
    are kept come from one fixed transition. ``Trace.kernel["step"]`` is the smallest angle of all chains. A trace
    counts divergent trajectories, those that met an energy more than 1000 above that at their start or a point where
    the posterior is 0, in ``Trace.diverging`` and in "sample_stats" of ArviZ, and warns of any among the draws that are
    kept. It also warns where 1 % of the draws or more lie in parts so narrow that steps of that angle are not stable
    there, as with scales of few groups: up to that share nothing is said, and tails may be explored slowly.

    With hyperparameters, coordinates and their units are settled on prior times expansion as by
    ``SurrogateMetropolis(inner="hmc")``. As there, each trajectory comes with a step of a scale together with its
    effects, which takes two passes more, and with moves of local scales.

    A gradient takes O(N p) time for N rows of p columns, and a step two to four gradients as a rule: 4,000 rows
    of 100 columns take .2 ms. `Steps.rows` counts the rows of all gradients. Where an expansion holds, kernels that
    read few rows are far cheaper.

    References
    ----------
    .. [1] Shahbaba, Lan, Johnson, Neal, "Split Hamiltonian Monte Carlo", Statistics and Computing 24, 2014.
    .. [2] Neal, "MCMC using Hamiltonian dynamics", Handbook of Markov Chain Monte Carlo, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 20))
    >>> y = rng.random(200) < 1 / (1 + np.exp(-X[:, 0]))
    >>> trace = mcmc.sample(mcmc.HMC(mcmc.GLM(X, y, prior_sd=2.0)), n_draws=500, n_chains=2, rng=1)
    >>> bool(trace.accepted.mean() > 0.8), bool(trace.ess().min() > 300)
    (True, True)
    """

    inner, decision = "hmc", "none"
    size = 1.0
    controlled = False
    refusal_advice = "give mcmc.sample a larger n_tune, or the kernel a higher target_accept, so that steps are smaller"
    divergence_advice = ("Give the kernel a higher target_accept, such as .99, and mcmc.sample a larger n_tune; write "
                         "a parameter with an edge on a scale without one, as the logarithm of what must be positive; "
                         "or take mcmc.SurrogateMetropolis(model), whose scales have moves of their own")
    set_up_seconds = math.nan
    _at_mode = True  # whether the expansion is at the mode, from which chains are not expected to stay far away
    _engine_class = RowChain
    _computed = ("set_up_seconds",)  # attributes that do not change the draws

    def __init__(
        self,
        model: Model,
        *,
        target_accept: float = 0.9,
        psi_hat: ArrayLike | Compressed | Result | None = None,
        progress: bool = False,
    ) -> None:
        self.target_accept = _checks.real(target_accept, "target_accept")
        if not 0.0 < self.target_accept < 1.0:
            raise ValueError(f"target_accept is {target_accept}; a share of the trajectories in (0, 1) is needed")
        if not isinstance(model, Model):
            raise TypeError(f"model is {_checks.shown(model)}; a GLM or other mcmc.Model with derivatives is needed"
                            f"{_checks.of_pymc(model)}")
        self.model = model._surrogate_form()
        if self.model.own_surrogate is not None:
            raise ValueError("the rows see a map of the model's parameters, of which HMC has no gradients: take "
                             "SurrogateMetropolis, or NUTS on all rows")
        began = time.perf_counter()
        with phase("setting up HMC", progress), self.model._keeping():
            self._set_up(psi_hat)
        self.set_up_seconds = time.perf_counter() - began

    @one_blas_thread()
    def _set_up(self, psi_hat: ArrayLike | Compressed | Result | None) -> None:
        stage("expanding the likelihood")
        self._at_mode = psi_hat is None
        try:
            self.compressed = self._compress(psi_hat)
        except NoModeError as error:
            if psi_hat is None and not isinstance(error, PrecisionError):
                error.add_note("HMC needs no mode: with psi_hat, a point near the middle of the posterior, it takes "
                               "its units from the curvature there")
            raise
        self._engines = []
        self._metric = self.compressed.metric()
        self._near = math.sqrt(self.compressed.n_seen) + 6.0
        stage("finding where prior times expansion is")
        self._trajectories, self._normal_center = self._settled()
        hat, prior = np.array(self.compressed.psi_hat), self.compressed.prior
        root = self.compressed.covariance_root() if prior.n_hyper == 0 else np.empty((0, 0))
        self.reference = Reference(hat, hat, root, None, math.inf)
        start = self._trajectories.start
        if self.model.possible(start):  # what has no gradient is refused before chains begin
            self._inner().draws(start, 1, np.random.default_rng(PILOT_SEED))

    def _settled(self) -> tuple[Trajectories, Array]:
        """Coordinates, units and steps of trajectories, and the middle of the normal density that they turn about."""
        own, prior = self.compressed, self.compressed.prior
        if prior.n_hyper == 0:
            own.factor()        # refuses flat directions
            prior, mode = prior.copy(), np.array(own.mode)
            root = 1.0 / np.sqrt(self._metric.diagonal())
            if prior.dim <= WIDEST:
                try:
                    root = np.linalg.cholesky(np.linalg.inv(self._metric.to_dense()))
                except np.linalg.LinAlgError:
                    raise NoModeError(FLAT) from None
            step = min(STEP * (OF_DIM / prior.dim) ** 0.25, MOST)
            return Trajectories(prior, step, LENGTH, root, mode), mode
        found = trajectories_of(own.quadratic, prior, effort=self.model._effort, most=self.model._most_gradients)
        draws = found.inner(own.quadratic).draws(found.start, MIDDLE, np.random.default_rng(PILOT_SEED))
        middle = np.mean([found.prior.free_of(draw) for draw in draws], axis=0)
        return replace(found, step=min(found.step, MOST), length=LENGTH), middle

    def describe(self) -> dict[str, Any]:
        """What a trace remembers of the kernel; there `step` is the smallest that was tuned."""
        return {"kernel": type(self).__name__, "target_accept": self.target_accept, "step": self._trajectories.step}

    def _tuned(self, states: Iterable[ChainState]) -> dict[str, Any]:
        return {"step": min(self._step(state.tuning) for state in states)}

    def _draw(self, rng: np.random.Generator) -> Array:
        """A draw from the normal density at the mode, or nearly one from the surrogate."""
        own, settled = self.compressed, self._trajectories
        if own.prior.n_hyper:
            return np.asarray(settled.inner(own.quadratic).draws(settled.start, FIRST_TRAJECTORIES, rng)[-1])
        z = rng.standard_normal(self.dim)
        return np.asarray(self._normal_center + (settled.root * z if settled.root.ndim == 1 else settled.root @ z))

    def _beyond(self, draws: Array, about: Mapping[str, Any] | None = None) -> str:
        """What draws of shape (n, dim) may have missed where the posterior is narrow, in words, or an empty string."""
        step = float((about or {}).get("step", self._trajectories.step))
        inner, prior, n = self._inner(), self._trajectories.prior, self.compressed.n_seen

        def gradient(xi: Array) -> Array:
            theta = np.asarray(prior.from_free(xi), dtype=np.float64)
            slope = np.array(prior.value_and_gradient(theta)[1])
            slope[:n] += inner.rows.evaluate(theta[:n])[1] + inner.surrogate.evaluate(theta[:n])[1]
            return np.asarray(prior.pulled_back(xi, slope)[0])

        some = self._unconstrained(draws[:: max(PER_POINT, len(draws) // TRIED)])
        free = np.array([prior.free_of(theta) for theta in some])
        share = unstable_share(gradient, self._trajectories, free, stable_curvature(step))
        if share < UNSTABLE or share * len(free) < FEWEST - 0.5:
            return ""
        other = ("mcmc.SurrogateMetropolis(model), where effects of groups have moves of their own, or a higher "
                 "target_accept") if getattr(self.model, "factors", ()) else "a higher target_accept"
        return (f"at {share:.1%} of the draws the posterior is too narrow for the step of trajectories. Chains may "
                f"stop short of parts narrower still without R-hat showing it, and stand still there: take {other}")

    # Engines.

    def _slopes(self) -> Slopes:
        return self.model._slopes()

    def _inner(self) -> RowInner:
        own, settled, arrow = self.compressed, self._trajectories, self.compressed.curvature
        none = [0.0 * np.asarray(part) for part in (arrow.dense, arrow.border, arrow.blocks)]
        zero = Arrow(none[0], *((*none[1:], arrow.start) if arrow.n_blocks else ()))
        value, slope, whole = with_part(own._part, (0.0, np.zeros(own.n_seen), zero), own.psi_hat)
        return RowInner(self._slopes(), Quadratic(own.psi_hat, value, slope, whole), settled.prior, self._normal_center,
                        settled.step, settled.length, settled.root)

    def _step(self, tuning: Tuning) -> float:
        return min(max(self._trajectories.step * tuning.size, LEAST), MOST)

    def _take(self, tuning: Tuning, rng: np.random.Generator | None = None, tune: bool = False) -> Chain:
        try:
            chain = self._engines.pop()
        except IndexError:
            source, theta = self.model.engine(None)
            chain = self._engine_class(source, theta, None, None, RowMove(self._inner(), not self.model._positive),
                                       surrogate=True, n_hyper=self.dim - self.compressed.n_seen)
        move: Any = chain.move
        move.inner.use(self._step(tuning), self._trajectories.length)
        return chain

    # Tuning.

    def _adapted(self, state: ChainState, steps: Steps) -> ChainState:
        tuning = state.tuning
        n, accepted = tuning.n_steps + len(steps), tuning.n_accepted + int(steps.accepted.sum())
        return replace(state, tuning=self._resized(replace(tuning, n_steps=n, n_accepted=accepted)))

    def _resized(self, tuning: Tuning) -> Tuning:
        if tuning.n_steps % WINDOW:
            return tuning
        gain = GAIN / (tuning.n_steps / WINDOW) ** 0.6
        log_step = gain * (tuning.n_accepted / WINDOW - self.target_accept)
        size = self._step(replace(tuning, size=tuning.size * math.exp(log_step))) / self._trajectories.step
        return replace(tuning, size=size, n_accepted=0)
