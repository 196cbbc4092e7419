"""Selections from a table: its cells are paid for once, and read to the end where draws do not settle the question."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.pulls import PullSource, ResampledPulls
from fastrace.select import _ending
from fastrace.select._ledger import Ledger, keeps_rewards
from fastrace.select._selector import Selector
from fastrace.sources import Source


class OverTables:
    """What a rule knows of the table that it draws from; `selection.Selection` is one."""

    _core: Selector
    _n_arms: int
    _n_best: int
    _support: tuple[NDArray[np.float64], NDArray[np.float64]]
    _cost: NDArray[np.float64] | None
    _missing: str
    _ledger: Ledger | None = None       # of the cells of a table that were read
    _drawn: NDArray[np.int64] | None = None     # pulls of each arm among those cells
    _repeated: int = 0          # of these, those of cells that had been read
    _redrawn: NDArray[np.int64] | None = None   # rows that it draws first, as a request of them failed
    _exact: dict[str, Any] | None = None        # the means of a table that was read to its end

    @property
    def done(self) -> bool:
        """Whether the rule has stopped by itself."""
        return self._core.done

    def _bought(self) -> NDArray[np.int64]:
        """Pulls of each arm that were paid for: those of a table once per cell."""
        made: NDArray[np.int64] = self._core._made()
        if self._ledger is None or self._drawn is None:
            return made
        return made - self._drawn + self._ledger.n_known

    def _run_table(
        self, source: PullSource, ledger: Ledger, part: int, limit: int, last: bool, end: float
    ) -> None:
        """Draw cells until `part` pulls are paid for, or to the end of the table, which may be paid for up to `limit`.

        `_drawn` counts the pulls that the rule has taken from this ledger, whatever ends the call.
        """
        core, drawn = self._core, self._drawn
        assert drawn is not None
        look = max(ledger.n_rows, int(drawn.sum()))
        while not core.done and (room := part - int(self._bought().sum())) > 0:
            if int(drawn.sum()) >= look:
                self._end_table(source, ledger, limit, end)
                look = int(_ending.FURTHER * max(look, int(drawn.sum()))) + 1
                continue
            # a round of common draws is as long as there are arms, at most
            before, ahead = core.total, min(room, max(look - int(drawn.sum()), self._n_arms))
            with self._drawing(ledger):
                core.run(source, before + ahead, False)
            if core.total == before and ahead == room:
                break
        if last and not core.done:
            core.run(source, core.total, True)

    @contextlib.contextmanager
    def _drawing(self, ledger: Ledger) -> Iterator[None]:
        """Count the draws that the rule takes within, also where they are cut short."""
        core, before, made, known = self._core, self._core.total, self._core._made(), int(ledger.n_known.sum())
        try:
            yield
        finally:
            assert self._drawn is not None
            self._drawn += core._made() - made
            self._repeated += max(0, core.total - before - int(ledger.n_known.sum()) + known)

    def _end_table(self, source: PullSource, ledger: Ledger, limit: int, end: float) -> None:
        """Read what is left of a table that could matter, if that is due and `limit` allows it."""
        core, drawn = self._core, self._drawn
        assert drawn is not None
        while not core.done:
            verdict, chosen = np.asarray(core.decided()), np.zeros(self._n_arms, bool)
            chosen[core.chosen()] = True
            due, few = _ending.is_due(verdict, chosen, drawn, ledger.n_rows, self._cost)
            more = few if core.takes_more else few[:0]
            arms = np.flatnonzero(verdict == 0)
            lacking = int(drawn[more].sum()) if more.size else (
                ledger.n_rows * arms.size - int(ledger.n_known[arms].sum()))
            if not due or int(self._bought().sum()) + lacking > limit:
                return
            if not more.size:
                mean, gone = _ending.read_in_full(core, ledger, arms, self._support, self._missing, end)
                exact = {"verdict": verdict, "mean": np.full(self._n_arms, math.nan), "gone": core.missed_by_arm()}
                exact["mean"][arms], exact["gone"][arms] = mean, gone
                self._exact = exact
                core.end_by_reading()
                return
            for arm in more.tolist():
                if core.done:
                    return
                with self._drawing(ledger):
                    core.pull_more(source, arm, max(1, int(drawn[arm])))

    def _known_cells(self, population: Source) -> Source:
        """The population, with what the rule has read of it."""
        if self.done or population.n_arms != self._n_arms:
            return population
        if self._ledger is None or self._ledger.n_rows != population.n_rows:
            self._ledger = Ledger(self._n_arms, population.n_rows, keeps_rewards(population))
            self._drawn, self._repeated, self._redrawn = np.zeros(self._n_arms, np.int64), 0, None
        self._ledger.over(population)
        return self._ledger


def check_table(rule: OverTables) -> None:
    """Refuse a saved rule that cannot have read a table so."""
    n, ledger, drawn, exact = rule._n_arms, rule._ledger, rule._drawn, rule._exact
    if ledger is not None or drawn is not None:
        if not (isinstance(ledger, Ledger) and ledger.n_arms == n and isinstance(drawn, np.ndarray)
                and drawn.shape == (n,) and drawn.dtype == np.int64 and (0 <= drawn).all()
                and (drawn <= rule._core._made()).all() and isinstance(rule._repeated, int)
                and 0 <= rule._repeated <= int(drawn.sum())):
            raise ValueError("its cells of a table cannot be right")
    rows = rule._redrawn
    if rows is not None and not (ledger is not None and isinstance(rows, np.ndarray) and rows.dtype == np.int64
                                 and rows.ndim == 1 and ((0 <= rows) & (rows < ledger.n_rows)).all()):
        raise ValueError("its rows of a table cannot be right")
    if (exact is not None) != (rule._core.stopped_by == "exact"):
        raise ValueError("its end cannot be right")
    if exact is not None:
        verdict, mean, gone = exact["verdict"], exact["mean"], exact["gone"]
        if not (verdict.shape == mean.shape == gone.shape == (n,) and np.isin(verdict, (-1, 0, 1)).all()
                and np.isfinite(mean[verdict == 0]).all() and gone.dtype == np.int64 and (gone >= 0).all()
                and (verdict == 1).sum() < rule._n_best <= (verdict >= 0).sum()):
            raise ValueError("its means of a table cannot be right")


def ledger_of(source: PullSource) -> Ledger | None:
    """The ledger of a table's cells, where pulls are drawn from them."""
    return source.source if isinstance(source, ResampledPulls) and isinstance(source.source, Ledger) else None
