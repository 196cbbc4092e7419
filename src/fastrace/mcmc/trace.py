"""What chains leave behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.mcmc.protocol import STATISTICS, Steps


@dataclass(frozen=True, eq=False)
class Trace:
    """Draws of several chains, and what each step took.

    Attributes
    ----------
    chains : tuple of Steps
        One per chain; chains that were cut short may differ in length.
    kernel : dict
        What the kernel says of itself.
    states, rngs : tuple
        Where each chain stands: give the trace to `sample` as `init` and it goes on, draw for draw as if it had never
        stopped.
    seconds : float
        Wall time of sampling, without tuning.
    variable : str
        Name of what is drawn.
    """

    chains: tuple[Steps, ...]
    kernel: dict[str, Any]
    states: tuple[Any, ...] = field(repr=False)
    rngs: tuple[np.random.Generator, ...] = field(repr=False)
    seconds: float
    variable: str = "theta"

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return len(self.chains)

    @property
    def n_draws(self) -> int:
        """Draws that every chain has."""
        return min((len(chain) for chain in self.chains), default=0)

    def _stacked(self, name: str) -> NDArray[Any]:
        n = self.n_draws
        return np.stack([getattr(chain, name)[:n] for chain in self.chains])

    @property
    def draws(self) -> NDArray[Any]:
        """Shape (n_chains, n_draws, ...)."""
        return self._stacked("draws")

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows read in each step, shape (n_chains, n_draws); so for the other four statistics."""
        return self._stacked("rows")

    @property
    def looks(self) -> NDArray[np.int32]:
        """Looks taken at them."""
        return self._stacked("looks")

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """Whether the step was accepted."""
        return self._stacked("accepted")

    @property
    def full_pass(self) -> NDArray[np.bool_]:
        """Whether all rows were read in one pass."""
        return self._stacked("full_pass")

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Whether the bound had not decided when all rows had been read."""
        return self._stacked("undecided")

    def ess(self) -> NDArray[np.float64]:
        """Effective sample size of each coordinate."""
        flat = self.draws.reshape(self.n_chains, self.n_draws, -1).astype(np.float64)
        return np.array([effective_sample_size(flat[:, :, j]) for j in range(flat.shape[2])])

    def rhat(self) -> NDArray[np.float64]:
        """Potential scale reduction of each coordinate, chains split in halves."""
        flat = self.draws.reshape(self.n_chains, self.n_draws, -1).astype(np.float64)
        return np.array([_rhat(_halves(flat[:, :, j])) for j in range(flat.shape[2])])

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain arrays: groups "posterior" and "sample_stats", each name to an array of (chain, draw, ...)."""
        return {
            "posterior": {self.variable: self.draws},
            "sample_stats": {f"n_{name}" if name in ("rows", "looks") else name: getattr(self, name)
                             for name in STATISTICS},
        }

    def to_arviz(self) -> Any:
        """As ArviZ keeps chains: a DataTree with ArviZ 1.x, InferenceData with 0.x.

        Raises
        ------
        ImportError
            If ArviZ is not there; `to_dict` needs nothing.
        """
        try:
            import arviz
        except ImportError as error:
            raise ImportError('to_arviz needs ArviZ: python -m pip install arviz') from error
        groups = self.to_dict()
        attributes = {"inference_library": "fastrace", **{k: _plain(v) for k, v in self.kernel.items()}}
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict(groups, attrs={"posterior": attributes})
        return arviz.from_dict(posterior=groups["posterior"], sample_stats=groups["sample_stats"], attrs=attributes)

    def __str__(self) -> str:
        named = ", ".join(f"{name}={value}" for name, value in self.kernel.items() if name != "kernel")
        head = f"{self.kernel.get('kernel', 'chain')}({named}): {self.n_chains} chains of {self.n_draws} draws, "
        lines = [head + f"{self.seconds:.2f} s"]
        if self.n_draws:
            lines.append(
                f"accepted {self.accepted.mean():.3f}, rows a step {self.rows.mean():.1f}, full passes "
                f"{self.full_pass.mean():.4f}, undecided {self.undecided.mean():.4f}"
            )
        if self.n_draws >= 8:
            flat = self.draws.reshape(self.n_chains * self.n_draws, -1)
            mean, sd, ess, rhat = flat.mean(axis=0), flat.std(axis=0), self.ess(), self.rhat()
            lines.append(f"{'':>12} {'mean':>11} {'sd':>11} {'ess':>9} {'rhat':>7}")
            for j in range(min(flat.shape[1], 20)):
                name = f"{self.variable}[{j}]"
                lines.append(f"{name:>12} {mean[j]:11.4g} {sd[j]:11.4g} {ess[j]:9.0f} {rhat[j]:7.4f}")
            if flat.shape[1] > 20:
                lines.append(f"{'':>12} ... and {flat.shape[1] - 20} more; smallest ess {ess.min():.0f}")
        return "\n".join(lines)

    def plot(self, coordinates: ArrayLike = (0,), ax: Any = None) -> Any:
        """Traces of some coordinates, and rows read per step, on matplotlib axes."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError('plots need matplotlib: python -m pip install matplotlib') from error
        axes = np.atleast_1d(plt.subplots(2, 1, sharex=True, layout="constrained")[1] if ax is None else ax)
        flat = self.draws.reshape(self.n_chains, self.n_draws, -1)
        for c in range(self.n_chains):
            for j in np.atleast_1d(coordinates):
                axes[0].plot(flat[c, :, int(j)], linewidth=0.5, label=f"chain {c}, {self.variable}[{j}]")
            axes[-1].plot(np.maximum(self.rows[c], 0.5), ".", markersize=1)
        axes[0].set_ylabel(self.variable)
        axes[-1].set(yscale="log", xlabel="draw", ylabel="rows read")
        return axes


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _halves(chains: NDArray[np.float64]) -> NDArray[np.float64]:
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, -half:]]) if half else chains


def _rhat(chains: NDArray[np.float64]) -> float:
    n = chains.shape[1]
    if n < 2:
        return float("nan")
    within = chains.var(axis=1, ddof=1).mean()
    between = chains.mean(axis=1).var(ddof=1) if len(chains) > 1 else 0.0
    return float(np.sqrt((n - 1) / n + between / within)) if within > 0.0 else 1.0


def effective_sample_size(chains: ArrayLike) -> float:
    """Effective sample size of draws of shape (n_chains, n_draws), by Geyer's monotone sequence on split chains.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.mcmc import effective_sample_size
    >>> bool(3000 < effective_sample_size(np.random.default_rng(0).normal(size=(4, 1000))) < 5000)
    True
    """
    x = _halves(np.atleast_2d(np.asarray(chains, dtype=np.float64)))
    m, n = x.shape
    if n < 4 or np.ptp(x) == 0.0:
        return float(m * n)
    size = 1 << (2 * n - 1).bit_length()
    transformed = np.fft.rfft(x - x.mean(axis=1, keepdims=True), size)
    covariance = np.fft.irfft(np.abs(transformed) ** 2, size)[:, :n].mean(axis=0) / n
    within = covariance[0] * n / (n - 1)
    variance = within * (n - 1) / n + (x.mean(axis=1).var(ddof=1) if m > 1 else 0.0)
    rho = 1.0 - (within - covariance) / variance
    rho[0] = 1.0
    pairs = rho[0 : 2 * (n // 2) : 2] + rho[1 : 2 * (n // 2) : 2]
    stop = int(np.argmax(pairs <= 0.0)) if (pairs <= 0.0).any() else len(pairs)
    tau = -1.0 + 2.0 * np.minimum.accumulate(pairs[:stop]).sum()
    return float(m * n / max(tau, 1.0 / np.log10(max(m * n, 10))))
