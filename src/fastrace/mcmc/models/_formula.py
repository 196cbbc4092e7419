"""Models written as formulas, with priors scaled as bambi scales them; needs formulae."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace._base._arguments import MEANT
from fastrace._models.glm_inputs import are_counts
from fastrace._models.grouping import Groups, row_numbers
from fastrace.mcmc.models._design import INTERCEPT as _INTERCEPT
from fastrace.mcmc.models._design import Design, NewRows, Scope, Term, designed
from fastrace.mcmc.models._joint import INTERCEPT, OF_UNITS, at_the_means, learns, moments_of
from fastrace.mcmc.models._modes import QuadraticPart
from fastrace.mcmc.models.priors import HalfNormal, Location, Normal

__all__ = ["arguments_of", "arguments_of_classes", "refuse_options", "with_given"]

Array = NDArray[np.float64]

_WIDTH = 2.5  # of a coefficient, in standard deviations of the outcome for each of its column
_LOGIT_WIDTH, _LOGIT_INTERCEPT = 1.0, 1.5  # the same on the scale of log-odds
_ODDS = ("logistic", "binomial", "probit")
_FAMILIES = {"bernoulli": "'logistic', or 'probit' or 'cloglog' by its link", "t": "'student-t'",
             "negativebinomial": "'negative-binomial'"}
_OPTIONS = {  # of bambi, and what to do here
    "priors": "give those of columns as prior=, those of effects of groups as group_prior=, and that of a scale as "
              "scale_prior=",
    "link": "the family says the link, which is that of its name for 'logistic', 'probit' and 'cloglog', the logarithm "
            "for counts and 'gamma', and the identity for 'gaussian' and 'student-t'",
    "categorical": "write C(x) in the formula, or make the column a category: frame.astype({'x': 'category'})",
    "dropna": "drop the rows before, with frame.dropna(subset=[...])",
    "extra_namespace": "names of the place where from_formula is called are known to the formula",
    "auto_scale": "give prior= and group_prior= in place of scaled priors",
    "noncentered": "a kernel moves scales and effects in ways of its own",
    "center_predictors": "the prior of the intercept is that of centred columns, unless prior={'Intercept': ...} is "
                         "given",
}
_OF_CHAINS = ("init", "n_draws", "n_tune", "n_chains", "threads", "progress", "rng", "checkpoint")
_SCALES = {"sigma": "gaussian, student-t", "alpha": "gamma, negative-binomial, where it is 1 / dispersion"}


def refuse_options(family: Any, options: Mapping[str, Any], model: str = "GLM") -> None:
    """Refuse what bambi calls otherwise, and what the formula itself says."""
    if isinstance(family, str) and family in _FAMILIES:
        raise ValueError(f"family is {family!r}; what bambi calls so is {_FAMILIES[family]} here")
    for name in options:
        if name in _OPTIONS:
            raise TypeError(f"{name}= is an option of bambi, not of {model}.from_formula: {_OPTIONS[name]}")
        if name in ("X", "y", "names"):
            raise TypeError(f"{name} was given, and the formula says it: leave it out")
        if MEANT.get(name, name) in _OF_CHAINS:
            raise TypeError(f"{name}= is an option of chains, not of a model: call mcmc.sample(model, "
                            f"{MEANT.get(name, name)}=...)")


def arguments_of(
    formula: str, frame: Any, family: str, given: Mapping[str, Any] | None = None, weights: Any = None,
    scope: Scope = (),
) -> tuple[dict[str, Any], list[str], QuadraticPart | None, tuple[tuple[str, int], ...], NewRows]:
    """Arguments of a `GLM` from a formula: X, y, offset, groups, and priors scaled as bambi does but for those given.

    Rows count as often as `weights` say. Also the names of columns, and what the prior of an intercept of centred
    columns adds to that of the intercept, and the name and number of columns of each term, and what makes new rows.
    """
    design = designed(formula, frame, scope)
    if design.trials is not None and family != "binomial":
        raise ValueError(f"the outcome {design.outcome!r} is successes out of trials, and family is {family!r}; "
                         f"'binomial' is needed")
    names, columns, times = _columns_and_times(design, formula, weights)
    center, spread = _units(design, times) if family in OF_UNITS else (0.0, 1.0)
    prior, part, wide = _scaled(design, columns, names, times, _by_column(design, given), family in _ODDS, center,
                                spread)
    group_prior = {str(group.name): {"sd": _group_sds(group, spread, wide, times)} for group in design.groups}
    found = {"X": columns, "y": design.y, "trials": design.trials, "offset": design.offset,
             "groups": {str(group.name): group for group in design.groups} or None, "prior": prior,
             "group_prior": group_prior or None}
    return found, names, part, tuple((term.name, len(term.labels)) for term in design.terms), design.new_rows


def arguments_of_classes(
    formula: str, frame: Any, given: Mapping[str, Any] | None = None, weights: Any = None, scope: Scope = (),
) -> tuple[dict[str, Any], list[str], QuadraticPart | None, tuple[tuple[str, int], ...], NewRows]:
    """The same of a `Softmax`, whose classes are the levels of the outcome; of each class priors are those of log-odds.
    """
    from pandas import Categorical

    design = designed(formula, frame, scope, by_level=True)
    if design.groups:
        raise ValueError(f"{formula!r} has effects of groups ({', '.join(design.effects)}), and priors of those of a "
                         f"Softmax are not scaled by a formula: leave them out, or give Softmax(X, y, groups=...) "
                         f"columns of numbers; GLM.from_formula takes them for one level of the outcome")
    if design.offset is not None:
        raise ValueError(f"{formula!r} has an offset, and each class has a predictor of its own: leave it out, and "
                         f"give offset=, a table with a column for each class")
    names, columns, times = _columns_and_times(design, formula, weights)
    levels = [str(level) for level in design.levels]
    places = {f"{name}[{level}]": (name, level) for level in levels[1:] for name in names}
    apart = {name: own for name, own in given.items() if name in places and name not in names} if isinstance(
        given, Mapping) else {}
    own = _by_column(design, given if not apart else {n: p for n, p in (given or {}).items() if n not in apart})
    prior: dict[str, Any] = {}
    parts = []
    for level in levels[1:]:
        of_level = {**own, **{places[n][0]: p for n, p in apart.items() if places[n][1] == level}}
        found, part, _ = _scaled(design, columns, names, times, of_level, True, 0.0, 1.0)
        prior |= {f"{name}[{level}]": found[name] for name in names}
        parts.append(part)
    y = Categorical.from_codes(design.y.astype(int), categories=list(design.levels))
    return ({"X": columns, "y": y, "prior": prior}, names, _side_by_side(parts, len(names)),
            tuple((term.name, len(term.labels)) for term in design.terms), design.new_rows)


def _side_by_side(parts: list[QuadraticPart | None], width: int) -> QuadraticPart | None:
    """Of predictors whose coefficients, `width` each, stand one after the other."""
    if all(part is None for part in parts):
        return None
    precision, shift = np.zeros((len(parts) * width,) * 2), np.zeros(len(parts) * width)
    centred: list[tuple[int, float, float]] = []
    for k, part in enumerate(parts):
        if part is not None:
            own = slice(k * width, (k + 1) * width)
            precision[own, own], shift[own] = part.precision, part.shift
            centred += [(place + k * width, mean, sd) for place, mean, sd in part.centred]
    return QuadraticPart(precision, shift, tuple(centred))


def _columns_and_times(design: Design, formula: str, weights: Any) -> tuple[list[str], Array, Array | None]:
    """Names and table of the common columns, and how often each row counts."""
    names = [label for term in design.terms for label in term.labels]
    if not names:
        raise ValueError(f"{formula!r} has no common term, neither an intercept nor a column; at least one is needed")
    columns = np.column_stack([term.table for term in design.terms])
    times = row_numbers(weights, "weights", len(design.y), are_counts, "a whole number from 0 up")
    # a model refuses rows that all count nothing
    return names, columns, None if times is None or not times.any() else times


def _scaled(
    design: Design, columns: Array, names: list[str], times: Array | None, own: dict[str, Any], odds: bool,
    center: float, spread: float,
) -> tuple[dict[str, Any], QuadraticPart | None, float]:
    """Scaled priors of one predictor's columns with `own` in their place, what the intercept's is besides, its width.
    """
    slopes = {label: sd for term in design.terms if not term.intercept
              for label, sd in _sds(term, own, odds, spread, times).items()}
    means = columns.mean(axis=0) if times is None else moments_of(columns, times)[0]
    shift = _shift(means, names, slopes)
    wide = math.sqrt((_WIDTH * spread) ** 2 + shift)
    prior: dict[str, Any] = {**{n: Normal(0.0, sd) for n, sd in slopes.items()}, **own}
    part = None
    if _INTERCEPT in names and _INTERCEPT not in own:
        width = _LOGIT_INTERCEPT if odds else wide
        apart = math.hypot(width, math.sqrt(shift)) if odds else wide
        prior[_INTERCEPT] = Normal(center, apart)
        part = at_the_means(means, names.index(_INTERCEPT), Normal(center, width), prior[_INTERCEPT])
    return prior, part, wide


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


def _by_column(design: Design, given: Any) -> dict[str, Any]:
    """Priors that were given by names of columns, or of terms, whose columns they are all for."""
    terms = {term.name: term.labels for term in design.terms}
    if isinstance(given, Location):
        given = {name: given for name in terms if name != _INTERCEPT or not learns(given)}
    if not isinstance(given, Mapping | None):
        raise TypeError(f"prior is {_checks.shown(given)}; one for all columns, such as mcmc.Normal(0.0, 2.5), or a "
                        f"dict of priors by name of column is needed, such as {{'Intercept': mcmc.Normal(0.0, 2.5)}}")
    columns = {label for labels in terms.values() for label in labels}
    whole: dict[str, Any] = {}
    single: dict[str, Any] = {}
    for name, prior in (given or {}).items():
        name = _INTERCEPT if name == INTERCEPT and name not in columns else name
        if name in columns:
            single[name] = prior
        elif name in terms:
            whole |= dict.fromkeys(terms[name], prior)
        else:
            raise ValueError(f"prior names {name!r}{_elsewhere(name, design)}; the columns are "
                             f"{', '.join(map(repr, sorted(columns)))}, and the terms {', '.join(map(repr, terms))}")
    return {**whole, **single}


def _elsewhere(name: str, design: Design) -> str:
    """Where a prior is given that is not one of a column."""
    if name in design.effects:
        effect, _, factor = name.partition("|")
        return f", which is given as group_prior={{{factor!r}: {{'sd': {{{effect!r}: mcmc.HalfNormal(1.0)}}}}}}"
    if name in _SCALES:
        return f", which is given as scale_prior= ({_SCALES[name]})"
    return ""


def _units(design: Design, times: Array | None) -> tuple[float, float]:
    """Mean and standard deviation of the outcome, in whose units predictors are."""
    center, spread = _moments(design.y, f"the outcome {design.outcome!r}", times)
    if not spread > 0.0:
        raise ValueError(f"the outcome {design.outcome!r} is {design.y[0]:g} in every row, or as good as: there is "
                         f"nothing to explain, and no prior can be scaled by its standard deviation")
    return center, spread


def _moments(values: Array, called: str, times: Array | None) -> tuple[float, float]:
    """Mean and standard deviation of finite numbers, of which row i stands `times[i]` times."""
    with np.errstate(over="ignore", invalid="ignore"):
        center, spread = map(float, moments_of(values, times))
    if not math.isfinite(spread):
        raise ValueError(f"{called} holds {np.abs(values).max():.3g}, whose square overflows: scale it down")
    return center, spread


def _sds(term: Term, given: Mapping[str, Any], odds: bool, spread: float, times: Array | None) -> dict[str, float]:
    """Prior standard deviations of a term's columns but those given: wide enough for any effect, in units of the data.

    On the scale of log-odds, categories have one width, and an interaction of numbers with others is as wide in all of
    its columns as their sum asks for, which is the number whichever category a row has.
    """
    free = [j for j, label in enumerate(term.labels) if label not in given]
    if odds and term.categoric:
        return {term.labels[j]: _LOGIT_WIDTH for j in free}
    if odds and term.interaction and free:
        width = _LOGIT_WIDTH / _spread(term.table.sum(axis=1), term.name, times)
        return {term.labels[j]: width for j in free}
    width = _LOGIT_WIDTH if odds else _WIDTH * spread
    return {term.labels[j]: width / _spread(term.table[:, j], term.labels[j], times) for j in free}


def _shift(means: Array, names: list[str], sds: dict[str, float]) -> float:
    """Prior variance of the predictor at the mean of the columns that have a scaled prior."""
    return sum((sds[n] * float(means[j])) ** 2 for j, n in enumerate(names) if n in sds)


def _spread(column: Array, label: str, times: Array | None, of_groups: bool = False) -> float:
    """Standard deviation of a column, whose rows count `times` times.

    Of a level that no row that counts has, of which the prior alone speaks, all rows do.
    """
    if times is not None and not column[times > 0.0].any():
        times = None
    sd = _moments(column, f"the column {label!r}", times)[1]
    if sd > 0.0:
        return sd
    if of_groups:
        raise ValueError(f"{label!r} is constant, so the effects of groups on its coefficient cannot be told from "
                         f"those on the intercept: leave it out, or write 1 for it")
    if not column.any():
        raise ValueError(f"the column {label!r} is 0 in every row, so the data say nothing of its coefficient, and its "
                         f"prior cannot be scaled by its standard deviation: leave it out, or give its prior, as "
                         f"prior={{{label!r}: mcmc.Normal(0.0, 1.0)}}")
    raise ValueError(f"the column {label!r} is constant, so its coefficient cannot be told from the intercept: leave "
                     f"it out, or, where there is no intercept, write 1 for it")


def _group_sds(group: Groups, spread: float, wide: float, times: Array | None) -> dict[str, HalfNormal]:
    """Priors of the standard deviations of a factor's effects, by what they multiply."""
    own = {"1": HalfNormal(wide)} if group.intercept else {}
    if group.table is not None:
        for label, column in zip(group.slope_names, group.table.T, strict=True):
            own[label] = HalfNormal(_WIDTH * spread / _spread(column, label, times, of_groups=True))
    return own
