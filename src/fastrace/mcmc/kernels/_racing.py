"""What kernels over rows whose decisions are races share: the options of a race, and how each chain gets its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace import bounds
from fastrace._base import _checks
from fastrace.mcmc.kernels._chain import Chain, RaceChain
from fastrace.mcmc.kernels._rows import RowKernel, table_of
from fastrace.races._weighted import AliasTable, WeightedRace
from fastrace.races.acceptance import AcceptTest
from fastrace.sources import Source

FIRST_LOOK = 50  # rows, of the normal rule
FIRST_DRAWS, SLOW = 16, FIRST_LOOK  # draws before the first look, unless the source has an own first look above SLOW
AFFORDABLE = 50.0  # sum over rows of how far a term may change in a typical move, up to which "auto" is betting, and
AFFORDABLE_APART = 1000.0  # where rows differ so much that balls have weights of their own, see `Reference.shells`


class Racing(RowKernel):
    """Base, beside that of the move, of kernels that race; see `RacingMetropolis` for the parameters."""

    full_pass_advice = (
        "its races end in full passes. A control variate leaves far less to race: control_variate='auto' with a model "
        "that gives derivatives. If it has one, the expansion fits the posterior badly; Metropolis and Slice then read "
        "as much, in cheaper passes and without delta"
    )
    _inner_tables: tuple[AliasTable, ...] = ()  # of the smaller balls
    outside = False  # whether a difference has been met that `support` does not hold

    def _race_by(
        self, delta: float, bound: str, first_look: int | None, growth: float | None, access: str, student: bool,
        skewness_guard: bool | None, scan_advantage: float | None,
    ) -> None:
        """Take up the options of a race; all arguments are checked now, not at the first step."""
        shuffled = getattr(self.model, "shuffled", None)
        _checks.choice(access, "access", ("auto", "random", "shuffled"))
        _checks.flag(student, "student")
        if skewness_guard is not None:
            _checks.flag(skewness_guard, "skewness_guard")
        if access == "auto":
            access = "shuffled" if shuffled else "random"
        if access == "shuffled" and shuffled is False:
            raise ValueError("access is 'shuffled' and the model keeps its rows in the order they came in, which may "
                             "follow the outcome; give GLM(..., shuffle=seed)")
        if isinstance(bound, str) and bound == "auto" and self.controlled:
            bound = self._automatic(student, skewness_guard)
        if first_look is None and isinstance(bound, str) and bound == "normal":
            first_look = self._first_look
        self._options: dict[str, Any] = {
            "delta": delta, "bound": bound, "first_look": first_look, "growth": growth, "access": access,
            "student": student, "skewness_guard": skewness_guard, "scan_advantage": scan_advantage,
        }
        self._table: AliasTable | None = None
        test = self._test(self.model.engine(self.reference if self.controlled else None)[0])
        self.bound, self.delta = test.bound, test.delta
        if self.bound == "betting" and self._weights is not None:
            self._table = table_of(self._weights)
            self._inner_tables = tuple(table_of(smaller) for _, smaller in self._shells)
        self._engines.append(self._take(self._untuned()))

    @property
    def _first_look(self) -> int | None:
        """Rows of the normal rule where its usual first look would miss those that matter."""
        return None

    def _automatic(self, student: bool, skewness_guard: bool | None) -> str:
        """The rule behind "auto": the rigorous one where it hardly reads more rows than the normal one.

        Where rows differ much it reads fewer: rows drawn alike seldom are those that decide, and their means are far
        from normal.
        """
        if self._weights is None or student or skewness_guard:  # two options of the normal rule
            return "normal"
        # Between two draws from the reference, in the smallest ball: twice sqrt(dim)^3 / 6.
        total = math.fsum(self._shells[0][1] if self._shells else self._weights)
        most = AFFORDABLE_APART if self._shells else AFFORDABLE
        return "betting" if total * self.model.dim**1.5 / 3.0 <= most else "normal"

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "bound": self.bound, "delta": self.delta}

    def _test(self, source: Source) -> AcceptTest:
        options = {**self._options, "outside": "warn"}  # `mcmc.sample` says so at the end
        if self._weights is not None and not (isinstance(bound := options["bound"], str) and bound == "normal"):
            options["support"] = (-1.0, 1.0)  # the chain puts each step's own in its place
        return AcceptTest(source, rng=np.random.default_rng(0), **options)

    def _chain(self, source: Source, *args: Any, **options: Any) -> RaceChain:
        chain = RaceChain(source, *args, **options)
        low, high = -math.inf, math.inf
        if self._weights is None and source.support is not None:
            lows, highs = _checks.support_bounds(source.support, 2)
            low, high = lows[1] - highs[0], highs[1] - lows[0]
        weighted = None
        if self._table is not None:
            advantage = self._options["scan_advantage"]
            weighted = WeightedRace(self._table, self._looks(source), self.delta,
                                    math.nan if advantage is None else advantage)
        chain.set_race(self._test(source), low, high, weighted, *(self._inner_tables if weighted else ()))
        return chain

    def _look(self, chain: Chain) -> None:
        if isinstance(chain, RaceChain) and chain.outside and self._weights is None:
            self.outside = True

    def _looks(self, source: Source) -> NDArray[np.int64]:
        """Draws at each look of a race over rows in proportion to their bounds; looks are free."""
        first, growth = self._options["first_look"], self._options["growth"]
        if first is None:  # a source that asks for more is slow to ask
            first = FIRST_DRAWS if source.first_look <= SLOW else source.first_look
        looks: NDArray[np.int64] = bounds.looks(source.n_rows, first, 1.1 if growth is None else growth)
        return looks
