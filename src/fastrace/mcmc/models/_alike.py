"""Effects of groups that outcomes cannot tell apart, in words; the posterior is proper, and chains are slow in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fastrace._models.grouping import Factor
from fastrace.likelihoods import GLMSource
from fastrace.mcmc.models._joint import Effects

__all__ = ["doubts"]

_AT_ONCE = 1 << 20  # rows
_ALIKE = "only the sum of such effects shows in the rows, so that chains are slow in what each is"


def doubts(source: GLMSource, effects: Sequence[Effects]) -> tuple[str, ...]:
    """What is doubtful about the grouping factors, one sentence each, with what to do.

    `effects` are those of the factors, with the spreads of what they multiply.
    """
    factors = list(zip(source.factors, effects, strict=True))
    out = []
    if factors and (always := _always(source)):
        out.append(f"y is {always} in every row: no row tells groups apart, and the prior alone keeps the intercept "
                   f"and the effects finite. Look at the outcome; if it is right, leave groups out, and say by the "
                   f"prior of the intercept how large or small it can be")
    for k, (factor, own) in enumerate(factors):
        if factor.n_groups == 1:
            out.append(f"groups {factor.name!r} have one group alone: its effects are the same in all rows, as those "
                       f"of columns are, and no row says how far effects of groups spread, so that the prior decides. "
                       f"Leave {factor.name!r} out")
        constant = _constant(factor, own)[factor.intercept :]
        if factor.intercept and constant:
            out.append(f"groups {factor.name!r} have an intercept each, and a slope of {constant[0]!r}, which is "
                       f"constant: {_ALIKE}. Leave the slope out")
        for other, others in factors[:k]:
            if (shared := _shared(other, others, factor, own)) and _same_partition(other, factor):
                out.append(f"groups {other.name!r} and {factor.name!r} divide the rows alike, and both have "
                           f"{shared}: {_ALIKE}. Leave one of them out")
        if source.outcomes == "binary" and source.weights is None and _one_row_each(factor):
            out.append(f"groups {factor.name!r} have one row each: an outcome that is 0 or 1 says next to nothing of "
                       f"an effect of its own, so that the prior decides how far such effects spread, and chains are "
                       f"slow. Leave {factor.name!r} out")
    return tuple(out)


def _always(source: GLMSource) -> str:
    """What all outcomes are where a predictor without end would fit them best; empty otherwise."""
    if source.outcomes not in ("binary", "count", "share"):
        return ""
    counts = slice(None) if source.term_weights is None else source.term_weights > 0.0
    y = np.asarray(source.y)[counts]
    if not y.any():
        return "0"
    if source.outcomes == "binary" and y.all():
        return "1"
    if source.outcomes == "share" and (y == (1.0 if source.trials is None else source.trials[counts])).all():
        return "the number of trials"
    return ""


def _constant(factor: Factor, own: Effects) -> list[str]:
    """Terms whose effects multiply one number in all rows."""
    spreads = own.spreads
    if factor.table is not None:  # exactly, as those of columns are
        spreads = (*[0.0] * factor.intercept, *np.ptp(factor.table, axis=0).tolist())
    return [term for k, (term, spread) in enumerate(zip(factor.terms, spreads, strict=True))
            if spread == 0.0 or k < factor.intercept]


def _shared(one: Factor, of_one: Effects, other: Factor, of_other: Effects) -> str:
    """What effects of both factors multiply, in words; empty where they multiply different things."""
    if one.intercept and other.intercept:
        return "an intercept"
    places = [j for j in one.columns if j in other.columns]
    if places:
        return f"a slope of {one.terms[one.intercept + one.columns.index(places[0])]!r}"
    for j, table in _columns_of(one):
        for _, values in _columns_of(other):
            if np.array_equal(table, values):
                return f"a slope of {one.terms[one.intercept + j]!r}"
    return "a constant" if _constant(one, of_one) and _constant(other, of_other) else ""


def _columns_of(factor: Factor) -> Iterator[tuple[int, NDArray[np.float64]]]:
    return enumerate([] if factor.table is None else factor.table.T)


def _same_partition(one: Factor, other: Factor) -> bool:
    """Whether two rows are in one group of the one wherever they are in one of the other."""
    there, back = np.full(one.n_groups, -1, np.int32), np.full(other.n_groups, -1, np.int32)
    for first in range(0, len(one.codes), _AT_ONCE):
        a, b = one.codes[first : first + _AT_ONCE], other.codes[first : first + _AT_ONCE]
        for known, here, means in ((there, a, b), (back, b, a)):
            new = known[here] < 0
            known[here[new]] = means[new]
            if (known[here] != means).any():
                return False
    return True


def _one_row_each(factor: Factor) -> bool:
    n = len(factor.codes)
    return n > 1 and factor.n_groups >= n and int(np.bincount(factor.codes).max()) == 1
