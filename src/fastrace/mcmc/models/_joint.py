"""The joint prior of a model from the priors that a user names; natural scales for what chains move as logarithms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace._models._priors import JointPrior
from fastrace._models.rows import chunks
from fastrace.likelihoods import GLMSource
from fastrace.mcmc.models._modes import QuadraticPart
from fastrace.mcmc.models.priors import (
    LKJ,
    HalfCauchy,
    HalfNormal,
    HalfStudentT,
    Horseshoe,
    Laplace,
    LogDensity,
    Normal,
    Scale,
    StudentT,
)

__all__ = ["DensityOf", "Effects", "Layout", "MomentsOfColumns", "at_the_means", "check_group_names", "constrained",
           "joint_prior", "layout_of", "learns", "moments_of", "normals_of_columns", "refuse_means_alone",
           "unconstrained", "without_densities"]

Array = NDArray[np.float64]
Coefficient = tuple[str, float, float, float, int]  # kind, mean, scale, degrees of freedom, pool
INTERCEPT = "intercept"
COEFFICIENTS = "coefficients"
_SHOWN = 3  # names of what shares a learned scale, in its name
_CENTRED = 1e-6  # standard deviations of an intercept's prior by which means of columns may move a predictor
OF_UNITS = ("gaussian", "student-t")  # whose predictor has the units of the outcome


@dataclass(frozen=True)
class Effects:
    """One grouping factor: its name, number of groups, terms, and spreads of what they multiply.

    Where there are `classes`, each term has an effect in each of them: those of the first term come first.
    """

    name: str
    n_groups: int
    terms: tuple[str, ...]
    spreads: tuple[float, ...]
    correlated: bool
    classes: tuple[str, ...] = ()

    @property
    def each(self) -> tuple[tuple[str, str], ...]:
        """Term, and class in brackets, of each effect of a group."""
        return tuple((term, called) for term in self.terms for called in [f"[{k}]" for k in self.classes] or [""])

    @property
    def related(self) -> bool:
        """Whether there are correlations."""
        return self.correlated and len(self.each) > 1


@dataclass(frozen=True)
class Layout:
    """What priors are put on, and the units of the data.

    `means` and `spreads` are those of the columns. `center` is the mean of the outcome and `noise` its standard
    deviation, where the predictor has its units, and 0 and 1 elsewhere. All of these count a row as often as its weight
    says. `n_observations` is the number of rows, counted in the same way, and each of the trials that a row has, and
    `row_noise` the standard deviation of what one observation says of its predictor. `owners` are the columns that
    several parameters belong to, one for each, by which a prior may name all of them; `given` are the priors that stand
    in place of weakly informative ones. Columns of predictors of their own stand one after the other, `width` for each;
    0 where there is one predictor.
    """

    columns: tuple[str, ...]
    means: tuple[float, ...]
    spreads: tuple[float, ...]
    factors: tuple[Effects, ...]
    aux: str | None
    n_observations: float
    center: float
    noise: float
    row_noise: float
    owners: tuple[str, ...] = ()
    given: tuple[Normal, ...] = ()
    width: int = 0

    def constant(self, j: int) -> bool:
        """Whether column j is an intercept."""
        return self.spreads[j] <= 1e-14 * abs(self.means[j])

    def weak(self, j: int) -> Normal:
        """Normal, with a standard deviation of 2.5 times the noise over the spread of the column."""
        if self.given:
            return self.given[j]
        if self.constant(j) and self.means[j]:
            return Normal(self.center / self.means[j], 2.5 * self.noise / abs(self.means[j]))
        return Normal(0.0, 2.5 * self.noise / (self.spreads[j] or 1.0))

    def weak_intercept(self, j: int) -> tuple[Normal, QuadraticPart | None]:
        """A constant column's `weak` prior put on the predictor where columns have their means.

        That is a normal prior of the coefficient itself, as wide as it then is where coefficients are independent, and
        what the joint density is besides; None where the other columns are centred.
        """
        prior, first = self.weak(j), j - j % (self.width or len(self.columns))
        means, spread = np.zeros(len(self.columns)), 0.0
        for k in range(first, first + (self.width or len(self.columns))):
            if not self.constant(k):
                means[k] = self.means[k]
                own_sd = float(self.weak(k).sd)  # type: ignore[arg-type]
                spread = math.hypot(spread, own_sd * self.means[k] / self.means[j])
        if spread <= _CENTRED * float(prior.sd):  # type: ignore[arg-type]
            return prior, None
        means[j] = self.means[j]
        own = Normal(prior.mean, math.hypot(float(prior.sd), spread))  # type: ignore[arg-type]
        return own, at_the_means(means, j, Normal(self.center, 2.5 * self.noise), own)

    def weak_scale(self) -> Scale:
        """Of the scale of the family: half-Student in units of the outcome, or half-Cauchy for a dispersion."""
        return HalfStudentT(4.0, self.noise) if self.aux in OF_UNITS else HalfCauchy(1.0)

    def weak_sd(self, effects: Effects, k: int) -> Scale:
        """Half-normal, with 2.5 times the noise over the spread of what the effect multiplies."""
        return HalfNormal(2.5 * self.noise / (effects.spreads[k] or 1.0))


def at_the_means(means: Array, intercept: int, prior: Normal, own: Normal) -> QuadraticPart:
    """A normal log prior of the predictor at the means of the columns, less that of the intercept itself, `own`.

    Where columns are centred that predictor is the intercept.
    """
    unit, width, wide = np.eye(len(means))[intercept], float(prior.sd), float(own.sd)  # type: ignore[arg-type]
    return QuadraticPart(np.outer(means, means) / width**2 - np.outer(unit, unit) / wide**2,
                         prior.mean * means / width**2 - own.mean * unit / wide**2,
                         ((intercept, float(prior.mean / means[intercept]), width / abs(float(means[intercept]))),))


def layout_of(
    source: GLMSource, columns: Sequence[str], learns_scale: bool,
    moments: tuple[list[float], list[float]] | None = None,
) -> Layout:
    """The layout of a likelihood, in one pass over its rows unless `moments` of its columns are known."""
    times = source.weights
    means, spreads = _moments(source.X, times) if moments is None else moments
    effects = []
    for factor in source.factors:
        table = factor.table
        own = [1.0] * factor.intercept
        own += [spreads[k] for k in factor.columns] if table is None else moments_of(table, times)[1].tolist()
        effects.append(Effects(factor.name, factor.n_groups, factor.terms, tuple(own), factor.correlated))
    y = np.asarray(source.y, dtype=np.float64)
    mean, sd = map(float, moments_of(y, times))
    center, noise = (mean, sd or 1.0) if source.family in OF_UNITS else (0.0, 1.0)
    n = source.n_rows if source.term_weights is None else float(source.term_weights.sum())
    if source.trials is not None:
        mean = float(y.sum() if times is None else times @ y) / n
    row_noise = noise
    if source.outcomes in ("binary", "share") and 0.0 < mean < 1.0:
        row_noise = 1.0 / math.sqrt(mean * (1.0 - mean))
    elif source.outcomes == "count" and mean > 0.0:
        row_noise = 1.0 / math.sqrt(mean)
    aux = source.family if learns_scale else None
    return Layout(tuple(columns), tuple(means), tuple(spreads), tuple(effects), aux, n, center, noise, row_noise)


def moments_of(values: Array, times: Array | None = None) -> tuple[Any, Any]:
    """Mean and standard deviation along the first axis, of which row i stands `times[i]` times; at least one does.

    Rows that count nothing are left out, so that they need not be in the range of the others.
    """
    if times is None:
        return values.mean(axis=0), np.std(values, axis=0)
    seen = times > 0.0
    apart, share = values[seen] - values[seen.argmax()], times[seen] / times.sum()
    mean = share @ apart
    return mean + values[seen.argmax()], np.sqrt(share @ np.square(apart - mean))


def _moments(table: Any, times: Array | None = None) -> tuple[list[float], list[float]]:
    """The same of columns of a table, which may be sparse or lie in a file, in one pass."""
    moments = MomentsOfColumns(table.shape[1], times)
    for part, x in chunks(table):
        moments.take(part, x)
    return moments.found()


class MomentsOfColumns:
    """Means and standard deviations of columns whose rows are handed over some at a time, in order.

    Parameters
    ----------
    n_columns : int
    times : ndarray of shape (n_rows,), optional
        How often each row stands; once by default.
    """

    def __init__(self, n_columns: int, times: Array | None = None) -> None:
        self.times, self.n_taken = times, 0
        self._first: Any = None
        self._total = self._square = np.zeros(n_columns)

    def take(self, part: slice, x: Array) -> None:
        """The next rows, in float64, and which they are."""
        self.n_taken = part.stop
        if self.times is not None:
            count = self.times[part]
            seen = count > 0.0
            if not seen.any():
                return
            x, count = x[seen], count[seen]
        first = self._first = x[0].copy() if self._first is None else self._first
        if self.times is None:
            self._total = self._total + (x - first).sum(axis=0)
            self._square = self._square + np.square(x - first).sum(axis=0)
        else:
            self._total, self._square = self._total + count @ (x - first), self._square + count @ np.square(x - first)

    def found(self) -> tuple[list[float], list[float]]:
        """The means and the standard deviations, once all rows were taken."""
        n = self.n_taken if self.times is None else self.times.sum()
        variance = np.maximum(self._square / n - np.square(self._total / n), 0.0)
        return (self._total / n + self._first).tolist(), np.sqrt(variance).tolist()


class _Builder:
    """Collects the compiled description and the names of the hyperparameters."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.coefficients: list[Coefficient] = []
        self.pools: list[tuple[Any, ...]] = []
        self.pool_names: list[list[str]] = []

    def pool(self, description: tuple[Any, ...], names: list[str]) -> int:
        self.pools.append(description)
        self.pool_names.append(names)
        return len(self.pools) - 1

    def assign(self, prior: Any, columns: Sequence[int], called: str) -> dict[int, Coefficient]:
        """The compiled coefficients of columns that share one prior."""
        if not columns and isinstance(prior, (Normal, StudentT, Laplace, Horseshoe)):
            return {}           # of no coefficient no scale is learned
        if isinstance(prior, Horseshoe):
            number = self._horseshoe(prior, columns, called)
            return dict.fromkeys(columns, ("normal", 0.0, 1.0, 0.0, number))
        if not isinstance(prior, (Normal, StudentT, Laplace)):
            raise TypeError(f"the prior of {called} is {_checks.shown(prior)}; Normal, StudentT, Laplace or Horseshoe "
                            f"is needed; a model also takes a dict of these by name of column, or 'weak' for all")
        width = prior.sd if isinstance(prior, Normal) else prior.scale
        kind = {Normal: "normal", StudentT: "student", Laplace: "laplace"}[type(prior)]
        df = prior.df if isinstance(prior, StudentT) else 0.0
        if isinstance(width, Scale):
            word = "sd" if kind == "normal" else "scale"
            number = self.pool(("shared", width.triple()), [f"{word}({called})"])
            return dict.fromkeys(columns, (kind, prior.mean, 1.0, df, number))
        if width == math.inf:
            kind, width = "flat", 1.0
        return dict.fromkeys(columns, (kind, prior.mean, width, df, -1))

    def _horseshoe(self, prior: Horseshoe, columns: Sequence[int], called: str) -> int:
        scale = prior.global_scale_of(len(columns), self.layout.n_observations, self.layout.row_noise)
        half, names = 0.5 * prior.slab_df, [f"global_scale({called})"]
        slab: tuple[Any, ...] = (None,)
        if prior.slab_df == math.inf:
            slab = None, prior.slab_scale
        elif prior.slab_scale < math.inf:
            slab = (("inverse-gamma-of-square", half, half * prior.slab_scale**2),)
            names.append(f"slab_scale({called})")
        priors = ("half-student", scale, prior.global_df), ("half-student", 1.0, prior.local_df), *slab
        return self.pool(("horseshoe", *priors), names + [f"local_scale({self.layout.columns[j]})" for j in columns])


