"""Which kernel a model gets that came without one: the cheapest per independent draw, by a pilot."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base._progress import stage
from fastrace._base._words import counted
from fastrace.mcmc import _pareto
from fastrace.mcmc._convergence import each_effective_size
from fastrace.mcmc._fit import residual_k, surrogate_k
from fastrace.mcmc.kernels._rows import PILOT_SEED, NoStartError, RowKernel, usual_rows
from fastrace.mcmc.kernels.hmc import HMC
from fastrace.mcmc.kernels.metropolis import Metropolis
from fastrace.mcmc.kernels.poisson_metropolis import PoissonMinibatchMetropolis
from fastrace.mcmc.kernels.racing_metropolis import RacingMetropolis
from fastrace.mcmc.kernels.surrogate_metropolis import SurrogateMetropolis
from fastrace.mcmc.models._modes import ImproperError, PrecisionError
from fastrace.mcmc.models.base import Reference
from fastrace.mcmc.models.model import Model
from fastrace.mcmc.models.softmax import Softmax

__all__ = ["kernel_for"]

Array = NDArray[np.float64]

TUNING, STEPS = 100, 60  # of the pilot
CONFIRMED = 900  # steps of what seems cheapest: 60 may miss that chains get stuck, or that one in fifty reads all rows
MOST_WORK = 3e6  # that these may take
FEW, BEFORE = 0.1, 6.0  # of an independent draw a step, below which `sample` warns of 1000 draws; see `_cheapest`
PER_STEP = 12.0  # work of a step beside its rows, in rows that a minibatch or race reads, about .09 us each
BY_SURROGATE = {"normal": 2.0, "hmc": 3.0}  # times as much: of steps on a surrogate
IN_PYTHON = 2.5  # times as much: a log prior that each step calls
IN_PASSES = 1.0 / 5.0  # of that work for a row where each step reads all in their order, without a draw or a bound
GRADIENT = 1.5 * IN_PASSES  # the same where each step takes gradients of all rows
GRADIENT_BY_NUMPY = 0.85  # the same for each class of a `Softmax`, whose gradients are not compiled
USUAL_GRADIENTS, AT_BEST = 3.0, 0.5  # of a step of these, and of an independent draw, that make a pilot worth while
LITTLE = 600.0  # rows that an exact kernel may read a step, up to which no race is tried beside it
SHARED, MANY = 1.0 / 16.0, 100  # of that work for a row where steps share a pass; parameters from which they may
MOST_POINTS, WALKS = 4096, 0.001  # of a pass; share of walks, each of which reads rows for itself alone
BATCHED_FROM, BATCH = 64, 256  # parameters from which on a minibatch may decide a batch of steps; and their number
MOVES_WELL = 0.25  # of an independent draw a step of a batch, from which on nothing else is tried for `MANY` parameters
CHEAP = 0.5 / PER_STEP  # independent draws for the work of a row: no batch is tried beside a kernel that makes so many
NOWHERE = "no start was found where the log-posterior is finite, as where the mode lies beyond an edge of the prior"


def kernel_for(model: Model) -> tuple[RowKernel, str]:
    """The kernel, and why it was chosen, in words."""
    if not model.has_derivatives:
        return RacingMetropolis(model), "the model has no derivatives"
    form = model._surrogate_form()
    if form.n_hyper:
        read = "" if form is model else f"the model is {form!r} with priors, as from_pymc(...).as_glm() gives it; "
        return _unless_bad(SurrogateMetropolis(form), read + "the prior has hyperparameters, which no row sees")
    if form.joint_prior is not None:
        try:
            surrogate = SurrogateMetropolis(form)
            if surrogate._stride:
                why = "the rows say little of the learned scale, of which other kernels make no plain steps"
                return _unless_bad(surrogate, why)
        except ImproperError:
            raise
        except ValueError:      # no mode, or a density without the gradient that a surrogate follows
            pass
    mapped = form.own_surrogate is not None
    if mapped and getattr(form, "is_hierarchy", False):
        return SurrogateMetropolis(form), "parameters stand behind what the rows see, as in a hierarchy"
    model = model._row_form()
    makers: list[Callable[..., RowKernel]] = [SurrogateMetropolis, PoissonMinibatchMetropolis, RacingMetropolis]
    tried: list[_Pilot] = []
    aside: list[_Pilot] = []  # of proposals whose tails are too short
    missed: list[tuple[RowKernel, str]] = []
    walks = False  # whether few rows refuse most moves of all parameters, so that they have walks of their own
    exact = math.inf  # rows a step of the kernel without errors that reads fewest
    reference: Reference | None = None  # of minibatches and of races
    if model.dim >= MANY and not mapped and not getattr(model, "factors", ()):
        together = _shared(model, None)
        if together is not None:
            tried, reference = [together], together.kernel.reference
            together.confirm(0.0)
            rows = usual_rows(together.kernel._innermost, model.dim)
            if together.share >= MOVES_WELL and rows > LITTLE and not together.stuck_in_tails:
                return together.kernel, together.words + f"; one step alone would read about {rows:.2g} rows"
    for make in makers[mapped:]:  # moves by gradients of a user's graph are dear where a normal density will do
        if make is RacingMetropolis and exact <= LITTLE:
            continue
        stage(f"setting up {make.__name__}")
        try:
            if make is not SurrogateMetropolis and reference is None:
                reference = model.reference()
            kernel = make(model, **({} if make is SurrogateMetropolis else {"control_variate": reference}))
            walks = isinstance(kernel, SurrogateMetropolis) and kernel.walks_along_rows
            if walks and bool(getattr(model, "factors", ())):
                return kernel, "few rows refuse most moves of all parameters, so that they have walks of their own"
            if getattr(kernel, "decision_advice", ""):  # races that would err more often than they promise
                missed.append((kernel, f"{type(kernel).__name__}, whose races would miss the few rows that matter"))
                continue
            pilot = _Pilot(kernel)
            if getattr(kernel, "decision", "") != "race":
                exact = min(exact, pilot.rows)
        except (ImproperError, PrecisionError):
            raise
        except NoStartError:    # beyond an edge of the prior proposals about the mode are seldom accepted
            return _walks(model), NOWHERE
        except ValueError:  # no bounds, or no expansion that it can use
            if make is not SurrogateMetropolis and reference is None:
                break  # nor will races have one
            continue
        tried.append(pilot)
        if walks:  # nothing that rests on the expansion moves better
            break
    if BATCHED_FROM <= model.dim < MANY and all(pilot.worth < CHEAP for pilot in tried):
        together = _shared(model, reference)
        tried += [] if together is None else [together]
    cheapest = 1.0 / (PER_STEP + SHARED * model.n_rows)  # of shared passes if each step were an independent draw
    if model.dim >= MANY and all(pilot.worth < cheapest for pilot in tried):
        stage("setting up Metropolis in batches")
        with contextlib.suppress(ValueError):  # no mode, or terms that are not evaluated at many points at once
            batches = Metropolis(model, proposal="independent", batch=min(2 * model.dim, MOST_POINTS),
                                 walk_share=WALKS, frames=True)
            tried.append(_Pilot(batches))
    while tried and _cheapest(tried).stuck_in_tails:
        aside.append(_cheapest(tried))
        tried.remove(aside[-1])
    if not mapped and _may_gain(model, tried, walks or bool(aside)):
        stage("setting up HMC")
        with contextlib.suppress(ValueError):  # no expansion, or a prior without a gradient
            tried.append(_Pilot(HMC(model)))
    tried = [pilot for pilot in tried if pilot.share > 0.0] or [*tried, *aside]
    if not tried and missed:
        return missed[0]
    if not tried:
        why = "the model has no mode to expand at, and races without one miss the rows that matter"
        return _walks(model), why
    best = _cheapest(tried)
    rest = [pilot.words for pilot in [*tried, *aside] if pilot is not best]
    others = "; ".join([*rest, *(words for _, words in missed)])
    return best.kernel, best.words + (f"; {others}" if others else "")


def _walks(model: Model) -> RowKernel:
    """Random walks that read all rows, which rest on no expansion."""
    return Metropolis(model, control_variate=None)


def _unless_bad(kernel: SurrogateMetropolis, why: str) -> tuple[RowKernel, str]:
    """The kernel, or trajectories by the gradients of all rows where it moves badly.

    Without groups they are tried where it reads all rows. With groups it moves badly by few rows too, where the
    expansion misses a part of the posterior, which Pareto k of its draws shows. Effects that are swept group by group
    get where no trajectory does.
    """
    model = kernel.model
    grouped = bool(getattr(model, "factors", ()))
    tried = kernel.decision != "none" if grouped else kernel.decision == "exact"
    if not tried or not kernel.rests_on_surrogate or model.own_surrogate is not None:
        return kernel, why
    try:
        pilot = _Pilot(kernel)
    except NoStartError:    # a user may know one
        return kernel, why
    if grouped and (pilot.share >= FEW or surrogate_k(kernel) < _pareto.MOST):
        return kernel, why
    pilot.confirm(0.0)  # 60 steps flatter chains that stand still for long
    if _may_gain(model, [pilot], False):
        stage("setting up HMC")
        with contextlib.suppress(ValueError):  # a prior without a gradient, or no middle of the posterior
            other = _Pilot(HMC(model))
            if _cheapest([pilot, other]) is other:
                return other.kernel, f"{other.words}; {pilot.words}"
    return kernel, why


def _may_gain(model: Model, tried: list[_Pilot], bad: bool) -> bool:
    """Whether a pilot of trajectories by the gradients of all rows is worth while: where all else is bad, and dear."""
    if not tried:
        return bad
    best = max(tried, key=lambda pilot: pilot.worth)
    worth = AT_BEST / (PER_STEP * BY_SURROGATE["hmc"] + USUAL_GRADIENTS * _gradient(model) * model.n_rows)
    return (bad or best.share < FEW) and worth > best.worth


def _gradient(model: Model) -> float:
    """What a row takes of the gradient of all rows, in rows that a minibatch reads."""
    return GRADIENT_BY_NUMPY * model.n_classes if isinstance(model, Softmax) else GRADIENT


def _shared(model: Model, reference: Reference | None) -> _Pilot | None:
    """A pilot of steps that share minibatches; None without a mode, or where bounds for batches are none or fail."""
    stage("setting up PoissonMinibatchMetropolis in batches")
    with contextlib.suppress(ValueError):
        kernel = PoissonMinibatchMetropolis(
            model, proposal="independent", batch=BATCH, walk_share=WALKS,
            control_variate="auto" if reference is None else reference)
        pilot = _Pilot(kernel)
        return None if kernel._beyond(pilot.draws) else pilot
    return None


class _Pilot:
    """A short run of a kernel: how much of an independent draw a step is, and the rows that it reads."""

    def __init__(self, kernel: RowKernel) -> None:
        self.kernel, self.batched = kernel, getattr(kernel, "batch", 1) > 1
        self.confirmed = isinstance(kernel, Metropolis) and self.batched  # whose passes are dear, and much alike
        self._rng, self._read, self._n = np.random.default_rng(PILOT_SEED), 0.0, 0
        stage("a short pilot of it")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._state, _ = kernel.run(self._rng, kernel.init(None, self._rng), TUNING, tune=True)
        self._draws = [kernel._recorded(self._state.position[None])]
        self._go_on(STEPS)
        draws = self.draws
        self.share = min(_share(draws), _share(np.square(draws - draws.mean(axis=0))))

    @property
    def draws(self) -> Array:
        return np.concatenate(self._draws)

    def _go_on(self, n: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._state, steps = self.kernel.run(self._rng, self._state, n)
        self._draws.append(steps.draws)
        self._read, self._n = self._read + float(steps.rows.sum()), self._n + n

    def confirm(self, ahead: float) -> None:
        """Make many steps, or as many as show that the kernel is worth less than one that is worth `ahead`.

        Few steps flatter a kernel whose chains stand still for long: jumps are compared with what the same steps saw.
        """
        most = min(MOST_WORK, CONFIRMED * self.share / ahead if ahead else math.inf)
        while self._n < CONFIRMED and self._n * self.work < most:
            self._go_on(STEPS)
        draws = self.draws
        sizes = [each_effective_size(x[None]) for x in (draws, np.square(draws - draws.mean(axis=0)))]
        still = np.ptp(draws, axis=0) == 0.0  # of which all are called effective
        self.share = min(self.share, *(_slowest(np.where(still, 0.0, size / len(draws))) for size in sizes))
        self.confirmed = True

    @property
    def stuck_in_tails(self) -> bool:
        """Whether proposals do not depend on the state, and have too short tails: chains get stuck beyond them."""
        kernel: Any = self.kernel
        if not getattr(kernel, "proposes_reference", False):
            return False
        if kernel.pareto_k is None:
            stage("looking at the tails of proposals")
            kernel.pareto_k = residual_k(kernel.model, kernel.reference)
        return not kernel.pareto_k < _pareto.MOST

    @property
    def rows(self) -> float:
        """Rows that a step reads."""
        return self._read / self._n

    @property
    def work(self) -> float:
        """What a step costs, in rows that a minibatch reads."""
        kernel: Any = self.kernel
        exact = getattr(kernel, "decision", "") == "exact"
        per_row = SHARED if self.batched else IN_PASSES if exact else 1.0
        if isinstance(kernel, HMC):
            return PER_STEP * BY_SURROGATE["hmc"] + self.rows * _gradient(kernel.model)
        if isinstance(kernel, SurrogateMetropolis):
            return PER_STEP * BY_SURROGATE[kernel.inner] + self.rows * per_row
        return PER_STEP * (1.0 + IN_PYTHON * kernel.calls_python) + self.rows * per_row

    @property
    def worth(self) -> float:
        """Independent draws for the work of a row, about."""
        return self.share / self.work

    @property
    def words(self) -> str:
        """The same in words."""
        name = type(self.kernel).__name__ + (" in batches" if self.batched else "")
        steps = f"{1.0 / self.share:.2g}" if self.share > 0.0 else "too many"
        rows = f"{self.rows:.1f} rows" if self.rows < 10.0 else counted(round(self.rows), "row")
        out = f"{name} reads {rows} a step and needs {steps} steps for an independent draw"
        k = getattr(self.kernel, "pareto_k", None)
        return out if k is None or k < _pareto.MOST else (
            f"{out}, but Pareto k of its proposals' weights is {k:.2g}: chains would get stuck in the tails")


def _cheapest(tried: list[_Pilot]) -> _Pilot:
    """The pilot that is worth most. What seems so is looked at more closely, as a short pilot rather flatters.

    Where its steps are less than `FEW` of an independent draw, one that needs up to `BEFORE` times the work goes before
    it if its steps are more: of chains that get stuck now and then, pilots of 900 steps were seen to be wrong by 7.
    """
    while True:
        best, margin = max(tried, key=lambda pilot: pilot.worth), 1.0
        if best.share < FEW and not best.batched:
            margin = 1.0 / BEFORE
            best = max((pilot for pilot in tried if pilot.worth >= margin * best.worth), key=lambda pilot: pilot.share)
        if best.confirmed or len(tried) == 1:
            return best
        stage(f"a longer pilot of {type(best.kernel).__name__}")
        best.confirm(margin * max(pilot.worth for pilot in tried if pilot is not best))


def _share(values: Array) -> float:
    """Half the mean squared step over the variance, 1 for independent values: mean over the slowest tenth of all.

    A coordinate that stood still counts as 0.
    """
    spread = values.var(axis=0)
    moved = np.square(np.diff(values, axis=0)).mean(axis=0)
    shares = moved / (2.0 * np.maximum(spread, np.finfo(float).tiny))
    return _slowest(shares)


def _slowest(shares: Array) -> float:
    """Mean over the smallest tenth of all."""
    return float(np.sort(np.clip(shares, 0.0, 1.0))[: max(1, len(shares) // 10)].mean())
