"""Answers of planners: what a race will cost, before it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace.results.base import Result, Table

SHOWN = (0.1, 0.5, 0.9, 0.99)       # quantiles of the printed table


@dataclass(frozen=True, eq=False)
class RacePlan(Result):
    """How many rewards races will need, by simulated ones.

    Attributes
    ----------
    n_read : ndarray of int64, shape (n_races,)
        Rewards that each simulated race read, over all arms.
    best : ndarray of int, shape (n_races,) or (n_races, n_best)
        The arm that each simulated race found, or the arms; arm 0 has the largest mean.
    n_rows, n_arms : int
        Size of the population.
    gap : float or ndarray of float, shape (n_arms - 1,)
        How far the means of the other arms are below the largest.
    sd : float
        Standard deviation of the rewards of an arm.
    correlation : float
        Correlation of the rewards of two arms on the same row.
    bound : str
        The rule that drops arms.
    delta : float
        Promised probability of error.
    law : str
        Law of the simulated rewards: "normal", "beta" or "0/1".
    epsilon : float
        How far below the best an arm may be and still do.
    """

    n_read: NDArray[np.int64]
    best: NDArray[np.intp]
    n_rows: int
    n_arms: int
    gap: float | NDArray[np.float64]
    sd: float
    correlation: float
    bound: str
    delta: float
    law: str
    epsilon: float = 0.0

    _derived: ClassVar[tuple[str, ...]] = ("mean", "right")

    @property
    def mean(self) -> float:
        """Mean number of rewards of a race."""
        return float(self.n_read.mean())

    @property
    def right(self) -> float:
        """Share of the races that found the best arm or arms, or arms within `epsilon` of them."""
        below = np.concatenate([[0.0], np.broadcast_to(self.gap, self.n_arms - 1)])
        wanted = 1 if self.best.ndim == 1 else self.best.shape[1]
        worst = below[self.best].reshape(self.n_read.size, wanted).max(axis=1)
        return float((worst <= np.sort(below)[wanted - 1] + self.epsilon).mean())

    def quantile(self, q: ArrayLike) -> Any:
        """Return how many rewards a share `q` of the races is content with.

        Parameters
        ----------
        q : float or array_like of float
            Shares, from 0 to 1.

        Returns
        -------
        int or ndarray of int64
            In the shape of `q`: the number that a race needs, or fewer, with this probability.
        """
        shares = _checks.floats(q, "q")
        if not ((shares >= 0.0) & (shares <= 1.0)).all():
            raise ValueError(f"q is {_checks.shown(q)}; shares of the races are needed, from 0 to 1")
        found = np.quantile(self.n_read, shares, method="inverted_cdf")
        return int(found) if found.ndim == 0 else found

    def _title(self) -> str:
        gap = f"{self.gap:g}" if np.ndim(self.gap) == 0 else f"{np.min(self.gap):g} to {np.max(self.gap):g}"
        return (f"a race of {counted(self.n_arms, 'arm')} over {counted(self.n_rows, 'row', ',')}: gap {gap}, sd "
                f"{self.sd:g}, correlation {self.correlation:g}, {self.law} rewards, {self.bound} rule, delta "
                f"{self.delta:g}")

    def _table(self) -> Table:
        size = self.n_rows * self.n_arms
        lines = [("mean", self.mean), *((f"{100 * q:g} % of races", self.quantile(q)) for q in SHOWN)]
        rows = [[f"  {name:>14}", f"{value:>12,.0f}", f"{100 * value / size:>11.3g} %"] for name, value in lines]
        return Table([f"  {'':>14}", f"{'rewards':>12}", f"{'of all':>13}"], rows)

    def _notes(self) -> list[str]:
        races = counted(self.n_read.size, "simulated race")
        return [f"  {races}, {100 * self.right:.4g} % of which were right", *super()._notes()]

    def _columns(self) -> dict[str, Any]:
        return {"n_read": self.n_read, "fraction_read": self.n_read / (self.n_rows * self.n_arms),
                **({"best": self.best} if self.best.ndim == 1 else
                   {f"best[{k}]": column for k, column in enumerate(self.best.T)})}

    def _panels(self) -> Mapping[str, Callable[[Any], None]]:
        return {"n_read": self._draw_read}

    def _draw_read(self, ax: Any) -> None:
        share = (np.arange(self.n_read.size) + 1.0) / self.n_read.size
        ax.step(np.sort(self.n_read), share, where="post", color="C0")
        ax.axvline(self.mean, color="C1", lw=1, ls="--", label="mean")
        ax.set(xlabel="rewards", ylabel="share of races that need no more", ylim=(0.0, 1.02))
        ax.legend()