def learns(prior: Any) -> bool:
    """Whether a prior of coefficients has a scale that is learned, which all that are given this object share."""
    return isinstance(prior, Horseshoe) or isinstance(getattr(prior, "sd", getattr(prior, "scale", 0)), Scale)


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys) if len(keys) <= _SHOWN else f"{keys[0]}, ..., {keys[-1]}"


def _coefficient_priors(builder: _Builder, prior: Any) -> QuadraticPart | None:
    """The priors of all columns; returned is what weak ones of intercepts add to independent densities."""
    layout = builder.layout
    everything = range(len(layout.columns))
    slopes = [j for j in everything if not layout.constant(j)]
    found: dict[int, Coefficient] = {}
    if isinstance(prior, Mapping):
        chosen: dict[int, Any] = {}  # the last name of a column says its prior
        for key in prior:
            named = [j for j in everything if key in (layout.columns[j], *layout.owners[j : j + 1])]
            if not named and key == INTERCEPT:
                named = [j for j in everything if layout.constant(j)]
            if not named:
                raise ValueError(f"prior names {key!r}; the columns are {', '.join(map(repr, layout.columns))}, and "
                                 f"{INTERCEPT!r} is a constant one")
            chosen |= dict.fromkeys(named, key)
        together: dict[Any, list[int]] = {}  # columns that share what is learned: those of one object
        for j in sorted(chosen):
            together.setdefault(id(prior[chosen[j]]) if learns(prior[chosen[j]]) else chosen[j], []).append(j)
        for columns in together.values():
            keys = list(dict.fromkeys(str(chosen[j]) for j in columns))
            called = COEFFICIENTS if len(keys) > 1 and columns == slopes else _listed(keys)
            found |= builder.assign(prior[chosen[columns[0]]], columns, called)
    elif prior is not None:
        found |= builder.assign(prior, slopes if learns(prior) else everything, COEFFICIENTS)
    parts: dict[int, QuadraticPart | None] = {}  # by predictor: one has one intercept
    for j in everything:
        if j in found:
            continue
        predictor = j // (layout.width or len(everything))
        weak = layout.weak(j)
        if layout.constant(j) and layout.means[j] and not layout.given:
            if predictor in parts:  # only one of several stands for the level of the outcome
                weak = Normal(0.0, weak.sd)
            else:
                weak, parts[predictor] = layout.weak_intercept(j)
        found |= builder.assign(weak, [j], layout.columns[j])
    builder.coefficients = [found[j] for j in everything]
    some = [part for part in parts.values() if part is not None]
    if not some:
        return None
    return QuadraticPart(np.sum([p.precision for p in some], axis=0), np.sum([p.shift for p in some], axis=0),
                         tuple(own for p in some for own in p.centred))


