"""Moves for `emcee.EnsembleSampler`; importing this module needs emcee."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from emcee.moves import Move
except ImportError as error:
    raise ImportError('fastrace.mcmc.doors.emcee needs emcee: python -m pip install emcee') from error

from fastrace._base import _checks
from fastrace.mcmc.kernels.racing_metropolis import RacingMetropolis
from fastrace.mcmc.models.model import Model
from fastrace.mcmc.protocol import Steps

__all__ = ["KernelMove", "RacingStretchMove"]


class KernelMove(Move):  # type: ignore[misc]
    """Steps of a kernel of `fastrace.mcmc` for each walker, as a move of emcee.

    Walkers hold the logarithms of learned scales, ``kernel.model.unconstrain`` of a draw, and not the scales.

    Parameters
    ----------
    kernel : Kernel
        Such as `RacingMetropolis`; each walker is a chain of it.
    n_steps : int, default 1
        Steps in one move.
    log_prob : bool, default False
        Compute the log-probability of the walkers after the move by the sampler's function, which reads all rows.
        By default it is NaN. The move must then be the sampler's only one. To continue a run, start from
        ``emcee.State(last.coords, random_state=last.random_state)``: emcee refuses to start from NaN.

    Attributes
    ----------
    steps : list of Steps
        Of the last move, one per walker, with the rows read.

    Examples
    --------
    >>> import emcee
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> from fastrace.mcmc.doors.emcee import KernelMove
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(20_000, 2))
    >>> model = mcmc.GLM(x, x @ [1.0, -0.5] + rng.normal(size=20_000), family="student-t", scale=1.0)
    >>> move = KernelMove(mcmc.RacingMetropolis(model))
    >>> sampler = emcee.EnsembleSampler(4, 2, lambda theta: 0.0, moves=move)
    >>> _ = sampler.run_mcmc(move.start(4, rng), 300)
    >>> sampler.get_chain(flat=True).mean(axis=0).round(1)
    array([ 1. , -0.5])
    """

    def __init__(self, kernel: Any, n_steps: int = 1, *, log_prob: bool = False) -> None:
        self.kernel = kernel
        self.n_steps = _checks.integer(n_steps, "n_steps", 1, "a move makes steps")
        self.log_prob = _checks.flag(log_prob, "log_prob")
        self.steps: list[Steps] = []
        self._states: list[Any] = []

    def start(self, n_walkers: int, rng: _checks.RngLike = None) -> NDArray[np.float64]:
        """Walkers at starting points of the kernel's own, shape (n_walkers, dim)."""
        generator = _checks.generator(rng)
        return np.stack([self.kernel.init(None, generator).position for _ in range(n_walkers)])

    def propose(self, model: Any, state: Any) -> tuple[Any, NDArray[np.bool_]]:
        """Move every walker; emcee calls this."""
        self._states = [self._state(i, x) for i, x in enumerate(state.coords)]
        self.steps = self._move(np.random.Generator(model.random._bit_generator))  # the stream that backends keep
        state.coords = np.stack([moved.position for moved in self._states])
        if self.log_prob:
            state.log_prob, state.blobs = model.compute_log_prob_fn(state.coords)
        else:
            state.log_prob = np.full(len(state.coords), np.nan)
        return state, np.array([steps.accepted.any() for steps in self.steps])

    def _state(self, i: int, x: NDArray[np.float64]) -> Any:
        """The walker's state, with what its kernel keeps of it, unless something else has moved it."""
        if i < len(self._states) and np.array_equal(self._states[i].position, x):
            return self._states[i]
        state_at = getattr(self.kernel, "_state_at", None)  # walkers are in the coordinates in which chains move
        return self.kernel.init(x) if state_at is None else state_at(x)

    def _move(self, rng: np.random.Generator) -> list[Steps]:
        """Move all walkers."""
        return [self._run(i, rng) for i in range(len(self._states))]

    def _run(self, i: int, rng: np.random.Generator) -> Steps:
        self._states[i], steps = self.kernel.run(rng, self._states[i], self.n_steps)
        return steps


class RacingStretchMove(KernelMove):
    r"""The affine-invariant stretch move [1]_ with raced accept decisions.

    Parameters
    ----------
    model : Model
        Such as `GLM` or `FunctionModel`; it has the prior too, and the sampler's own function is not asked.
    a : float, default 2.0
        Scale of the stretch, as in `emcee.moves.StretchMove`.
    log_prob : bool, default False
        As in `KernelMove`.
    **options
        For `RacingMetropolis`, such as ``delta=0.01``.

    Notes
    -----
    Each decision differs from emcee's own with probability at most `delta`. Proposals do not need derivatives, but
    without a control variate, and so without derivatives, most races read most rows.

    References
    ----------
    .. [1] Goodman, Weare, "Ensemble samplers with affine invariance", Comm. Appl. Math. Comp. Sci. 5(1), 2010.

    Examples
    --------
    >>> import emcee
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> from fastrace.mcmc.doors.emcee import RacingStretchMove
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(20_000, 2))
    >>> model = mcmc.GLM(x, x @ [1.0, -0.5] + rng.normal(size=20_000), family="student-t", scale=1.0)
    >>> move = RacingStretchMove(model)
    >>> sampler = emcee.EnsembleSampler(8, 2, lambda theta: 0.0, moves=move)
    >>> _ = sampler.run_mcmc(move.start(8, rng), 300)
    >>> sampler.get_chain(flat=True).mean(axis=0).round(1)
    array([ 1. , -0.5])
    """

    def __init__(self, model: Model, a: float = 2.0, *, log_prob: bool = False, **options: Any) -> None:
        self.a = _checks.real(a, "a")
        if not 1.0 < self.a < np.inf:
            raise ValueError(f"a is {a}; a finite number above 1 is needed")
        self._others = np.empty((0, model.dim))
        super().__init__(RacingMetropolis(model, proposal=self._stretched, **options), log_prob=log_prob)

    def _stretched(self, rng: np.random.Generator, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        z = ((self.a - 1.0) * rng.random() + 1.0) ** 2 / self.a
        other = self._others[rng.integers(len(self._others))]
        return other + z * (x - other), (len(x) - 1.0) * float(np.log(z))

    def _move(self, rng: np.random.Generator) -> list[Steps]:
        n, dim = len(self._states), self.kernel.model.dim
        if n < 2 * dim or n < 4:
            raise ValueError(f"{n} walkers came for {dim} parameters; at least {max(4, 2 * dim)} are needed, or the "
                             f"ensemble does not span the space")
        steps: dict[int, Steps] = {}
        order = rng.permutation(n)
        for half, rest in ((order[: n // 2], order[n // 2 :]), (order[n // 2 :], order[: n // 2])):
            self._others = np.stack([self._states[i].position for i in rest])
            steps |= {i: self._run(i, rng) for i in half}
        return [steps[i] for i in range(n)]
