"""When a test of a mean against a threshold looks, and what each look may spend; also of the races inside XLA."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fastrace import bounds
from fastrace._base import _checks
from fastrace.races._settings import normal_quantiles

SCHEDULES = ("geometric", "korattikara", "bardenet")
MOST_LOOKS = 10_000_000


def bound_of(bound: str, schedule: str, known: bool) -> str:
    """The rule behind "auto" and behind the papers' schedules."""
    if schedule == "geometric":
        return ("betting" if known else "normal") if bound == "auto" else bound
    rule = "normal" if schedule == "korattikara" else "empirical-bernstein-serfling"
    if bound not in ("auto", rule):
        raise ValueError(f"bound is {bound!r} with schedule {schedule!r}, which brings its own: leave bound out")
    return rule


def guarded(skewness_guard: bool | None, bound: str, schedule: str = "geometric") -> bool:
    """Whether the skewness guard is on: by default with the normal rule, but for the papers' own schedules."""
    return (
        (bound == "normal" and schedule == "geometric")
        if skewness_guard is None
        else _checks.flag(skewness_guard, "skewness_guard")
    )


def looks(schedule: str, n_rows: int, first_look: int, growth: float) -> NDArray[np.int64]:
    """Rows read at each look; the last is `n_rows`."""
    if n_rows == 0:
        return np.zeros(0, dtype=np.int64)
    if schedule == "geometric":
        return bounds.looks(n_rows, first_look, growth)
    if schedule == "korattikara":
        if n_rows // first_look > MOST_LOOKS:
            raise ValueError(
                f"first_look is {first_look}, which asks for {n_rows // first_look} looks at {n_rows} rows; at most "
                f"{MOST_LOOKS} are allowed"
            )
        return np.append(np.arange(first_look, n_rows, first_look, dtype=np.int64), n_rows)
    found = [min(first_look, n_rows)]
    while found[-1] < n_rows:
        found.append(min(n_rows, max(found[-1] + 1, math.ceil(growth * found[-1]))))
        if len(found) > MOST_LOOKS:
            raise ValueError(f"growth is {growth}, which asks for more than {MOST_LOOKS} looks; a larger one is needed")
    return np.array(found, dtype=np.int64)


def shares(
    bound: str,
    schedule: str,
    delta: float,
    looks: NDArray[np.int64],
    first_look: int,
    growth: float,
    student: bool,
    guard: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log(1 / share of delta) and the normal rule's quantile at each look."""
    share = np.full(looks.size, -math.log(delta))
    quantile = np.zeros(looks.size)
    n_looks = looks.size - 1  # the last one is exact and spends nothing
    if n_looks < 1:
        return share, quantile
    if schedule == "korattikara":
        level = bounds.normal_quantile_from_variances(delta, [1.0])
        quantile = bounds.student_quantile(level, looks, ddof=0)
    elif schedule == "bardenet":
        # Two-sided in the paper, so each side has half of the look's share.
        share = math.log(2.0) - np.log(bounds.look_delta(np.arange(1, looks.size + 1), delta))
    elif bound == "normal":
        # The first crossing on either side ends the race, unless the guard lets it pass: then each crossing counts.
        quantile = normal_quantiles(looks, first_look, growth, -math.log(delta), one_exit=not guard, student=student)
    elif bound != "betting":
        share += math.log(n_looks)
    return share, quantile