def _group_prior(layout: Layout, effects: Effects, given: Any) -> tuple[list[Scale], LKJ]:
    """Priors of the standard deviations and correlations of one factor's effects."""
    named = isinstance(given, Mapping) and effects.name in given
    if named:
        given = given[effects.name]
    elif isinstance(given, Mapping) and not set(given) <= {"sd", "correlation"}:
        given = None                                    # names of other factors
    if isinstance(given, Scale):
        given = {"sd": given}
    given = {} if given is None else given
    if not isinstance(given, Mapping) or not set(given) <= {"sd", "correlation"}:
        raise ValueError(f"group_prior of {effects.name!r} is {_checks.shown(given)}; a prior of the standard "
                         f"deviations such as HalfNormal(1.0), or a dict of 'sd' and 'correlation', is needed")
    sd, correlation = given.get("sd"), given.get("correlation", LKJ())
    if not isinstance(correlation, LKJ):
        raise TypeError(f"the prior of the correlations of {effects.name!r} is {_checks.shown(correlation)}; LKJ is "
                        f"needed")
    if "correlation" in given and not effects.related and (named or not any(e.related for e in layout.factors)):
        raise ValueError(f"group_prior of {effects.name!r} has a 'correlation'; its effects "
                         f"({', '.join(map(repr, effects.terms))}) have none. Leave it out, or, with a slope that "
                         f"varies, have them correlated by groups=mcmc.Groups(codes, slopes=[...]): those of a formula "
                         f"and of Groups(correlated=False) are independent")
    known = {term for other in layout.factors for term in other.terms}
    if isinstance(sd, Mapping) and not set(sd) <= known:
        raise ValueError(f"group_prior of {effects.name!r} names {', '.join(map(repr, sorted(set(sd) - known)))}; the "
                         f"effects are {', '.join(map(repr, effects.terms))}, '1' for the intercept")
    sds = []
    for k, term in enumerate(effects.terms):
        own = sd.get(term) if isinstance(sd, Mapping) else sd
        own = layout.weak_sd(effects, k) if own is None else own
        if not isinstance(own, Scale):
            raise TypeError(f"the prior of the standard deviation of {term!r} in {effects.name!r} is "
                            f"{_checks.shown(own)}; a prior of a scale such as HalfNormal(1.0) is needed: under a flat "
                            f"one the posterior can be improper")
        sds.append(own)
    return sds, correlation


