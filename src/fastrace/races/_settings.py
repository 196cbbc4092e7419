"""What a race over a finite population is asked for: checked options, the plan of looks, and the answer in words."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace._core as _core
import fastrace._math._half_widths as _half_widths
from fastrace import bounds
from fastrace._base import _checks, _frames
from fastrace._base._requests import charges
from fastrace.races import _options
from fastrace.races._in_flight import Flight
from fastrace.races._options import MOST_ROWS
from fastrace.results import RaceResult

MOST_EXACT_LOOKS = 1000  # beyond, the quantile of Sidak, a hair wider, saves a solve of seconds
Plan = tuple[NDArray[np.int64], NDArray[np.float64], float]


class RaceSettings:
    """Checked options that a race and a sampler share, and the plan of looks that follows from them."""

    # Races that an earlier version saved have none of these.
    epsilon: float = 0.0
    n_best: int = 1
    cost: NDArray[np.float64] | None = None
    missing: str = "raise"
    proxy: NDArray[np.float64] | None = None

    def __init__(
        self,
        n_arms: int,
        n_rows: int,
        *,
        delta: float,
        bound: str,
        variance: str,
        first_look: int,
        growth: float | None,
        support: _checks.Support | None,
        order: str,
        student: bool,
        skewness_guard: bool,
        tail_guard: bool,
        scan_advantage: float | None,
        max_pulls: int | None = None,
        outside: str = "raise",
        epsilon: float = 0.0,
        n_best: int = 1,
        cost: ArrayLike | None = None,
        missing: str = "raise",
        proxy: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        growth_of_bets: float = 1.05,
    ) -> None:
        self.n_arms, self.n_rows = _options.population(n_arms, n_rows)
        called = _frames.arms_called(names, self.n_arms, support=support, cost=cost)
        self.delta = _checks.probability(delta, "delta")
        self.bound = _options.bound(bound, support is not None)
        self.variance = _checks.choice(variance, "variance", ("pairwise", "marginal"))
        if self.bound == "betting" and self.variance == "marginal":
            raise ValueError("bound is 'betting' and variance is 'marginal'; bets are on paired differences only")
        self.first_look = _options.first_look(first_look)
        self.growth = _options.growth(growth, self.bound, growth_of_bets)
        self.low: NDArray[np.float64] | None = None
        self.high: NDArray[np.float64] | None = None
        if support is not None:
            self.low, self.high = _checks.support_bounds(_frames.support_of_arms(support, called), self.n_arms)
        self.order = _options.order(order)
        self.student = _checks.flag(student, "student")
        self.skewness_guard = _checks.flag(skewness_guard, "skewness_guard")
        self.tail_guard = _checks.flag(tail_guard, "tail_guard")
        self.scan_advantage = _options.scan_advantage(scan_advantage) or 0.0
        self.outside = "raise" if _options.strict(outside) else "warn"
        self.epsilon = _checks.epsilon(epsilon)
        self.n_best = _checks.n_best(n_best, self.n_arms)
        self.cost = None if cost is None else _checks.arm_costs(_frames.of_arms(cost, called, "cost"), self.n_arms)
        self.missing = _options.missing(missing, self.variance, self.low, self.high)
        if proxy is not None:
            self.proxy = _options.proxy(proxy, self.n_arms, self.n_rows, self.bound, self.missing, self.scan_advantage,
                                        called)
        self.max_pulls = -1 if max_pulls is None else _checks.integer(max_pulls, "max_pulls", 1, "it counts rewards")

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "access" in state:               # saved by an earlier version
            state = state | {"order": _options.ORDERS[state["access"]]}
        self.__dict__.update(state)

    def core(self, rng: np.random.Generator) -> _core.Race:
        """A fresh compiled race with these options."""
        return _core.Race(
            self.n_arms,
            self.n_rows,
            bound=self.bound,
            pairwise=self.variance == "pairwise",
            shuffled=self.order == "given",
            guarded=self.skewness_guard,
            tails=self.tail_guard,
            scan_advantage=self.scan_advantage,
            max_pulls=min(self.max_pulls, MOST_ROWS),
            strict=self.outside == "raise",
            low=self.low,
            high=self.high,
            rng=rng,
            epsilon=self.epsilon,
            n_best=self.n_best,
            missing=self.missing,
            proxy=self.proxy,
        )

    def start(self, constants: NDArray[np.float64], rng: _checks.RngLike) -> _core.Race:
        """A compiled race that has begun, with these constants of the arms."""
        running = int(np.isfinite(constants).sum())
        _checks.budget(None if self.max_pulls < 0 else self.max_pulls, running, running > self.n_best)
        if running < self.n_best:
            raise ValueError(f"n_best is {self.n_best} and only {running} arms can win; their offsets must be finite")
        if self.missing == "drop" and np.ptp(constants[np.isfinite(constants)]) > 0.0:
            raise ValueError(
                "missing is 'drop' and arms have different offsets; they are parts of the sums over all rows, so they "
                "say nothing of the rows that remain: leave offset out, or take missing='worst'"
            )
        core = self.core(_checks.generator(rng))
        core.plan(*self.plan(running))
        self.promise(core)
        core.begin(constants)
        return core

    def promise(self, core: _core.Race) -> None:
        """Tell the race what intervals of differences to the leader may spend: any two arms may be compared."""
        sides = self.n_arms * (self.n_arms - 1)
        if sides:
            share, quantile = self._share(sides)
            if self.bound == "betting":         # at any time, without a share for each look
                share = math.log(sides) - math.log(self.delta)
            of_means = None if self.proxy is None else math.log(2 * self.n_arms) - math.log(self.delta)
            core.promise(share, quantile, self.max_pulls >= 0, self._student(), of_means)

    def _student(self) -> Any:
        return _student_quantile if self.student and self.bound == "normal" else None

    def _share(self, sides: int) -> tuple[float, float]:
        """log(1 / share of delta) and quantile of one of so many ends of intervals, at all looks."""
        return _share_of_an_end(
            sides, self.n_rows, self.delta, self.bound, self.first_look, self.growth, self.max_pulls >= 0
        )

    def flight(self, core: _core.Race) -> Flight:
        """The requests in flight of a race with these options."""
        return Flight(core, strict=self.outside == "raise" and self.low is not None, missing=self.missing != "raise")

    def answer(self, core: _core.Race) -> dict[str, Any]:
        """What the race knows, with an interval for each mean: all of them hold at all looks, by the bound of the race.

        The probability of error is shared among arms, sides and looks. Bets have no half-width: theirs is that of the
        serfling bound. The ends are infinite before the first look and where neither a support nor the spread is known:
        while a run is under way, or where rewards agree to rounding.
        """
        share, quantile = self._share(2 * self.n_arms)
        known: dict[str, Any] = core.answer(share, quantile, self.max_pulls >= 0, self._student())
        running = int(np.isfinite(core._offset).sum())
        return known | {"error_bound": self._error_bound(core.weakest_evidence(), running, known["stopped_by"])}

    def _error_bound(self, evidence: float, running: int, stopped_by: str) -> float:
        """The smallest delta at which the answer would stand, from the evidence of its weakest comparison.

        The plan spends log(1 / delta) on one comparison at one look; less evidence than that says how much larger delta
        would have to be, more how much smaller. The normal rule's evidence is a share of its half-width, whose error is
        bounded by the union over looks; it says nothing of smaller deltas than that asked for.
        """
        if evidence == math.inf:
            return 0.0
        if math.isnan(evidence):
            return self.delta
        comparisons = _comparisons(running, self.n_best, self.variance)
        looks, quantiles, level = self.plan(running)
        if self.bound != "normal":
            error = self.delta * math.exp(min(level - evidence, 700.0))
        elif looks.size == 1:
            error = 1.0
        else:
            quantile = float(quantiles[0])
            if self.student:
                quantile, evidence = float(self.plan(running, student=False)[1][0]), min(evidence, 1.0)
            error = comparisons * (looks.size - 1) * float(_half_widths.normal_tail(evidence * quantile))
            error = max(self.delta, error)      # further out, the means of few rows need not be normal
        return min(error, self.delta if stopped_by in ("bound", "exact", "epsilon") else 1.0)

    def plan(self, n_running: int, student: bool | None = None) -> Plan:
        """Looks, quantile of each, and log(1 / delta) of one comparison, for `n_running` arms that can still win."""
        return _plan(
            n_running,
            self.n_rows,
            self.delta,
            self.bound,
            self.variance,
            self.first_look,
            self.growth,
            self.student if student is None else student,
            self.skewness_guard or self.tail_guard or self.epsilon > 0.0,
            self.n_best,
        )


@functools.lru_cache(maxsize=256)
def _share_of_an_end(
    sides: int, n_rows: int, delta: float, bound: str, first_look: int, growth: float, cut: bool
) -> tuple[float, float]:
    """log(1 / share of delta) and quantile of one of so many ends of intervals, at all looks.

    If the race may be `cut` short between looks, each interval holds up to the look after it.
    """
    share = math.log(sides) - math.log(delta)
    if n_rows == 0:
        return share, 0.0
    first_look = min(first_look, n_rows)
    if bound == "normal":
        share += math.log(2.0) if cut else 0.0
        return share, float(bounds.normal_quantile(None, n_rows, first_look, growth, "union", log_inv_delta=share))
    return share + math.log(bounds.looks(n_rows, first_look, growth).size), 0.0


def _student_quantile(quantile: float, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = bounds.student_quantile(quantile, rows, ddof=0)
    return found


def _comparisons(n_running: int, n_best: int, variance: str) -> int:
    """How many comparisons can go wrong: of each best arm with each other one, or, if marginal, the means of all."""
    return n_best * (n_running - n_best) if variance == "pairwise" else n_running


@functools.lru_cache(maxsize=256)
def _plan(
    n_running: int,
    n_rows: int,
    delta: float,
    bound: str,
    variance: str,
    first_look: int,
    growth: float,
    student: bool,
    guarded: bool,
    n_best: int = 1,
) -> Plan:
    if n_rows == 0 or n_running <= n_best:
        return np.array([n_rows], np.int64), np.zeros(1), math.inf
    looks = bounds.looks(n_rows, min(first_look, n_rows), growth)
    inexact = looks.size - 1
    log_inv_delta = math.log(max(_comparisons(n_running, n_best, variance), 1)) - math.log(delta)
    quantiles = np.zeros(looks.size)
    if inexact and bound == "normal":
        # With two arms the race ends at the first crossing on either side; with more an arm beaten by the best one may
        # stay and come back, and a guard may let a crossing pass, so each crossing counts.
        one_exit = n_running == 2 and variance == "pairwise" and not guarded
        quantiles = normal_quantiles(looks, first_look, growth, log_inv_delta, one_exit=one_exit, student=student)
    elif inexact and bound != "betting":
        log_inv_delta += math.log(inexact)
    for array in (looks, quantiles):
        array.setflags(write=False)
    return looks, quantiles, log_inv_delta


def normal_quantiles(
    looks: NDArray[np.int64], first_look: int, growth: float, log_inv_delta: float, *, one_exit: bool, student: bool
) -> NDArray[np.float64]:
    """The normal rule's quantile at each look, 0 at the last; `one_exit` if the first crossing ends the race."""
    kind = "first-exit" if one_exit else "one-sided"
    if looks.size - 1 > MOST_EXACT_LOOKS:
        kind = "sidak"
    n_rows, quantiles = int(looks[-1]), np.zeros(looks.size)
    quantiles[:-1] = bounds.normal_quantile(None, n_rows, first_look, growth, kind, log_inv_delta=log_inv_delta)
    if student:
        quantiles[:-1] = bounds.student_quantile(quantiles[:-1], looks[:-1], ddof=0)
    return quantiles


def race_result(
    core: _core.Race,
    options: RaceSettings,
    names: tuple[str, ...] | None,
    n_always_read: int = 0,
    flight: Flight | None = None,
    ended: str = "",
) -> RaceResult:
    """Name what the compiled race knows; rows that are always read count as read, and what was not used was paid."""
    known = options.answer(core)
    ended = "" if known["stopped_by"] else ended
    known["stopped_by"] = known["stopped_by"] or ended
    size = options.n_arms * (options.n_rows + n_always_read)
    read = int(known["pulls"].sum()) + options.n_arms * n_always_read
    cost, (unused, failed, waiting) = options.cost, charges(flight, options.n_arms)
    paid = known["pulls"] + unused + failed + (0 if core.done else waiting)
    return RaceResult(
        n_rows=options.n_rows,
        fraction_read=read / size if size else 0.0,
        bound=options.bound,
        delta=options.delta,
        warnings=core.warnings(ended=ended),
        names=names,
        n_unused=int(unused.sum()),
        n_failed=int(failed.sum()),
        epsilon=options.epsilon,
        coefficient=None if options.proxy is None else core._slope.copy(),
        cost=None if cost is None else float(paid @ cost + n_always_read * cost.sum()),
        **known,
    )
