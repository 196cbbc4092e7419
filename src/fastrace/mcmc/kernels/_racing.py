"""What kernels over rows whose decisions are races share: the options of a race, and how each chain gets its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace import bounds
from fastrace._base import _checks
from fastrace._base._blas import one_blas_thread
from fastrace.control_variates import ControlVariate
from fastrace.mcmc.kernels._chain import Chain, RaceChain
from fastrace.mcmc.kernels._rows import PILOT_SEED, RowKernel, table_of, usual_rows
from fastrace.mcmc.models._sites import held_apart
from fastrace.races._weighted import AliasTable, WeightedRace
from fastrace.races.acceptance import AcceptTest
from fastrace.sources import ArraySource, Source

FIRST_LOOK = 50  # rows, of the normal rule
FIRST_DRAWS, SLOW = 16, FIRST_LOOK  # draws before the first look, unless the source has an own first look above SLOW
GROWTH = 1.25  # of draws from look to look: by 1.1 few rows wait for memory at once, and a step takes a fifth longer
MISSED = 0.01  # share of the rows: where fewer hold what the expansion leaves, first looks of races miss them
MET = 10.0  # expected number of rows that hold it in a first look: one in 20,000 looks has none
MOST_APART = 0.02  # of the rows, which every race may read
NOTHING = 1e-3  # what all rows together may leave of a log-likelihood, so that no decision turns on it
PAIRS, AT_ONCE = 8, 1 << 16  # moves that say which rows hold it, and rows at once
AFFORDABLE = 50.0  # sum over rows of how far a term may change in a typical move, up to which "auto" is betting, and
AFFORDABLE_APART = 1000.0  # where rows differ so much that balls have weights of their own, see `Reference.shells`

FEW_HOLD = ("a few rows hold most of what the expansion leaves of the likelihood, such as a small group of one outcome "
            "or a row far from all others. Small subsets miss them, so that races err more often than delta and the "
            "draws may be too narrow: take ")


class Racing(RowKernel):
    """Base, beside that of the move, of kernels that race; see `RacingMetropolis` for the parameters."""

    full_pass_advice = (
        "its races end in full passes. A control variate leaves far less to race: control_variate='auto' with a model "
        "that gives derivatives. If it has one, the expansion fits the posterior badly; Metropolis and Slice then read "
        "as much, in cheaper passes and without delta"
    )
    _inner_tables: tuple[AliasTable, ...] = ()  # of the smaller balls
    _growth = 1.1  # `GROWTH` of kernels saved before there was one
    outside = False  # whether a difference has been met that `support` does not hold
    _apart: NDArray[np.intp] | None = None  # rows that every race reads
    _missed = False  # whether few rows hold what a race is about
    _held_by: float | None = None  # effective share of the rows that hold it; None until it is looked for

    @one_blas_thread()
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
        if isinstance(bound, str) and bound == "normal" and self.controlled and self.reference is not None:
            if self._held_by is None:  # "auto" may have looked already
                self._missed = self._races_miss()
            first_look = self._first_look if first_look is None else first_look
        self._options: dict[str, Any] = {
            "delta": delta, "bound": bound, "first_look": first_look, "growth": growth, "access": access,
            "student": student, "skewness_guard": skewness_guard, "scan_advantage": scan_advantage,
        }
        self._table: AliasTable | None = None
        self._growth = GROWTH
        test = self._test(self.model.engine(self._expanded_at)[0])
        self.bound, self.delta = test.bound, test.delta
        if self.bound == "betting" and self._weights is not None:
            self._table = table_of(self._weights)
            self._inner_tables = tuple(table_of(smaller) for _, smaller in self._shells)
        self._engines.append(self._take(self._untuned()))

    def _races_miss(self) -> bool:
        """Whether so few rows hold what the expansion leaves that the first looks of a race see none of them."""
        self._held_by, left = 1.0, self._left_of_rows()
        if left.sum() <= NOTHING:
            return False
        rows, share = held_apart(left, MISSED, MOST_APART)
        self._apart = rows if len(rows) else None
        self._held_by = share or 1.0
        return not share

    def _left_of_rows(self) -> NDArray[np.float64]:
        """What the expansion leaves of each row: its change between typical states, as a root mean square.

        Reads all rows `PAIRS` times. Where a row's term is not defined so far out, it leaves nothing here.
        """
        n, squares = self.model.n_rows, np.zeros(self.model.n_rows)
        ends = self._ends(2 * PAIRS, np.random.default_rng(PILOT_SEED))
        source, theta = self.model.engine(self.reference)
        for k in range(0, 2 * PAIRS, 2):
            theta[:] = ends[k : k + 2]
            for first in range(0, n, AT_ONCE):
                rows = np.arange(first, min(first + AT_ONCE, n))
                before, after = source.read(rows, [0, 1]).T
                with np.errstate(all="ignore"):
                    squares[rows] += np.nan_to_num(np.square(after - before), posinf=0.0)
        return np.sqrt(squares / PAIRS)

    def _ends(self, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Typical states, as far as rows see them, shape (n, n_seen)."""
        assert self.reference is not None
        noise = rng.standard_normal((n, len(self.reference.center)))
        return np.asarray(self.reference.center + noise @ self.reference.factor.T)

    @property
    def _first_look(self) -> int | None:
        """Rows of the normal rule where its usual first look would miss those that matter."""
        rows = math.ceil(MET / (self._held_by or 1.0))
        return min(rows, self.model.n_rows) if rows > FIRST_LOOK else None

    @property
    def decision_advice(self) -> str:
        """What to do where races may decide wrongly; empty if nothing is known against them."""
        return FEW_HOLD + self._instead if self._missed else ""

    @property
    def _instead(self) -> str:
        """What to take where races miss rows."""
        return "PoissonMinibatchMetropolis, or Metropolis on all rows"

    def _automatic(self, student: bool, skewness_guard: bool | None) -> str:
        """The rule behind "auto": the rigorous one where it hardly reads more rows than the normal one.

        Where rows differ much it reads fewer: rows drawn alike seldom are those that decide, and their means are far
        from normal.
        """
        if self._weights is None or student or skewness_guard:  # two options of the normal rule
            return "normal"
        most = AFFORDABLE_APART if self._shells else AFFORDABLE
        return "betting" if usual_rows(self._innermost, self.model.dim) <= most else "normal"

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "bound": self.bound, "delta": self.delta}

    def _test(self, source: Source) -> AcceptTest:
        options = {**self._options, "outside": "warn"}  # `mcmc.sample` says so at the end
        if self._weights is not None and not (isinstance(bound := options["bound"], str) and bound == "normal"):
            options["support"] = (-1.0, 1.0)  # the chain puts each step's own in its place
        return AcceptTest(source, rng=np.random.default_rng(0), **options)

    def _chain(self, source: Source, *args: Any, **options: Any) -> RaceChain:
        if self._apart is not None:
            nothing = ArraySource(np.broadcast_to(0.0, (self.model.n_rows, 2)))
            source = ControlVariate(source, nothing, np.zeros(2), self._apart)
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
        looks: NDArray[np.int64] = bounds.looks(source.n_rows, first, self._growth if growth is None else growth)
        return looks
