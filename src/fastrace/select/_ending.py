"""The end of a table: a selection that has drawn as often as there are cells reads those that could still matter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks, _clock
from fastrace._base._words import missed
from fastrace.select._ledger import Ledger
from fastrace.select._selector import Selector
from fastrace.sources import first_outside, reward_outside

AT_ONCE = 1 << 13       # rows read at once
FURTHER = 1.25          # draws until the end is looked for again, as a factor


def is_due(
    verdict: NDArray[np.int8], chosen: NDArray[np.bool_], drawn: NDArray[np.int64], n_rows: int,
    cost: NDArray[np.float64] | None,
) -> tuple[bool, NDArray[np.intp]]:
    """Whether to end a table now, and the undecided arms that should be drawn more often first.

    It is due once there have been as many draws as cells, or the draws of undecided arms have cost as much as all their
    cells would. And before, where a chosen arm and another have had as many draws as rows, and as many draws again of
    the undecided arms that have had few, less than half of the rows, cost no more than the others have cost. Those few
    draws may be all that lacks to tell these arms apart; the rule needs them as well, to stop by itself.
    """
    undecided = verdict == 0
    if not undecided.any():
        return False, np.zeros(0, np.intp)      # the rule stops by itself
    weight = np.ones(drawn.size) if cost is None else cost
    few = undecided & (2 * drawn < n_rows)
    many = undecided & ~few
    due = int(drawn.sum()) >= n_rows * drawn.size or bool(weight[undecided] @ (drawn[undecided] - n_rows) >= 0.0)
    worn = undecided & (drawn >= n_rows)
    if (worn & chosen).any() and (worn & ~chosen).any():
        due = due or bool(weight[few] @ drawn[few] <= weight[many] @ drawn[many])
    return due, np.flatnonzero(few)


def read_in_full(
    core: Selector, ledger: Ledger, arms: NDArray[np.intp], support: tuple[NDArray[np.float64], NDArray[np.float64]],
    missing: str, end: float,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Means of arms over all rows, and how many of their rewards are missing."""
    low, high = support[0][arms], support[1][arms]
    total, n_there, n_gone = np.zeros(arms.size), np.zeros(arms.size), np.zeros(arms.size, np.int64)
    for first in range(0, ledger.n_rows, AT_ONCE):
        if _clock.over(end):
            raise _clock.OutOfTime
        block = ledger.read(np.arange(first, min(first + AT_ONCE, ledger.n_rows)), arms)
        gone = np.isnan(block)
        if missing != "raise" and gone.any():
            n_gone += gone.sum(axis=0)
            block = np.where(gone, low, block)
        bad = first_outside(block, low, high)
        if bad is not None:
            row, k = bad
            said = reward_outside(float(block[row, k]), int(arms[k]), first + row, float(low[k]), float(high[k]),
                                  "widen support or scale the rewards")
            raise _checks.arm_error(core, int(arms[k]), said)
        there = ~gone if missing == "drop" else np.ones_like(gone)
        total += np.sum(block, axis=0, where=there)
        n_there += there.sum(axis=0)
    if not n_there.all():
        arm = int(arms[np.argmin(n_there)])
        raise _checks.arm_error(core, arm, f"no row of the table holds a reward of arm {arm}; leave it out, or take "
                                           f"missing='worst'")
    return total / n_there, n_gone


def answer(
    known: dict[str, Any], exact: dict[str, Any], spans: NDArray[np.float64], n_best: int, missing: str
) -> dict[str, Any]:
    """What `known`, of the draws, becomes once the means of the undecided arms are known exactly."""
    verdict, values = exact["verdict"], exact["mean"]
    read = verdict == 0
    mean = np.where(read, values, known["mean"])
    sure = np.flatnonzero(verdict == 1)
    open_ = np.flatnonzero(read)
    open_ = open_[np.argsort(-mean[open_], kind="stable")]
    places = n_best - sure.size
    best = np.concatenate([sure, open_[:places]])
    best = np.sort(best)[np.argsort(-mean[np.sort(best)], kind="stable")]
    last, others = mean[open_[places - 1]], open_[places:]
    size = np.minimum(spans, np.abs(mean[open_]).max())         # rewards without a support have the widest of spans
    tied = others[mean[others] >= last - 1e-12 * size[others]]
    warnings: tuple[str, ...] = () if read.all() else known["warnings"]
    if read.all() and exact["gone"].any():
        warnings = (missed(missing, int(exact["gone"].sum())),)
    if tied.size:
        which, has, was = ("arm", "has", "was") if tied.size == 1 else ("arms", "have", "were")
        shown = ", ".join(str(arm) if known["names"] is None else known["names"][arm] for arm in tied[:10].tolist())
        more = f" and {tied.size - 10} more" if tied.size > 10 else ""
        warnings += (f"{which} {shown}{more} {has} the same mean as the last selected arm and {was} left out",)
    found = {
        "best": best, "mean": mean, "lower": np.where(read, mean, known["lower"]),
        "upper": np.where(read, mean, known["upper"]), "cutoff": math.nan, "shortfall": 0.0, "arm_error": None,
        "warnings": warnings,
    }
    if read.all():
        return found | {"error_bound": 0.0, "kind": "exact", "first_look": None}
    return found | {"error_bound": known["delta"]}


def differences(
    found: NDArray[np.float64] | None, mean: NDArray[np.float64], leader: int, verdict: NDArray[np.int8]
) -> NDArray[np.float64] | None:
    """Intervals of all means less that of the leader: points where both means are known exactly."""
    both = (verdict == 0) & (verdict[leader] == 0)
    if found is None and not both.all():
        return None
    exact = np.repeat((mean - mean[leader])[:, None], 2, axis=1)
    return exact if found is None else np.where(both[:, None], exact, found)
