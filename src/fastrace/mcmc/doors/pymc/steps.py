"""Steps for `pymc.sample`; importing this module needs PyMC."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import pymc
    from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
    from pymc.step_methods.state import dataclass_state
    from pymc.util import get_random_generator
except ImportError as error:
    raise ImportError('fastrace.mcmc.doors.pymc needs PyMC: python -m pip install "pymc>=5.26"') from error

from fastrace._base import _checks
from fastrace.mcmc.doors.pymc._expansions import JointReference
from fastrace.mcmc.doors.pymc.models import PyMCModel
from fastrace.mcmc.kernels.gibbs import Categorical, GibbsState
from fastrace.mcmc.kernels.racing_gibbs import RacingGibbs
from fastrace.mcmc.kernels.racing_metropolis import RacingMetropolis

__all__ = ["CategoricalStep", "MetropolisStep"]


@dataclass_state
class RowStepState(StepMethodState):  # type: ignore[misc]
    """What a step needs to go on exactly."""

    tune: bool
    chain: Any


class _RowStep(BlockedStep):  # type: ignore[misc]
    """What the steps share: points, statistics, progress."""

    default_blocked = True
    stats_dtypes_shapes: dict[str, tuple[type, list[int]]] = {
        "n_rows": (np.int64, []),
        "n_looks": (np.int64, []),
        "accepted": (np.float64, []),
        "full_pass": (bool, []),
        "undecided": (bool, []),
    }
    _state_class = RowStepState

    kernel: Any
    rows: PyMCModel
    chain: Any

    def _setup(
        self, vars: Any, model: Any, observed: Any, rows: Any, n_steps: int, rng: Any, blocked: bool,
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        listed = list(vars) if isinstance(vars, list | tuple) else [vars]
        self.rows = PyMCModel(pymc.modelcontext(model), observed, listed, rows=rows, compile_kwargs=compile_kwargs)
        self.n_steps = _checks.integer(n_steps, "n_steps", 1, "a draw takes steps")
        self.vars = self.rows.values
        self.blocked = blocked
        self.rng = get_random_generator(rng)
        self.tune = True
        self.chain = None

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """A new chain: nothing of the last one is kept."""
        self.set_rng(rng)
        self.tune = tune > 0

    def set_rng(self, rng: Any) -> None:
        """The same, as PyMC 5 asks for it."""
        self.rng = get_random_generator(rng, copy=False)
        self.reset_tuning()

    def reset_tuning(self) -> None:
        """Begin anew."""
        self.tune = True
        self.chain = None

    def step(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """`n_steps` transitions of the kernel, with their statistics."""
        changed = self.rows.set_others(point)
        state = self._at(self.rows.pack(point), changed)
        self.chain, steps = self.kernel.run(self.rng, state, self.n_steps, tune=self.tune)
        statistics = {
            "n_rows": int(steps.rows.sum()), "n_looks": int(steps.looks.sum()),
            "accepted": float(steps.accepted.mean()), "full_pass": bool(steps.full_pass.any()),
            "undecided": bool(steps.undecided.any()),
        }
        return {**point, **self.rows.point(self._theta())}, [statistics]

    def _at(self, theta: NDArray[np.float64], changed: bool) -> Any:
        """The chain's state at these parameters; whether other variables have changed."""
        raise NotImplementedError

    def _theta(self) -> NDArray[np.float64]:
        raise NotImplementedError

    @staticmethod
    def competence(var: Any, has_grad: Any = None) -> Competence:
        """Never chosen unless asked for: a draw may differ from the exact one."""
        return Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[Any], dict[str, list[int]]]:
        from rich.progress import TextColumn
        from rich.table import Column

        column = TextColumn("{task.fields[n_rows]}", table_column=Column("Rows read", ratio=1))
        return [column], {"n_rows": [0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Any, ...]:
        return (lambda stats: {"n_rows": stats["n_rows"]},)


class MetropolisStep(_RowStep):
    """A kernel of `fastrace.mcmc` for continuous variables, as a step of `pymc.sample`.

    Parameters
    ----------
    vars : sequence of variables, optional
        Drawn together; by default all free variables of the model.
    kernel : class, default RacingMetropolis
        Or `RacingSlice`; `Metropolis` and `Slice`, which read all rows, are exact.
    n_steps : int, default 1
        Transitions for each draw. With a control variate draws are nearly independent, and one is best.
    observed, rows, compile_kwargs
        As in `from_pymc`.
    model, rng, initial_point, blocked
        As PyMC passes them.
    **options
        For the kernel, such as ``delta=0.01`` or ``control_variate=pymc.find_MAP()``, a point near the mode.

    Raises
    ------
    ValueError
        If the likelihood of the model is not one factor for each row, as for `from_pymc`.

    Notes
    -----
    Within total variation `delta` of the exact transition, as `RacingMetropolis`. Other steps may move other
    variables: the expansion that is the control variate is then made in all continuous variables, and proposals follow
    its conditional density. If the likelihood depends on discrete variables there is none, and most races read most
    rows. If only the prior does, proposals stay centred where the posterior was when the kernel was made: the
    transition leaves the right posterior, but chains move slowly after a discrete variable has moved it far.

    A chain that is tuned starts from a draw of the normal density that the expansion gives, not from PyMC's initial
    point: far out in a tail proposals that follow that density are seldom accepted. With ``tune=0`` it starts at that
    point.

    Statistics of each draw: ``n_rows`` and ``n_looks`` in all its steps, ``accepted``, the share of them, and
    ``full_pass`` and ``undecided``, whether any was.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from fastrace.mcmc.doors.pymc import MetropolisStep
    >>> rng = np.random.default_rng(0)
    >>> with pm.Model() as model:
    ...     mu, sigma = pm.Normal("mu", 0.0, 10.0), pm.HalfNormal("sigma", 5.0)
    ...     obs = pm.Normal("obs", mu, sigma, observed=rng.normal(1.0, 2.0, size=4000))
    ...     idata = pm.sample(draws=200, tune=100, chains=1, step=[MetropolisStep([mu, sigma])], random_seed=1,
    ...                       progressbar=False, quiet=True, compute_convergence_checks=False)
    >>> bool(idata["sample_stats"]["n_rows"].mean() < 1000)
    True
    """

    name = "racing_metropolis"

    def __init__(
        self, vars: Any = None, *, kernel: Any = RacingMetropolis, n_steps: int = 1, observed: Any = None,
        rows: Any = None, model: Any = None, rng: Any = None, initial_point: Any = None, blocked: bool = True,
        compile_kwargs: Mapping[str, Any] | None = None, **options: Any,
    ) -> None:
        vars = pymc.modelcontext(model).value_vars if vars is None else vars
        self._setup(vars, model, observed, rows, n_steps, rng, blocked, compile_kwargs)
        discrete = [v.name for v, dtype in zip(self.rows.values, self.rows.dtypes, strict=True) if dtype.kind != "f"]
        if discrete:
            raise ValueError(f"{', '.join(discrete)}: continuous variables are needed; CategoricalStep is for discrete "
                             f"ones")
        self.kernel = kernel(self.rows, **options)

    def _at(self, theta: NDArray[np.float64], changed: bool) -> Any:
        chain, reference = self.chain, self.kernel.reference
        started = chain is None
        if started:
            chain, changed = self.kernel.init(theta), True
        if not changed and np.array_equal(chain.position, theta):
            return chain
        tuning = chain.tuning
        if isinstance(reference, JointReference):
            tuning = replace(tuning, center=reference.center_at(self.rows.around))
        if started and self.tune and reference is not None:
            theta = tuning.center + tuning.factor @ self.rng.standard_normal(len(theta))
        whitened = np.linalg.solve(tuning.factor, theta - tuning.center)
        # Of what the chain knew of its place, only what its races left is true elsewhere.
        cache = (math.nan, *chain.cache[1:]) if isinstance(chain.cache, tuple) else None
        return replace(chain, position=theta, whitened=whitened, cache=cache, tuning=tuning)

    def _theta(self) -> NDArray[np.float64]:
        return np.asarray(self.chain.position, dtype=np.float64)


class CategoricalStep(_RowStep):
    """Racing Gibbs draws of discrete variables with few states, as a step of `pymc.sample`.

    Parameters
    ----------
    vars : sequence of variables
        Discrete variables; each entry of each is drawn in turn.
    states : sequence of int, optional
        Values that entries take; by default 0, 1, ... for Bernoulli and Categorical variables.
    delta : float, default 0.05
        Probability that one draw differs from the exact one, in (0, 1).
    kernel : class, default RacingGibbs
        `Gibbs` reads all rows and is exact.
    n_steps, observed, rows, model, rng, initial_point, blocked, compile_kwargs
        As in `MetropolisStep`.
    **options
        For the kernel.

    Notes
    -----
    PyMC's own steps for such variables compute the density of the whole model once per state. This one reads rows
    until one perturbed state has won; when four races in a row have read them all, it reads them in one pass, as an
    exact sampler does, and races again every sixteenth time.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from fastrace.mcmc.doors.pymc import CategoricalStep
    >>> rng = np.random.default_rng(0)
    >>> with pm.Model() as model:
    ...     z = pm.Categorical("z", p=np.full(3, 1 / 3))
    ...     obs = pm.Normal("obs", 0.5 * z, 1.0, observed=rng.normal(0.5, 1.0, size=3000))
    ...     idata = pm.sample(draws=100, tune=10, chains=1, step=[CategoricalStep([z])], random_seed=1,
    ...                       progressbar=False, quiet=True, compute_convergence_checks=False)
    >>> idata["posterior"]["z"].values.mean()
    np.float64(1.0)
    """

    name = "racing_gibbs"

    def __init__(
        self, vars: Any, *, states: Any = None, delta: float | None = None, kernel: Any = RacingGibbs,
        n_steps: int = 1, observed: Any = None, rows: Any = None, model: Any = None, rng: Any = None,
        initial_point: Any = None, blocked: bool = True, compile_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._setup(vars, model, observed, rows, n_steps, rng, blocked, compile_kwargs)
        if delta is not None:
            options["delta"] = _checks.probability(delta, "delta")
        given = None if states is None else np.unique(np.asarray(states, dtype=np.float64))
        self.states = [
            values
            for value, size in zip(self.rows.values, self.rows.sizes, strict=True)
            for values in [self._states(value) if given is None else given] * size
        ]
        variables = [
            Categorical(len(values), partial(self._factors, i), self.rows.n_rows, log_prior=partial(self._offset, i))
            for i, values in enumerate(self.states)
        ]
        self.kernel = kernel(variables, **options)

    def _states(self, value: Any) -> NDArray[np.float64]:
        variable = self.rows.pymc_model.values_to_rvs[value]
        kind = type(variable.owner.op).__name__
        if kind == "BernoulliRV":
            return np.arange(2.0)
        if kind == "CategoricalRV":
            p = variable.owner.op.dist_params(variable.owner)[0]
            return np.arange(float(p.shape[-1].eval()))
        if kind == "DiscreteUniformRV":
            lower, upper = (int(bound.eval()) for bound in variable.owner.op.dist_params(variable.owner))
            return np.arange(lower, upper + 1.0)
        raise ValueError(f"{variable.name} is {kind}, whose values are not known; name them with states=")

    def at_states(self, z: NDArray[np.intp]) -> NDArray[np.float64]:
        """Parameters at these states."""
        return np.array([values[s] for values, s in zip(self.states, z, strict=True)], dtype=np.float64)

    def _at(self, theta: NDArray[np.float64], changed: bool) -> Any:
        z = np.empty(len(theta), np.intp)
        for i, values in enumerate(self.states):
            where = np.flatnonzero(values == theta[i])
            if where.size != 1:
                raise ValueError(f"{(self.rows.names or ())[i]} is {theta[i]:g}, which is not among its states "
                                 f"{values.tolist()}")
            z[i] = where[0]
        return GibbsState(z, np.zeros(len(z), np.intp) if self.chain is None else self.chain.losses)

    def _theta(self) -> NDArray[np.float64]:
        return self.at_states(self.chain.position)

    def _factors(
        self, i: int, states: NDArray[np.intp], rows: NDArray[np.int64], z: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Terms of some rows at some states of one entry."""
        theta = self.at_states(z)
        out = np.empty((len(rows), len(states)))
        for j, s in enumerate(states):
            theta[i] = self.states[i][s]
            out[:, j] = self.rows.terms(theta.copy(), rows)
        return out

    def _offset(self, i: int, z: NDArray[np.intp]) -> NDArray[np.float64]:
        """Log-density of all but the terms at every state of one entry."""
        theta = self.at_states(z)
        out = np.empty(len(self.states[i]))
        for s, state in enumerate(self.states[i]):
            theta[i] = state
            out[s] = self.rows.rest(theta.copy())
        return out
