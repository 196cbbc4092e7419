"""Means of new rows at the draws of a trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fastrace._base import _checks, _frames
from fastrace._base._words import counted
from fastrace._models._softmax import offset_table
from fastrace._models.grouping import Factor, Groups, as_groups, known_name, row_numbers
from fastrace._models.softmax_sums import by_class
from fastrace.mcmc._moving import moving

__all__ = ["predicted_glm", "predicted_softmax"]

Array = NDArray[np.float64]

_AT_ONCE = 250_000  # numbers, which the second-level cache holds
_SAMPLED = 16  # one of so many numbers says below which number the smallest ones are


def _logistic(eta: Array) -> Array:
    """In half of the time of `scipy.special.expit`, which takes one number after the other."""
    with np.errstate(over="ignore"):
        np.exp(np.negative(eta, out=eta), out=eta)
    eta += 1.0
    return np.divide(1.0, eta, out=eta)


_INVERSES: dict[str, Callable[[Array], Array]] = {  # from predictors to means
    "logistic": _logistic,
    "binomial": _logistic,
    "probit": special.ndtr,
    "cloglog": lambda eta: -np.expm1(-np.exp(eta)),
    "poisson": np.exp,
    "negative-binomial": np.exp,
    "gamma": np.exp,
    "gaussian": np.array,
    "student-t": np.array,
}


def predicted_glm(
    model: Any, trace: Any, X: Any, offset: ArrayLike | None, groups: Any, new_levels: bool, rng: _checks.RngLike,
    interval: float | None,
) -> Array:
    """`GLM.predict`."""
    _frames.require_same_rows(X=X, offset=offset, groups=groups)
    draws = _draws_of(model, trace)
    X, offset, groups = _by_formula(model, X, offset, groups)
    table = _table(X, model.column_names, model.n_columns)
    n = table.shape[0]
    shift = row_numbers(offset, "offset", n, lambda v: np.isfinite(v), "finite")
    effects = [_effects(model, factor, own, draws, new_levels, rng)
               for factor, own in zip(model.factors, _new_groups(model.factors, groups, n), strict=True)]
    effects = [(codes, slopes, np.ascontiguousarray(np.moveaxis(values, 0, 2))) for codes, slopes, values in effects]
    inverse, p = _INVERSES[model._glm.family], model.n_columns

    def means(part: slice) -> Array:
        eta = _dense(table[part]) @ draws[:, :p].T
        for factor, (codes, slopes, values) in zip(model.factors, effects, strict=True):
            across = _across(factor, slopes, table, part)
            for k in range(factor.width):
                eta += values[codes[part], k] * across[:, k, None]
        if shift is not None:
            eta += shift[part, None]
        return inverse(eta)

    return _kept(means, len(draws), n, (), interval)


def predicted_softmax(
    model: Any, trace: Any, X: Any, offset: ArrayLike | None, groups: Any, interval: float | None
) -> Array:
    """`Softmax.predict`."""
    _frames.require_same_rows(X=X, offset=offset, groups=groups)
    draws, classes, p = _draws_of(model, trace), model.n_classes, model.n_columns
    X, offset, groups = _by_formula(model, X, offset, groups)
    table, factors = _table(X, model.column_names, p), model._data.rows.factors
    n = table.shape[0]
    shift = None
    if offset is not None:
        shift = offset_table(_frames.in_order(offset, model.classes, "offset", "classes"), (n, classes))
    effects = []
    for factor, own in zip(factors, _new_groups(factors, groups, n), strict=True):
        codes, unknown = _codes(factor, own)
        _refuse_unknown(factor, unknown, "")
        effects.append((factor, factor.start + factor.width * codes, _own_slopes(factor, own)))
    theta = by_class(model._data, draws[:, : model.n_seen].T)

    def means(part: slice) -> Array:
        eta, rows = np.zeros((part.stop - part.start, classes, len(draws))), _dense(table[part])
        for k in range(1, classes):
            eta[:, k] = rows @ theta[k - 1, :p]
        for factor, places, slopes in effects:
            across = _across(factor, slopes, table, part)
            for t in range(factor.width):
                eta[:, 1:] += np.moveaxis(theta[:, places[part] + t], 0, 1) * across[:, t, None, None]
        if shift is not None:
            eta += shift[part, :, None]
        return np.asarray(special.softmax(eta, axis=1))

    return _kept(means, len(draws), n, (classes,), interval)


def _draws_of(model: Any, trace: Any) -> Array:
    if not hasattr(trace, "draws"):
        raise TypeError(f"trace is {_checks.shown(trace)}; the Trace that mcmc.sample(model) returned is needed")
    out = moving(model, trace).reshape(-1, model.dim)
    if not len(out):
        raise ValueError("the trace has no draws; at least one is needed")
    return out


def _by_formula(model: Any, X: Any, offset: Any, groups: Any) -> tuple[Any, Any, Any]:
    """The columns of a formula's design out of a frame that has the columns it names, with its offset and groups.

    A frame that has those of the design itself, and all else, stay as they are.
    """
    rows, names = model._new_rows, _frames.column_names(X)
    if rows is None or names is None:
        return X, offset, groups
    found = rows.read(X)
    if found is None:
        design = model.column_names[: sum(count for _, count in model._terms)]
        if set(design) <= set(names):
            return X, offset, groups
        missing = [name for name in rows.columns if name not in names]
        raise ValueError(f"X lacks the {'column' if len(missing) == 1 else 'columns'} "
                         f"{', '.join(map(repr, missing[:20]))}, which {rows.formula!r} names; it has "
                         f"{', '.join(map(repr, names[:20]))}. The columns that the formula names after the ~ are "
                         f"needed, or those of its design: {', '.join(map(repr, design[:20]))}")
    for name, given, own in (("offset", offset, rows.has_offset), ("groups", groups, rows.has_groups)):
        if given is not None and own:
            raise ValueError(f"{name} was given, and {rows.formula!r} reads it from the columns of X: leave it out")
    table, apart, factors = found
    return table, offset if apart is None else apart, factors or groups


def _table(X: Any, columns: Sequence[str], p: int) -> Any:
    """New rows with the columns of the model; those of a frame by name, whatever else it has."""
    names = _frames.column_names(X)
    if names is not None and not (len(names) == p and _frames.only_numbered(getattr(X, "columns", names))):
        missing = [name for name in columns if name not in names]
        if missing:
            raise ValueError(f"X lacks the {'column' if len(missing) == 1 else 'columns'} "
                             f"{', '.join(map(repr, missing[:20]))}; the model has "
                             f"{', '.join(map(repr, columns[:20]))}, and X {', '.join(map(repr, names[:20]))}")
        keys = dict(zip(names, getattr(X, "columns", X) if hasattr(X, "iloc") or isinstance(X, Mapping) else names,
                        strict=True))       # which need not be words
        X = {name: X[keys[name]] for name in columns}
    table = X.tocsr() if hasattr(X, "tocsr") else np.asarray(_frames.as_table(X, "X", "a table of numbers"))
    if table.ndim != 2 or table.shape[1] != p or table.dtype.kind not in "fiub":
        raise ValueError(f"X has shape {table.shape} and dtype {table.dtype}; real numbers of shape (n, {p}), with the "
                         f"columns {', '.join(map(repr, columns[:20]))}, are needed")
    if not np.isfinite(table.data if hasattr(table, "nnz") else table).all():
        raise ValueError("X is not finite in every entry; finite numbers are needed")
    return table


def _dense(rows: Any) -> Array:
    return np.asarray(rows.toarray() if hasattr(rows, "nnz") else rows, dtype=np.float64)


def _new_groups(factors: Sequence[Factor], groups: Any, n: int) -> list[Groups]:
    """For each factor of the model, the groups of the new rows."""
    given = as_groups(groups)
    named = {group.name: group for group in given if group.name is not None}
    out = []
    for k, factor in enumerate(factors):
        own = named.get(factor.name, given[k] if k < len(given) and given[k].name is None else None)
        if own is None:
            raise ValueError(f"groups of {factor.name!r} are needed, one for each new row; the model has factors "
                             f"{', '.join(repr(f.name) for f in factors)}, and groups {list(named) or 'none'}")
        if len(own.codes) != n:
            raise ValueError(f"groups {factor.name!r} have {len(own.codes)} rows; {n}, as many as X, are needed")
        out.append(own)
    if len(given) != len(factors):
        raise ValueError(f"groups are {counted(len(given), 'factor')}; the model has {len(factors)}")
    return out


def _codes(factor: Factor, own: Groups) -> tuple[NDArray[np.intp], list[Hashable]]:
    """Numbers of the groups of new rows, and the levels that the model does not have, numbered after its own."""
    known = {level: k for k, level in enumerate(factor.levels)}
    names = [known_name(level, known) for level in own.levels]
    unknown = list(dict.fromkeys(names[k] for k in np.unique(own.codes) if names[k] not in known))
    number = {**known, **{level: len(known) + k for k, level in enumerate(unknown)}}
    where = np.array([number.get(name, -1) for name in names], dtype=np.intp)
    return where[own.codes], list(unknown)


def _refuse_unknown(factor: Factor, unknown: list[Hashable], remedy: str) -> None:
    if unknown:
        some = ", ".join(map(repr, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        raise ValueError(f"the model has no effects of {some} of {factor.name!r}: the trace knows the "
                         f"{counted(factor.n_groups, 'group')} that had rows{remedy}")


def _effects(
    model: Any, factor: Factor, own: Groups, draws: Array, new_levels: bool, rng: _checks.RngLike
) -> tuple[NDArray[np.intp], Array | None, Array]:
    """Codes of the rows, their slopes if these are no columns of X, and effects of shape (draws, levels, effects)."""
    codes, unknown = _codes(factor, own)
    values = draws[:, factor.start : factor.stop].reshape(len(draws), factor.n_groups, factor.width)
    if not new_levels:
        _refuse_unknown(factor, unknown, ". new_levels=True draws effects of others from their distribution")
    slopes = _own_slopes(factor, own)
    if unknown:
        values = np.concatenate([values, _drawn(model, factor, draws, len(unknown), rng)], axis=1)
    return codes, slopes, values


def _own_slopes(factor: Factor, own: Groups) -> Array | None:
    """What the slopes of new rows multiply; None if these are columns of X, or there are none."""
    if factor.table is None and own.table is not None:
        raise ValueError(f"groups {factor.name!r} have a table of slopes, and those of the model are "
                         f"{', '.join(map(repr, factor.terms[factor.intercept:])) or 'none'}, as X has them: give the "
                         f"groups alone")
    if factor.table is not None:
        if own.table is None or own.table.shape[1] != factor.table.shape[1]:
            raise ValueError(f"groups {factor.name!r} have slopes of a table of {factor.table.shape[1]} columns, which "
                             f"new rows must have too: mcmc.Groups(codes, slopes=table)")
        return np.asarray(own.slopes_by(factor.terms[factor.intercept :], factor.name))
    return None


def _across(factor: Factor, slopes: Array | None, table: Any, part: slice) -> Array:
    """What the effects of some new rows multiply, shape (count, width)."""
    across = np.ones((part.stop - part.start, int(factor.intercept)))
    if slopes is None and not factor.columns:
        return across
    more = slopes[part] if slopes is not None else _dense(table[part])[:, list(factor.columns)]
    return np.column_stack([across, more])


def _drawn(model: Any, factor: Factor, draws: Array, count: int, rng: _checks.RngLike) -> Array:
    """Effects of new groups, given the standard deviations and correlations of each draw."""
    natural, names = model.constrain(draws), list(model.names or ())
    wanted = [f"sd({term}|{factor.name})" for term in factor.terms]
    if not set(wanted) <= set(names):
        raise ValueError(f"the standard deviations of the effects of {factor.name!r} are not among the parameters, "
                         f"since prior_sd fixes them: effects of new levels are not drawn then")
    sds = natural[:, [names.index(name) for name in wanted]]
    related = np.broadcast_to(np.eye(factor.width), (len(draws), factor.width, factor.width)).copy()
    for i, b in enumerate(factor.terms):
        for j, a in enumerate(factor.terms[:i]):
            name = f"correlation({a},{b}|{factor.name})"
            if name in names:
                related[:, i, j] = related[:, j, i] = natural[:, names.index(name)]
    root = np.linalg.cholesky(related) * sds[:, :, None]
    unit = _checks.generator(rng).standard_normal((len(draws), count, factor.width))
    return np.asarray(np.einsum("mij,mcj->mci", root, unit))


def _pieces(n: int, width: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // max(1, width))
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


def _kept(
    means: Callable[[slice], Array], m: int, n: int, more: tuple[int, ...], interval: float | None
) -> Array:
    """All draws of the means, or their mean and the ends of an interval; `means` has the draws of each row in order."""
    if interval is None:
        _checks.room(8.0 * m * n * math.prod(more), f"{m} draws of {counted(n, 'row')}")
        out = np.empty((m, n, *more))
        for part in _pieces(n, m * math.prod(more)):
            out[:, part] = np.moveaxis(means(part), -1, 0)
        return out
    share = _checks.probability(interval, "interval")
    out = np.empty((3, n, *more))
    for part in _pieces(n, m * math.prod(more)):
        values = means(part)
        out[0, part], flat = values.mean(axis=-1), values.reshape(-1, m)
        out[1, part] = _low_quantiles(flat, 0.5 * (1.0 - share)).reshape(values.shape[:-1])
        out[2, part] = -_low_quantiles(-flat, 0.5 * (1.0 - share)).reshape(values.shape[:-1])
    return out


def _low_quantiles(values: Array, q: float) -> Array:
    """``np.quantile(values, q, axis=1)`` for a q of at most 1/2.

    Sorting one of 16 numbers gives a limit below which somewhat more than the wanted numbers lie, and only these are
    partitioned. Both ends so take half of the time of one call of `np.quantile`.
    """
    m = values.shape[1]
    low = int(q * (m - 1))
    ranks = [low, min(low + 1, m - 1)]
    sample = np.sort(values[:, ::_SAMPLED], axis=1)
    expected = (ranks[1] + 1) * sample.shape[1] / m
    place = math.ceil(expected + 4.0 * math.sqrt(expected)) + 1
    if 2 * place < sample.shape[1]:
        below = values <= sample[:, place, None]
        counts = np.count_nonzero(below, axis=1)
        if counts.min() > ranks[1]:
            few = np.full((len(values), counts.max()), np.inf)
            few[np.arange(few.shape[1]) < counts[:, None]] = values.ravel()[np.flatnonzero(below)]
            values = few
    values = np.partition(values, ranks, axis=1)
    return np.asarray(np.quantile(values[:, ranks], q * (m - 1) - low, axis=1))