def check_group_names(factors: Iterable[str], given: Any, parts: frozenset[str] = frozenset()) -> None:
    """Refuse a `group_prior` that names other factors, but for a dict of `parts`, or that comes without a factor."""
    names = set(factors)
    odd = [name for name in given if name not in names] if isinstance(given, Mapping) else []
    if odd and not set(given) <= parts:
        raise ValueError(f"group_prior names {', '.join(map(repr, odd))}; the factors are "
                         f"{', '.join(map(repr, sorted(names))) or 'none'}")
    if given is not None and not names:
        raise ValueError("group_prior was given, and the model has no groups: leave it out, or give groups")


def joint_prior(
    layout: Layout, prior: Any = None, group_prior: Any = None, scale_prior: Scale | None = None,
    own: Sequence[LogDensity] = (), names: Sequence[str] | None = None,
) -> tuple[JointPrior, list[str], QuadraticPart | None]:
    """The compiled prior, names of its hyperparameters, and what of it is not compiled.

    `names` are those of what the rows see, which densities of a user's own are found by.
    """
    builder = _Builder(layout)
    part = _coefficient_priors(builder, prior)
    hyper = [name for pool in builder.pool_names for name in pool]
    factors = []
    check_group_names((effects.name for effects in layout.factors), group_prior, frozenset({"sd", "correlation"}))
    for effects in layout.factors:
        of_terms, correlation = _group_prior(layout, effects, group_prior)
        sds = [sd for sd in of_terms for _ in effects.classes or ("",)]
        hyper += [f"sd({term}|{effects.name}){called}" for term, called in effects.each]
        if effects.related:
            each = ["".join(both) for both in effects.each]
            hyper += [f"correlation({b},{a}|{effects.name})" for i, a in enumerate(each) for b in each[:i]]
        factors.append((effects.n_groups, [sd.triple() for sd in sds], correlation.eta if effects.related else None))
    if scale_prior is not None and layout.aux is None:
        raise ValueError("scale_prior was given, and the model learns no scale: leave it out")
    if layout.aux is not None and scale_prior is None:
        scale_prior = layout.weak_scale()
    if scale_prior is not None and not isinstance(scale_prior, Scale):
        raise TypeError(f"scale_prior is {_checks.shown(scale_prior)}; a prior of a scale such as HalfStudentT(4, 1.0) "
                        f"is needed")
    aux = None if scale_prior is None else scale_prior.triple()
    everything = [*(names or ()), *hyper]
    compiled = [(density.evaluate, _places(density, everything)) for density in own]
    return JointPrior(builder.coefficients, builder.pools, factors, aux, compiled), hyper, part


