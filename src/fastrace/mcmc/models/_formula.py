"""Models written as formulas, as in R and bambi; needs formulae."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace._models.glm_inputs import are_counts
from fastrace._models.grouping import Groups, row_numbers
from fastrace.mcmc.models._joint import INTERCEPT, at_the_means, moments_of
from fastrace.mcmc.models._modes import QuadraticPart
from fastrace.mcmc.models.priors import HalfNormal, Normal

__all__ = ["arguments_of", "with_given"]

Array = NDArray[np.float64]

_INTERCEPT = "Intercept"
_WIDTH = 2.5  # of a coefficient, in standard deviations of the outcome for each of its column
_LOGIT_WIDTH, _LOGIT_INTERCEPT = 1.0, 1.5  # the same on the scale of log-odds
_ODDS = ("logistic", "binomial", "probit")
_FUNCTIONS = {name: getattr(np, name) for name in ("log", "log2", "log10", "exp", "exp2", "abs")}  # bambi has these
_UNITS = ("gaussian", "student-t")  # families whose predictors have the units of the outcome


def arguments_of(
    formula: str, frame: Any, family: str, given: Mapping[str, Any] | None = None, weights: Any = None
) -> tuple[dict[str, Any], list[str], QuadraticPart | None]:
    """Arguments of a `GLM` from a formula: X, y, offset, groups, and priors scaled as bambi does but for those given.

    Rows count as often as `weights` say. Also the names of columns, and what the prior of an intercept of centred
    columns adds to that of the intercept.
    """
    if not isinstance(formula, str) or not formula.split("~")[0].strip() or "~" not in formula:
        raise ValueError(f'formula is {_checks.shown(formula)}; words such as "y ~ x + (1 + x | g)" are needed')
    design = _designed(formula, frame)
    y, trials = _outcome(design, family)
    columns, names, offset = _columns(design, len(y))
    times = row_numbers(weights, "weights", len(y), are_counts, "a whole number from 0 up")
    times = None if times is None or not times.any() else times     # `GLM` refuses rows that all count nothing
    center, spread = map(float, moments_of(y, times)) if family in _UNITS else (0.0, 1.0)
    groups, sds = _groups(design, times)
    if not isinstance(given, Mapping | None):
        raise TypeError(f"prior is {_checks.shown(given)}; a dict of priors by name of column is needed, such as "
                        f"{{'Intercept': mcmc.Normal(0.0, 2.5)}}")
    given = {_INTERCEPT if name == INTERCEPT else name: own for name, own in (given or {}).items()}
    slopes = {n: sd for n, sd in _priors(design, columns, family, spread, times).items() if n not in given}
    means = columns.mean(axis=0) if times is None else moments_of(columns, times)[0]
    shift = _shift(means, names, slopes)
    wide = math.sqrt((_WIDTH * spread) ** 2 + shift)
    prior: dict[str, Any] = {**{n: Normal(0.0, sd) for n, sd in slopes.items()}, **given}
    part = None
    if _INTERCEPT in names and _INTERCEPT not in given:
        width = _LOGIT_INTERCEPT if family in _ODDS else wide
        own = math.hypot(width, math.sqrt(shift)) if family in _ODDS else wide
        prior[_INTERCEPT] = Normal(center, own)
        part = at_the_means(means, names.index(_INTERCEPT), Normal(center, width), prior[_INTERCEPT])
    group_prior = {
        factor: {"sd": {term: HalfNormal(_WIDTH * spread / sd if term != "1" else wide) for term, sd in terms.items()}}
        for factor, terms in sds.items()
    }
    if not names:
        raise ValueError(f"{formula!r} has no common term, neither an intercept nor a column; at least one is needed")
    found = {"X": columns, "y": y, "trials": trials, "offset": offset, "groups": groups or None, "prior": prior,
             "group_prior": group_prior or None}
    return found, names, part


def with_given(scaled: dict[str, Any] | None, given: Any) -> Any:
    """Scaled priors of the effects of groups, with those that were given, in any form of `GLM`, in their place."""
    if given is None or not scaled or not isinstance(given, Mapping):
        return scaled if given is None else given
    if not set(given) <= set(scaled) and set(given) <= {"sd", "correlation"}:
        given = dict.fromkeys(scaled, given)
    merged = {**scaled, **given}
    for factor in set(scaled).intersection(given):
        own = given[factor]
        if isinstance(own, Mapping):
            merged[factor] = {**scaled[factor], **own}
            if isinstance(own.get("sd"), Mapping):
                merged[factor]["sd"] = {**scaled[factor]["sd"], **own["sd"]}
    return merged


def _designed(formula: str, frame: Any) -> Any:
    try:
        from formulae import design_matrices
        from formulae.parser import ParseError
        from formulae.scanner import ScanError
    except ImportError as error:
        raise ImportError('GLM.from_formula needs formulae: python -m pip install "formulae>=0.5"') from error
    if hasattr(frame, "to_pandas"):
        frame = frame.to_pandas()
    if not (hasattr(frame, "columns") and hasattr(frame, "iloc")):
        raise TypeError(f"frame is {_checks.shown(frame)} of type {type(frame).__name__}; a pandas.DataFrame whose "
                        f"columns the formula names is needed, such as pandas.DataFrame(columns_by_name)")
    if not len(frame):
        raise ValueError("frame has no rows; a model needs a row per outcome")
    try:
        with np.errstate(divide="ignore", invalid="ignore"):        # of logarithms; numbers are looked at afterwards
            return design_matrices(formula, frame, na_action="error", extra_namespace=_FUNCTIONS)
    except KeyError as error:
        known = ", ".join(repr(str(c)) for c in getattr(frame, "columns", []))
        raise ValueError(f"{formula!r} names {error}; the frame has {known}") from error
    except (ParseError, ScanError) as error:
        raise ValueError(f"{formula!r} is not a whole formula: {error}") from error
    except ValueError as error:
        if "unrecognized type" in str(error):
            raise ValueError(f"a column that {formula!r} names is neither numbers nor words, such as times, or stands "
                             f"twice in the frame ({error}); {_kinds(frame)}") from error
        if "incomplete" not in str(error):
            raise
        short = [f"{name!r} ({count})" for name, count in frame.isna().sum().items() if count]
        raise ValueError(f"columns that {formula!r} names have missing values: {error} Missing in the frame: "
                         f"{', '.join(short[:20])}. Every row needs all of them, so drop or fill those rows") from error


def _kinds(frame: Any) -> str:
    """What the columns are that no formula takes."""
    columns = [str(name) for name in frame.columns]
    odd = [f"{name!r} is {kind}" for name, kind in zip(columns, frame.dtypes, strict=True)
           if getattr(kind, "kind", "O") not in "biufO" and str(kind) not in ("category", "string", "str")]
    odd += [f"{name!r} stands {columns.count(name)} times" for name in dict.fromkeys(columns)
            if columns.count(name) > 1]
    return "; ".join(odd[:10]) or "make it numbers or strings"


def _outcome(design: Any, family: str) -> tuple[Array, Array | None]:
    """Outcomes, and of successes out of trials the trials."""
    y = np.asarray(design.response.design_matrix, dtype=np.float64)
    for part in getattr(design.response.term.term, "components", ()):
        level, levels = getattr(part, "reference", None), getattr(part, "levels", None)
        if level is not None and levels is not None and level not in list(levels):
            raise ValueError(f"the outcome {design.response.name!r} has no level {level!r}, so it would be 0 in every "
                             f"row; its levels are {', '.join(map(repr, levels))}")
    if design.response.kind == "proportion":
        if family != "binomial":
            raise ValueError(f"the outcome {design.response.name!r} is successes out of trials, and family is "
                             f"{family!r}; 'binomial' is needed")
        return np.ascontiguousarray(y[:, 0]), np.ascontiguousarray(y[:, 1])
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(
            f"the outcome {design.response.name!r} has {y.shape[1]} columns; one number a row is needed: write "
            f"\"{design.response.name}['level'] ~ ...\" for whether an outcome in words is that level"
        )
    return y, None


def _columns(design: Any, n: int) -> tuple[Array, list[str], Array | None]:
    """The table of common terms, the names of its columns, and the sum of the offsets."""
    tables: list[Array] = []
    names: list[str] = []
    offset: Array | None = None
    for term in ({} if design.common is None else design.common.terms).values():
        data = np.asarray(term.data, dtype=np.float64)
        if term.kind == "offset":
            offset = np.broadcast_to(data, n) + (0.0 if offset is None else offset)
            continue
        tables.append(data.reshape(n, -1))
        names += list(term.labels)
    return np.column_stack([np.empty((n, 0)), *tables]), names, offset


def _priors(design: Any, columns: Array, family: str, spread: float, times: Array | None) -> dict[str, float]:
    """Prior standard deviations of columns but the intercept: wide enough for any effect, in units of the data."""
    out: dict[str, float] = {}
    first = 0
    for term in ({} if design.common is None else design.common.terms).values():
        if term.kind in ("offset", "intercept"):
            first += len(term.labels) if term.kind == "intercept" else 0
            continue
        labels = list(term.labels)
        table = columns[:, first : first + len(labels)]
        for column, label in zip(table.T, labels, strict=True):
            if family in _ODDS:
                sd = _LOGIT_WIDTH if _is_categoric(term) else _LOGIT_WIDTH / _spread(table, label, times)
            else:
                sd = _WIDTH * spread / _spread(column, label, times)
            out[label] = sd
        first += len(labels)
    return out


def _shift(means: Array, names: list[str], sds: dict[str, float]) -> float:
    """Prior variance of the predictor at the mean of the columns that have a scaled prior."""
    return sum((sds[n] * float(means[j])) ** 2 for j, n in enumerate(names) if n in sds)


def _is_categoric(term: Any) -> bool:
    components = getattr(getattr(term, "term", term), "components", None)
    if term.kind == "interaction" and components is not None:
        return all(getattr(c, "kind", None) == "categoric" for c in components)
    return bool(term.kind == "categoric")


def _spread(table: Array, label: str, times: Array | None) -> float:
    """Standard deviation of a column, or of the sum of several, of which each row has one that is not 0.

    Rows count `times` times. Of a level that no row that counts has, of which the prior alone speaks, all rows do.
    """
    summed = table if table.ndim == 1 else table.sum(axis=1)
    odd = np.flatnonzero(~np.isfinite(summed))
    if odd.size:
        raise ValueError(f"the column {label!r} is {summed[odd[0]]} in row {odd[0]}, and not finite in "
                         f"{counted(odd.size, 'row')}; every row needs a real number: mend or drop those rows")
    if times is not None and not summed[times > 0.0].any():
        times = None
    sd = float(moments_of(summed, times)[1])
    if not sd > 0.0:
        raise ValueError(f"the column {label!r} is constant, so its coefficient cannot be told from the intercept: "
                         f"leave it out")
    return sd


def _groups(design: Any, times: Array | None) -> tuple[dict[str, Groups], dict[str, dict[str, float]]]:
    """Grouping factors by name, and the standard deviation of what each effect multiplies; 1 for intercepts."""
    collected: dict[str, list[Any]] = {}
    for term in ({} if design.group is None else design.group.terms).values():
        collected.setdefault(term.factor.name, []).append(term)
    groups: dict[str, Groups] = {}
    spreads: dict[str, dict[str, float]] = {}
    for name, terms in collected.items():
        intercept, slopes, labels = False, [], []
        for term in terms:
            if term.kind == "intercept":
                intercept = True
                continue
            data = np.asarray(term.expr.data, dtype=np.float64)
            slopes.append(data.reshape(len(data), -1))
            labels += list(term.expr.labels)
        codes = np.asarray(terms[0].factor.data).argmax(axis=1).astype(np.int32)
        numbers = SimpleNamespace(categories=np.array(list(terms[0].groups), dtype=object), codes=codes)
        table = dict(zip(labels, np.column_stack(slopes).T, strict=True)) if slopes else None
        groups[name] = Groups(numbers, table, intercept, correlated=False, name=name)
        own = {} if table is None else {label: _spread(column, label, times) for label, column in table.items()}
        spreads[name] = {**({"1": 1.0} if intercept else {}), **own}
    return groups, spreads
