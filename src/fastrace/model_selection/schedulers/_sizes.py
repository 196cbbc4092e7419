"""Grids of training sizes, plans of rounds, and the scale of rows on which learning curves are straight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fastrace._base import _checks

TINY = 1e-12            # added before a floor, so that log(243, 3) is 5


def floor(x: float) -> int:
    """The floor, but of a number a rounding error below an integer that integer."""
    return math.floor(x + TINY)


def ceil(x: float) -> int:
    """The ceiling, but of a number a rounding error above an integer that integer."""
    return math.ceil(x - TINY)


def grid(first: int, ratio: float, n_rows: int, rounding: str = "ceil") -> list[int]:
    """Sizes from `first` to exactly `n_rows`, each `ratio` times the last, rounded up or to multiples of `first`."""
    sizes = [first] if first < n_rows else []
    while sizes:
        target = ratio * sizes[-1]
        size = math.ceil(target - 1e-9 * target) if rounding == "ceil" else first * math.floor(target / first + 0.5)
        size = max(size, sizes[-1] + 1)
        if size >= n_rows:
            break
        sizes.append(size)
    return [*sizes, n_rows]


def checked_first(first: int) -> int:
    """Rows of the first training."""
    return _checks.integer(first, "first", 1, "learners are trained on rows")


def checked_sizes(
    first: int, ratio: float, n_rows: int, rounding: str = "ceil", sizes: Sequence[int] | None = None
) -> list[int]:
    """A checked grid of training sizes that ends at `n_rows`."""
    if sizes is not None:
        if not isinstance(sizes, Iterable):
            raise TypeError(f"sizes is {_checks.shown(sizes)}; a sequence of increasing sizes is needed")
        found = [_checks.integer(n, "sizes", 1, "learners are trained on rows") for n in sizes]
        if not found or found[-1] != n_rows or any(a >= b for a, b in zip(found, found[1:], strict=False)):
            raise ValueError(f"sizes is {_checks.shown(list(sizes))}; increasing sizes that end at n_rows, {n_rows}, "
                             f"are needed")
        return found
    first = checked_first(first)
    ratio = _checks.real(ratio, "ratio")
    if not 1.0 < ratio < math.inf:
        raise ValueError(f"ratio is {ratio}; a finite factor above 1 is needed, so that sizes grow")
    return grid(first, ratio, n_rows, _checks.choice(rounding, "rounding", ("ceil", "multiple")))


def checked_factor(factor: float) -> float:
    """The share of learners that go on is one of `factor`."""
    found = _checks.real(factor, "factor")
    if not 1.0 < found < math.inf:
        raise ValueError(f"factor is {factor}; a finite number above 1 is needed: one of `factor` learners goes on")
    return found


def checked_curve(curve: float) -> float:
    """The exponent of the scale of rows."""
    found = _checks.real(curve, "curve")
    if not -10.0 <= found <= 10.0:
        raise ValueError(f"curve is {curve}; an exponent from -10 to 10 is needed, 1 for the rule of the paper")
    return found


def on_scale(n: int, n_rows: int, curve: float) -> float:
    """Rows on the scale ``((n / n_rows)**curve - 1) / curve``, the logarithm for 0: 0 at `n_rows`, below it before."""
    log = math.log(n / n_rows)
    return log if curve == 0.0 else math.expm1(curve * log) / curve


def projections(x: Sequence[float]) -> list[tuple[float, float]]:
    """By how much the least-squares line through three points, moved to the last of them, rises on its way to 0.

    With the last score as the origin the rise is ``first * y1 + second * y2``; answered for each place `x` that has two
    before it, (0, 0) for the others.
    """
    found = [(0.0, 0.0)] * min(2, len(x))
    for x1, x2, x3 in zip(x, x[1:], x[2:], strict=False):
        mean = (x1 + x2 + x3) / 3.0
        d1, d2, d3 = x1 - mean, x2 - mean, x3 - mean
        share = -x3 / (d1 * d1 + d2 * d2 + d3 * d3)
        found.append((share * d1, share * d2))
    return found


def halving_plan(
    n_learners: int, n_rows: int, factor: float, smallest: int, first: int | str, aggressive: bool
) -> list[tuple[int, int]]:
    """The rounds of scikit-learn's halving searches: rows and learners of each."""
    need = 1 + floor(math.log(n_learners) / math.log(factor))
    if first == "exhaust":
        start = max(smallest, floor(n_rows / factor ** (need - 1)))
    else:
        start = smallest if first == "smallest" else int(first)
    start = min(start, n_rows)
    can = 1 + floor(math.log(n_rows // start) / math.log(factor))
    plan = []
    for t in range(need if aggressive else min(need, can)):
        power = max(0, t - need + can) if aggressive else t
        plan.append((min(floor(factor**power * start), n_rows), ceil(n_learners / factor**t)))
    return plan


def plan_on(sizes: list[int], n_learners: int, factor: float) -> list[tuple[int, int]]:
    """Rounds on given sizes, until one learner is left; the last size is for whoever is left then."""
    plan, alive = [], n_learners
    for n in sizes:
        if alive > 1 or n == sizes[-1]:
            plan.append((n, alive))
            alive = max(1, ceil(alive / factor))
    return plan