def smooth_part(prior: JointPrior) -> JointPrior:
    """The prior without what Newton's method cannot follow: Laplace densities, and those of a user's own."""
    coefficients, pools, factors, aux, _ = prior.given
    kept = [("flat", 0.0, 1.0, 0.0, -1) if c[0] == "laplace" and c[4] < 0 else c for c in coefficients]
    return JointPrior(kept, pools, factors, aux)


def _places(density: LogDensity, names: Sequence[str]) -> list[int] | None:
    if density.names is None:
        return None
    missing = [name for name in density.names if name not in names]
    if missing:
        raise ValueError(f"a LogDensity names {missing[0]!r}; the parameters are {', '.join(map(repr, names[:20]))}"
                         f"{', ...' if len(names) > 20 else ''}")
    return [names.index(name) for name in density.names]


def _logs_and_correlations(prior: JointPrior) -> tuple[list[int], list[tuple[int, int]]]:
    """Places of logarithms in theta, and (first place, number of effects) of each factor's correlations."""
    coefficients, pools, factors, aux, _ = prior.given
    place = prior.n_seen
    logs = [place - 1] if aux is not None else []
    for number, pool in enumerate(pools):
        size = 1 if pool[0] == "shared" else 1 + (pool[3] is not None) + sum(c[4] == number for c in coefficients)
        logs += range(place, place + size)
        place += size
    related = []
    for _, sds, eta in factors:
        q = len(sds)
        logs += range(place, place + q)
        place += q
        if eta is not None and q > 1:
            related.append((place, q))
            place += q * (q - 1) // 2
    return logs, related


def constrained(prior: JointPrior, theta: ArrayLike) -> Array:
    """Points of shape (..., dim) with scales for their logarithms, and correlations for what chains move of them."""
    out = _checks.floats(theta, "theta")
    logs, related = _logs_and_correlations(prior)
    out[..., logs] = np.exp(out[..., logs])
    for first, q in related:
        lower, k = np.zeros((*out.shape[:-1], q, q)), first
        for i in range(q):
            left = np.ones(out.shape[:-1])
            for j in range(i):
                z = np.tanh(out[..., k])
                lower[..., i, j] = z * np.sqrt(left)
                left = left * (1.0 - z * z)
                k += 1
            lower[..., i, i] = np.sqrt(left)
        places = [(i, j) for i in range(q) for j in range(i)]
        for k, (i, j) in enumerate(places, first):
            out[..., k] = (lower[..., i, :] * lower[..., j, :]).sum(axis=-1)
    return out


def unconstrained(prior: JointPrior, values: ArrayLike, names: Sequence[str] | None = None) -> Array:
    """The inverse of `constrained`. Raises ValueError where scales are not positive or correlations impossible."""
    out = _checks.floats(values, "values")
    logs, related = _logs_and_correlations(prior)
    if not (out[..., logs] > 0.0).all():
        at = np.unravel_index(int(np.argmin(out[..., logs])), out[..., logs].shape)
        called = f"the scale {names[int(np.asarray(logs)[at[-1]])]!r}" if names else "a scale"
        raise ValueError(f"{called} is {float(out[..., logs][at]):.4g}; scales must be positive numbers, themselves "
                         f"and not their logarithms")
    out[..., logs] = np.log(out[..., logs])
    for first, q in related:
        matrix = np.broadcast_to(np.eye(q), (*out.shape[:-1], q, q)).copy()
        places = [(i, j) for i in range(q) for j in range(i)]
        for k, (i, j) in enumerate(places, first):
            matrix[..., i, j] = matrix[..., j, i] = out[..., k]
        try:
            lower = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError as error:
            raise ValueError("correlations must be those of a positive definite matrix") from error
        for k, (i, j) in enumerate(places, first):
            left = 1.0 - np.square(lower[..., i, :j]).sum(axis=-1)
            out[..., k] = np.arctanh(lower[..., i, j] / np.sqrt(left))
    return out


def normals_of_columns(columns: Sequence[str], n_all: int, mean: ArrayLike, sd: ArrayLike) -> dict[str, Normal] | None:
    """The priors of columns by name that `prior_mean` and `prior_sd` say beside groups; none where they say nothing.

    None where these are arrays of all `n_all` parameters, or no numbers, which `Model` tells.

    Raises
    ------
    ValueError
        If shapes disagree, numbers are no means and standard deviations, or there are means alone.
    """
    p = len(columns)
    given = {name: np.asarray(_checks.as_array(_frames.in_order(value, columns, name, "columns"), name))
             for name, value in (("prior_mean", mean), ("prior_sd", sd))}
    if any(value.dtype.kind not in "fiu" for value in given.values()):
        return None
    shapes = {value.shape for value in given.values()} - {()}
    if shapes == {(n_all,)}:
        return None
    if not shapes <= {(p,)}:
        odd, shape = next((name, v.shape) for name, v in given.items() if v.shape not in ((), (n_all,), (p,))
                          or len(shapes) > 1)
        rest = ", ".join(map(str, sorted(shapes - {shape})))
        other = f" beside {rest} of the other" if rest else ""
        raise ValueError(f"{odd} has shape {shape}{other}; a number or shape ({p},), of the {p} columns, is needed: "
                         f"effects of groups keep priors of their own. Shape ({n_all},) of prior_sd, one number for "
                         f"each coefficient and effect, fixes those of effects too, and prior_mean is then a number or "
                         f"of that shape")
    means, sds = (np.broadcast_to(np.asarray(value, dtype=np.float64), p) for value in given.values())
    if not ((sds > 0.0).all() and np.isfinite(means).all()):
        raise ValueError(f"prior_mean is {_checks.shown(mean)} and prior_sd {_checks.shown(sd)}; finite means and "
                         f"positive standard deviations are needed, infinite ones for a flat prior")
    if given["prior_sd"].shape == () and not np.isfinite(sds).any():
        refuse_means_alone(means, columns)
        return {}
    return {name: Normal(float(m), float(s)) for name, m, s in zip(columns, means, sds, strict=True)}


def refuse_means_alone(means: Array, names: Sequence[str] | None) -> None:
    """Raise if there are means without standard deviations, where priors are weakly informative by default."""
    if (means != 0.0).any():
        j = int(np.flatnonzero(means)[0])
        name = names[j] if names else f"x{j}"
        raise ValueError(f"prior_mean is {_checks.shown(means)} and prior_sd infinite, which leaves coefficients their "
                         f"weakly informative priors where there are groups or a learned scale, and these have means "
                         f"of their own. Give prior_sd too, an array of infinite ones for flat priors, or priors by "
                         f"name such as prior={{{name!r}: mcmc.Normal({means[j]:.4g}, 1.0)}}")


class DensityOf:
    """The log density of a joint prior as a function, for kernels that take one."""

    def __init__(self, joint: JointPrior) -> None:
        self.joint = joint

    def __call__(self, theta: Array) -> float:
        return float(self.joint.value_of(theta))


def without_densities(prior: Any) -> tuple[Any, tuple[LogDensity, ...]]:
    """Priors of coefficients apart from log densities of a user's own."""
    if isinstance(prior, LogDensity):
        return Normal(0.0, math.inf), (prior,)
    if isinstance(prior, (list, tuple)):
        own = tuple(part for part in prior if isinstance(part, LogDensity))
        rest = [part for part in prior if not isinstance(part, LogDensity)]
        if len(rest) > 1:
            raise TypeError(f"prior holds {len(rest)} priors of all coefficients; give one, or a dict by name")
        return (rest[0] if rest else Normal(0.0, math.inf)), own
    return (None if isinstance(prior, str) and prior == "weak" else prior), ()
