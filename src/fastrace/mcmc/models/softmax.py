"""Multinomial logistic regression."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, hstack

from fastrace._base import _checks, _frames
from fastrace._base._arguments import names_meant
from fastrace._base._words import counted
from fastrace._models._softmax import SoftmaxSource, classes_of, offset_table
from fastrace._models.glm_inputs import are_counts, design_table, refuse_nothing, refuse_overflow
from fastrace._models.grouping import Factor, Groups, as_groups, row_numbers
from fastrace._models.rows import chunks
from fastrace._models.softmax_sums import THIRD, lengths_apart, offset_from_first, predictors, softmax_sums, spreads
from fastrace.control_variates import residual_rounding
from fastrace.likelihoods import GLMSource
from fastrace.mcmc._variables import Variable
from fastrace.mcmc.kernels._chain import parameters_of
from fastrace.mcmc.models._alike import doubts
from fastrace.mcmc.models._design import NewRows
from fastrace.mcmc.models._formula import arguments_of_classes, refuse_options
from fastrace.mcmc.models._joint import Effects, Layout, check_group_names, layout_of, normals_of_columns
from fastrace.mcmc.models._modes import ImproperError, Parts, movement
from fastrace.mcmc.models._prior_words import with_priors
from fastrace.mcmc.models._variables import softmax_variables
from fastrace.mcmc.models.base import LogPrior, Reference, _CompiledModel, normal_reach, quotients
from fastrace.mcmc.models.priors import HalfNormal, Scale
from fastrace.results.columns import model_names
from fastrace.sources import column_names

__all__ = ["Softmax"]

Array = NDArray[np.float64]


MOST_WITH_GROUPS = 500  # coefficients and effects, whose curvature is a dense matrix
_WIDE = 2.5  # of the standard deviation of effects, times what they multiply


class Softmax(_CompiledModel):
    r"""Multinomial logistic regression with a normal, flat or user-given prior.

    Class k of a row x has probability proportional to :math:`\exp(o_k + x \cdot \theta_k)`, where
    :math:`\theta_0 = 0` and :math:`o_k` is an offset, 0 by default. The parameters of a chain are
    :math:`\theta_1, \theta_2, \ldots` one after the other.

    Parameters
    ----------
    X : array_like of real numbers, shape (n_rows, p), frame, or dict of columns
        Explanatory variables; float32 and float64 are read in place. Sparse tables of SciPy in rows (CSR) too. Leave
        them alone as long as the model is used, as those of `GLM`.
    y : array_like of int, shape (n_rows,) or (n_rows, n_classes), categorical, frame, or dict of columns
        Classes 0, 1, ..., n_classes - 1, or a categorical of pandas or polars, whose categories are the classes: of a
        Categorical of polars, which knows no others, those that rows have, in the order of the alphabet. Or a table of
        counts: how many of a row's outcomes were of each class, which has the name of its column. The rows of the model
        are then pairs of a row and a class that it has, weighted by their number, which is the multinomial likelihood
        but for its constant; `X` is copied, a row for each pair. Priors in units of the data count each outcome.
    n_classes : int, optional
        At least 2; by default one more than the largest of `y`, or the number of columns of a table of counts.
    offset : array_like of real numbers, shape (n_rows, n_classes), optional
        Added to each row's predictor of each class, such as the logarithms of how often classes were offered. Columns
        of a frame whose names are those of classes are found by name; those without names, or numbered, by position.
    weights : array_like of whole numbers from 0 up, shape (n_rows,), optional
        How many times each row was seen, by its likelihood and by priors in units of the data, as in `GLM`.
    groups : Groups, array_like, sequence or dict of these, optional
        Grouping factors, as in `GLM`: each group has an intercept, slopes or both for each class but the first. Those
        of a factor are normal with mean 0, with a standard deviation for each class and term: "1|clinic[3][2]" is the
        intercept of group "3" for class 2, "age|clinic[3][2]" a slope, and "sd(1|clinic)[2]" a standard deviation. They
        are independent: with intercept and slopes, or several slopes, give ``Groups(..., correlated=False)``. They
        stand among the coefficients of their class, after those of the columns of X. At most 500 coefficients and
        effects in all. `X` is copied then, into a sparse table with a column for each effect of a class: some 40 bytes
        a number while it is made.
    prior : Normal, StudentT, Laplace, Horseshoe, LogDensity, dict or sequence of these, or "weak", optional
        As in `GLM`. A dict names a coefficient, "age[2]", or those of a column for all classes, "age"; "intercept" is
        a constant column. Flat by default, or "weak" where there are groups.
    group_prior : prior of a scale, or dict of these by name of factor, optional
        Of the standard deviations of effects, the same for all classes; by default ``HalfNormal(2.5)``, over the
        standard deviation of what a slope multiplies. For a factor also a dict by term, "1" for the intercept.
    prior_mean, prior_sd, log_prior
        As in `GLM`; arrays have shape ((n_classes - 1) p,), or beside groups (p,) for the columns of X. A series of
        pandas may have the names of columns instead, for all classes.
    shuffle : None, int, SeedSequence or Generator, optional
        As in `GLM`.
    names : sequence of str of length p, optional
        What the columns are called, as in `GLM`; "x0", "x1" and so on by default. The parameter of column "age" and
        class 2 is then "age[2]", or "age[red]" if class 2 is called "red".

    Attributes
    ----------
    classes : tuple
        What the classes are called, the first with parameters of 0: numbers, or the categories of `y`, be they words,
        numbers or truth values, or its columns.

    Raises
    ------
    ValueError
        If shapes or pandas indexes disagree, `X` or `offset` is not finite, a class or a weight is out of range, priors
        are given in two ways, effects of a group are to be correlated, or there are too many groups.

    Warns
    -----
    UserWarning
        If a class has no row or no count, unless `n_classes` was given: labels that begin at 1 leave class 0 empty.

    Notes
    -----
    Terms and their second-order expansions are compiled vector code. Rows have bounds, so that every kernel takes this
    model, `PoissonMinibatchMetropolis` and `TunaMetropolis` too: along a direction in which the predictors of a row's
    classes spread by s, the third derivative of its term is a third cumulant of a variable of range s, at most
    :math:`s^3 / (6 \sqrt 3)`; mixed derivatives are bounded by the same number [1]_. The spread is that of
    the two classes farthest apart, so setting up takes O(n_rows p^2 n_classes^2).

    References
    ----------
    .. [1] Banach, "Über homogene Polynome in (L^2)", Studia Mathematica 7, 1938.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2))
    >>> eta = X @ np.array([[0.0, 1.0, -1.0], [0.0, 0.5, 0.5]])
    >>> y = np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)
    >>> kernel = mcmc.PoissonMinibatchMetropolis(mcmc.Softmax(X, y))
    >>> trace = mcmc.sample(kernel, n_draws=1000, n_chains=2, rng=1)
    >>> trace.draws.mean(axis=(0, 1)).round(1)
    array([ 1. ,  0.5, -1. ,  0.5])
    """

    @names_meant
    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        n_classes: int | None = None,
        *,
        offset: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        groups: Any = None,
        prior: Any = None,
        group_prior: Any = None,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
        shuffle: _checks.RngLike = None,
        names: Sequence[str] | None = None,
    ) -> None:
        own_groups = as_groups(groups)
        _frames.require_same_rows(X=X, y=y, offset=offset, weights=weights, groups=own_groups)
        called = model_names(column_names(X)) if names is None else names
        counted_classes = n_classes is None
        levels: tuple[Any, ...] | None = _categories(y)
        if levels is not None:
            y, n_classes, self._outcomes = _codes_of(y, levels, n_classes), len(levels), "categories"
            levels = None if all(type(level) is int and level == k for k, level in enumerate(levels)) else levels
        labels = np.asarray(_frames.as_table(y, "y")) if isinstance(y, Mapping) else _checks.as_array(y, "y")
        if labels.ndim == 2 and labels.shape[1] > 1:
            levels, self._outcomes = _frames.column_names(y), "counts"
            offset = _frames.in_order(offset, levels or range(labels.shape[1]), "offset", "classes")
            levels = None if levels == tuple(map(str, range(labels.shape[1]))) else levels
            X, y, n_classes, offset, weights, own_groups = _of_counts(X, y, n_classes, offset, weights, own_groups)
            labels = y
        kind = labels.dtype.kind if labels.ndim == 1 else "f"
        if kind in "OUS":
            first = labels[0]
            raise ValueError(f"y holds {first!r}; classes are whole numbers from 0 up. np.unique(y, "
                             f"return_inverse=True)[1] numbers labels, if these are of one type")
        if labels.ndim == 1 and kind == "f" and not np.isfinite(labels).all():
            row = int(np.argmin(np.isfinite(labels)))
            raise ValueError(f"y[{row}] is {labels[row]}; finite whole numbers from 0 up are needed")
        rows = GLMSource(X, y, None, "gaussian", 1.0, weights=weights, groups=own_groups or None)
        factors = tuple(rows.factors)
        refuse_overflow(rows.X, rows.y)
        refuse_nothing(rows.weights, "weights")
        self.n_classes = classes_of(rows.y, n_classes)
        own = rows.X.shape[1]
        self.n_columns = own + sum(factor.n_groups * factor.width for factor in factors)
        _checks.room(64.0 * self.n_classes * self.n_columns, f"n_classes is {n_classes}: their parameters")
        if levels is not None:
            _checks.arm_names(levels, self.n_classes, "class")
            self._called = levels
        effects: tuple[Effects, ...] = ()
        if factors:
            self._require_room(factors)
            effects = layout_of(rows, [f"x{k}" for k in range(own)], learns_scale=False).factors
            for words in doubts(rows, effects):
                warnings.warn(words, stacklevel=_checks.users_level())
        offset = _frames.in_order(offset, self.classes, "offset", "classes")
        apart = None if offset is None else offset_from_first(offset, (rows.n_rows, self.n_classes))
        beside = {"offset": apart, "weights": rows.weights}
        self._data = self._source(_with_indicators(rows.X, factors), rows.y, np.zeros((1, self._width)), beside)
        self.shuffled = shuffle is not None
        if self.shuffled:
            self._row_order = _checks.generator(shuffle, "shuffle").permutation(rows.n_rows)
            self._data = self._taken(self._row_order)
        self._classes = self._data.rows.y.astype(np.int32)
        columns = _checks.arm_names(called, own, "column")
        if columns is None:
            columns = tuple(f"x{k}" for k in range(own))
        self._factors = tuple(factor.without_rows() for factor in factors)
        check_group_names((factor.name for factor in factors), group_prior)
        self._scales = tuple(_scales_of(own_effects, group_prior) for own_effects in effects)
        columns = (*columns, *(name for factor in factors for name in factor.effect_names()))
        names = [f"{column}[{k}]" for k in self.classes[1:] for column in columns]
        if factors and prior is None and log_prior is None:
            prior = normals_of_columns(columns[:own], self._width, prior_mean, prior_sd)
            if prior is not None:
                prior_mean, prior_sd = 0.0, math.inf
        if not factors:
            prior_mean, prior_sd = (_for_all_classes(v, columns, self.n_classes) for v in (prior_mean, prior_sd))
        super().__init__(self._width, rows.n_rows, prior_mean, prior_sd, log_prior, names)
        self._take_priors("weak" if prior is None and group_prior is not None else prior, weak=bool(factors))
        if self.joint_prior is None and not (self.prior_precision[list(self._shown_last)] > 0.0).all():
            raise ValueError(f"the effects of groups {factors[0].name!r} have a flat prior, under which the posterior "
                             f"is improper: leave prior_sd out, or give one that is finite for all {self.dim} "
                             f"parameters")
        if counted_classes and self._empty():
            warnings.warn(f"{self._empty()}. If there are classes without rows, give n_classes={self.n_classes}: the "
                          f"prior alone then says what their parameters are", stacklevel=_checks.users_level())

    @classmethod
    def from_formula(
        cls, formula: str, frame: Any, *, prior: Any = None, **options: Any
    ) -> Softmax:
        r"""A model of a column of words written as a formula, with priors scaled as `GLM.from_formula` scales them.

        Parameters
        ----------
        formula : str
            As of `GLM.from_formula`, such as ``"kind ~ x + h"``, without groups and offsets. The levels of the column
            before the ~ are the classes, in the order of the alphabet, or that of an ordered category of pandas. The
            first is the one that others are compared with.
        frame : pandas.DataFrame, or another frame that has a method `to_pandas`
            The columns that the formula names, without missing values. Categories without a row are left out of
            columns after the ~, and refused before it.
        prior : Normal, StudentT, Laplace, Horseshoe or dict, optional
            In place of the scaled priors: one for all, or a dict by names of coefficients, "x[b]", of columns, "x" for
            "x[b]" and "x[c]", or of terms. What is given one prior shares a scale that is learned. One of "Intercept"
            is on the intercepts themselves.
        **options
            Of `Softmax`, such as `weights`, `shuffle` or `offset`, a table with a column for each class.

        Returns
        -------
        Softmax
            The coefficient of column "x" and level "b" is called "x[b]". `predict` takes new frames with the columns
            that the formula names after the ~, and returns classes in the order of ``model.classes``.

        Raises
        ------
        ImportError
            Without formulae: ``python -m pip install "formulae>=0.5"``.
        TypeError
            If an option is bambi's; the message says what to do here.
        ValueError
            If the outcome holds numbers, one level alone or levels without a row, the formula has groups or an offset,
            or for what `GLM.from_formula` refuses.

        Notes
        -----
        The predictor of each class but the first is on the scale of log-odds, and its priors are those of
        `GLM.from_formula` for the "logistic" family: of two classes this is that model. Predictors of different
        classes are independent, and the first class's is 0: which class is first has a part in the prior.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> from fastrace import mcmc
        >>> rng = np.random.default_rng(0)
        >>> frame = pd.DataFrame({"x": rng.normal(size=900)})
        >>> eta = np.outer(frame["x"], [0.0, 1.0, -1.0])
        >>> frame["kind"] = np.array(["ash", "elm", "oak"])[np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)]
        >>> model = mcmc.Softmax.from_formula("kind ~ x", frame)  # doctest: +SKIP
        >>> model.names  # doctest: +SKIP
        ('Intercept[elm]', 'x[elm]', 'Intercept[oak]', 'x[oak]')
        >>> trace = mcmc.sample(model, n_draws=500, rng=1)  # doctest: +SKIP
        >>> model.predict(trace, {"x": [3.0]}, interval=0.9)[0].round(1)  # doctest: +SKIP
        array([[0., 1., 0.]])
        """
        refuse_options("softmax", options, "Softmax")
        if "groups" in options or "group_prior" in options:
            raise ValueError("priors of effects of groups are not scaled by a formula: give Softmax(X, y, groups=...) "
                             "columns of numbers")
        if "family" in options:
            raise TypeError("family was given, and a Softmax has one: leave it out")
        _frames.require_same_rows(frame=frame, **options)
        caller = sys._getframe(1)
        scope = (caller.f_locals, caller.f_globals)
        found, names, part, terms, new_rows = arguments_of_classes(formula, frame, prior, options.get("weights"), scope)
        model = cls(found["X"], found["y"], prior=found["prior"], names=names, **options)
        model.prior_part, model._terms, model._new_rows = part, terms, new_rows
        return model

    def predict(
        self,
        trace: Any,
        X: ArrayLike,
        *,
        offset: ArrayLike | None = None,
        groups: Any = None,
        interval: float | None = None,
    ) -> Array:
        """The probabilities of the classes of new rows at each draw of a trace, or their posterior mean and intervals.

        Parameters
        ----------
        trace, X
            As in `GLM.predict`.
        offset : array_like of shape (n, n_classes), optional
            Added to the predictors; 0 by default.
        groups, interval
            As in `GLM.predict`.

        Returns
        -------
        ndarray of shape (n_chains * n_draws, n, n_classes), or with `interval` (3, n, n_classes)
            Draws of the probabilities, or their posterior means and the ends of their intervals. Classes stand in the
            order of `classes`.

        Raises
        ------
        ValueError
            If the trace is of another model, columns or groups are missing, or a level is unknown.

        Examples
        --------
        >>> import numpy as np
        >>> from fastrace import mcmc
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(1000, 1))
        >>> y = np.argmax(X * [0.0, 1.0, -1.0] + rng.gumbel(size=(1000, 3)), axis=1)
        >>> model = mcmc.Softmax(X, y, prior_sd=10.0)
        >>> trace = mcmc.sample(model, n_draws=500, rng=1)
        >>> model.predict(trace, [[0.0], [4.0]], interval=0.9)[0].round(1)
        array([[0.3, 0.3, 0.3],
               [0. , 1. , 0. ]])
        """
        from fastrace.mcmc._prediction import predicted_softmax  # which knows traces, as models do not

        return predicted_softmax(self, trace, X, offset, groups, interval)

    def _require_room(self, factors: Sequence[Factor]) -> None:
        """Refuse effects that are to be correlated, or too many."""
        for factor in factors:
            if factor.correlated and factor.width > 1:
                raise ValueError(f"the effects of groups {factor.name!r}, {', '.join(map(repr, factor.terms))}, are to "
                                 f"be correlated, and those of a Softmax are independent: give Groups(..., "
                                 f"correlated=False)")
        if self._width > MOST_WITH_GROUPS:
            sizes = ", ".join(f"{factor.n_groups} of {factor.name!r}" + (
                "" if factor.width == 1 else f" with {factor.width} effects each") for factor in factors)
            raise ValueError(f"groups ({sizes}) and columns make {self._width} coefficients and effects of "
                             f"{self.n_classes - 1} classes; a Softmax with groups takes at most {MOST_WITH_GROUPS}, "
                             f"since its curvature is dense. Merge small groups, or compare two classes at a time by "
                             f"GLM(X, y, groups=...), whose effects may be many")

    def _empty(self) -> str:
        """Which classes have no row, in words; "" if none."""
        empty = np.flatnonzero(np.bincount(self._classes, self._data.rows.weights, self.n_classes) == 0.0)
        if not len(empty):
            return ""
        some = ", ".join(repr(self.classes[k]) for k in empty[:5].tolist()) + (", ..." if len(empty) > 5 else "")
        advice = {"counts": "Leave columns of y out that are 0 in every row",
                  "categories": "y.cat.remove_unused_categories() leaves categories out that no row has",
                  "labels": f"Classes are numbered from 0 to n_classes - 1 = {self.n_classes - 1}; np.unique(y, "
                            f"return_inverse=True)[1] are such numbers without gaps"}[self._outcomes]
        return (f"no {'count' if self._outcomes == 'counts' else 'row'} of y is of "
                f"{'class' if len(empty) == 1 else 'classes'} {some}. {advice}")

    def _require_proper(self, hat: Array, step: Array) -> None:
        try:
            super()._require_proper(hat, step)
        except ImproperError as error:
            if not self._empty():
                raise
            raise ImproperError(f"{self._empty()}. So {error}") from None

    def _source(self, x: Any, y: Array, theta: Array, beside: dict[str, Any]) -> SoftmaxSource:
        return SoftmaxSource(x, y, theta, self.n_classes, check_finite=False, **beside)

    def _taken(self, rows: NDArray[np.intp]) -> SoftmaxSource:
        """These rows in this order, with all that each has."""
        data = self._data
        beside = {name: value[rows] for name, value in data.beside().items()}
        return self._source(data.rows.X[rows], data.rows.y[rows], np.zeros((1, self._width)), beside)

    @property
    def _effects(self) -> list[NDArray[np.intp]]:
        """Where the effects of each factor stand, shape (classes but the first, effects), group by group."""
        table = np.arange(self._width).reshape(-1, self.n_columns)
        return [table[:, factor.start : factor.stop] for factor in self._factors]

    @property
    def _shown_last(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(int(j) for places in self._effects for j in places.ravel())

    @property
    def _width(self) -> int:
        """Number of coefficients."""
        return (self.n_classes - 1) * self.n_columns

    def _variables_of(self, names: Sequence[str]) -> tuple[Variable, ...]:
        return softmax_variables(names, self.column_names, self.classes, self._factors, self._terms)

    def _layout(self) -> Layout:
        """Of the coefficients, class by class."""
        free, times = self.n_classes - 1, self._data.rows.weights
        columns = self.column_names
        layout = layout_of(self._data.rows, columns, learns_scale=False)
        share = np.bincount(self._classes, times, self.n_classes) / (self.n_rows if times is None else times.sum())
        pooled = tuple((f"sd({term}|{factor.name})[{k}]", tuple(own[t :: factor.width].tolist()), scales[t])
                       for factor, scales, places in zip(self._factors, self._scales, self._effects, strict=True)
                       for t, term in enumerate(factor.terms)
                       for k, own in zip(self.classes[1:], places, strict=True))
        return replace(
            layout, columns=tuple(self.names or ()), means=layout.means * free, spreads=layout.spreads * free,
            center=0.0, noise=1.0, owners=tuple(columns * free), width=self.n_columns, pooled=pooled,
            row_noise=1.0 / math.sqrt(max(float(np.mean(share * (1.0 - share))), 1.0 / layout.n_observations)),
        )

    def __repr__(self) -> str:
        own = self._factors[0].start if self._factors else self.n_columns
        groups = "".join(f", {counted(factor.n_groups, 'group')} of {factor.name!r}" for factor in self._factors)
        return (f"Softmax({counted(self.n_rows, 'row')}, {counted(own, 'column')}{groups}, {self.n_classes} classes)")

    def __str__(self) -> str:
        return with_priors(self)

    @property
    def classes(self) -> tuple[Any, ...]:
        """What the classes are called."""
        return tuple(range(self.n_classes)) if self._called is None else self._called

    def _numbered(self, y: Any) -> Any:
        """Classes of other rows; those of a categorical of pandas by their names."""
        levels = _categories(y)
        if levels is None:
            return y
        names = [str(name) for name in self.classes]
        codes = _codes_of(y, levels, None)
        levels = tuple(map(str, levels))
        strange = [levels[k] for k in np.unique(codes) if levels[k] not in names]
        if strange:
            raise ValueError(f"y has the category {strange[0]!r}; the classes of the model are "
                             f"{', '.join(map(repr, names[:20]))}")
        return np.array([names.index(level) if level in names else -1 for level in levels])[codes]

    @property
    def column_names(self) -> list[str]:
        """What the columns are called, and then the groups."""
        return [name[: -len(f"[{self.classes[1]}]")] for name in (self.names or ())[: self.n_columns]]

    _called: tuple[Any, ...] | None = None  # names of the classes, if they have any
    _outcomes = "labels"  # or "categories", or "counts"
    _terms: tuple[tuple[str, int], ...] = ()  # of a formula, as those of a GLM
    _new_rows: NewRows | None = None
    _computed = (*_CompiledModel._computed, "_called", "_outcomes", "_terms", "_new_rows")
    _factors: tuple[Factor, ...] = ()  # without rows, placed in the parameters of a class
    _scales: tuple[tuple[Scale, ...], ...] = ()  # priors of the standard deviations of their effects, by term
    _positive = _concave = True

    def _arms(self, count: int) -> tuple[SoftmaxSource, Array]:
        own = self._source(self._data.rows.X, self._classes, np.zeros((count, self.n_seen)), self._data.beside())
        return own, parameters_of(own)

    def _expand(self, at: Array) -> Parts:
        sums = softmax_sums(self._data, at)
        return sums.value, sums.gradient, sums.hessian

    def _bounds(self, hat: Array, factor: Array) -> tuple[Array | None, float, float]:
        spread = spreads(self._data.rows.X, factor, self.n_classes)
        return self._times_weights(THIRD * spread**3), math.inf, self._rounding(hat)

    def _inverse_cubes(self, reference: Reference, lengths: Array | None = None) -> NDArray[np.float32] | None:
        weights = reference.weights
        return None if weights is None else quotients(self._times_weights(np.full(self.n_rows, THIRD)), weights)

    def _likely_bounds(self, reference: Reference, middle: Array, delta: float) -> Array | None:
        """By how far each two of a row's predictors move apart."""
        table, reach = self._data.rows.X, np.zeros(self.n_rows)
        step = (middle - reference.theta_hat).reshape(self.n_classes - 1, self.n_columns)
        pairs = list(combinations(range(self.n_classes), 2))
        far, ways = normal_reach(delta, self.n_rows * len(pairs)), np.vstack([np.zeros(self.n_columns), step])
        for j, k in pairs:
            apart = far * lengths_apart(table, reference.factor, j, k)
            apart += np.concatenate([np.abs(x @ (ways[k] - ways[j])) for _, x in chunks(table)])
            np.maximum(reach, apart, out=reach)
        return self._times_weights(THIRD * reach**3) / 6.0

    def _rounding(self, hat: Array) -> float:
        largest = max(float(self._times_weights(np.abs(eta).max(axis=1), part).max())
                      for part, _, eta in predictors(self._data, hat))
        return max(super()._rounding(hat), residual_rounding(largest))

    def _times_weights(self, values: Array, part: slice = slice(None)) -> Array:
        """A number for each row, or each of some, times how often it was seen."""
        times = self._data.rows.weights
        return values if times is None else values * times[part]

    def _moved(self, direction: Array) -> float:
        return movement(self._data.rows.X, direction.reshape(self.n_classes - 1, self.n_columns).T)

    def _margins(self, at: Array) -> tuple[float, float]:
        """Extremes over rows and other classes of the own class's predictor less the other's."""
        least, most = math.inf, -math.inf
        table = at.reshape(self.n_classes - 1, self.n_columns)
        for part, x in chunks(self._data.rows.X):
            eta = np.zeros((len(x), self.n_classes))
            eta[:, 1:] = x @ table.T
            label = self._classes[part]
            margin = eta[np.arange(len(x)), label][:, None] - eta
            margin[np.arange(len(x)), label] = np.nan
            if self._data.rows.weights is not None:
                margin = margin[self._data.rows.weights[part] > 0.0]
            if len(margin) == 0:
                continue
            least, most = min(least, float(np.nanmin(margin))), max(most, float(np.nanmax(margin)))
        return least, most

    def slopes(self, reference: Reference) -> Array:
        """The log of the sum moves by no more than the predictors, so a term by no more than they move apart."""
        out = np.zeros(self.n_rows)
        for j, k in combinations(range(self.n_classes), 2):
            own = (self._classes == j) | (self._classes == k)
            out[own] = np.maximum(out[own], lengths_apart(self._data.rows.X, reference.factor, j, k)[own])
        return self._times_weights(out)


def _categories(y: Any) -> tuple[Any, ...] | None:
    """The categories of a categorical of pandas or an enum of polars; those of polars that rows have, by the alphabet.
    """
    kind: Any = getattr(y, "dtype", None)
    if hasattr(kind, "ordered") and hasattr(kind, "categories"):
        return tuple(kind.categories.tolist())
    if _of_polars(y):
        enum = type(kind).__name__ == "Enum"
        return tuple(kind.categories.to_list() if enum else sorted(y.unique().drop_nulls().to_list()))
    return None


def _of_polars(y: Any) -> bool:
    return hasattr(y, "to_physical") and type(getattr(y, "dtype", None)).__name__ in ("Categorical", "Enum")


def _codes_of(y: Any, levels: tuple[Any, ...], n_classes: int | None) -> NDArray[np.int64]:
    """The numbers of a categorical's categories."""
    if _of_polars(y):
        held = y.unique().drop_nulls()
        number = {int(code): levels.index(name) for code, name in
                  zip(held.to_physical().to_list(), held.to_list(), strict=True)}
        table = np.full(max(number, default=0) + 1, -1)
        table[list(number)] = list(number.values())
        codes = np.where(y.is_null().to_numpy(), -1, table[y.to_physical().fill_null(0).to_numpy().astype(np.int64)])
    else:
        codes = np.asarray(y.cat.codes if hasattr(y, "cat") else y.codes).astype(np.int64)
    if (codes < 0).any():
        raise ValueError(f"y is missing in row {int(np.argmin(codes))}; every row needs a class: drop rows without one")
    if len(levels) < 2 or n_classes not in (None, len(levels)):
        raise ValueError(f"the categories of y are {counted(len(levels), 'class')}, and n_classes is {n_classes}: two "
                         f"classes at least are needed, and n_classes may be left out")
    return codes


def _for_all_classes(value: Any, columns: Sequence[str], n_classes: int) -> Any:
    """Numbers of a series of pandas that has the names of columns, for each class but the first; all else as it is."""
    series = hasattr(value, "iloc") and getattr(value, "ndim", 0) == 1
    if not series or sorted(map(str, value.index)) != sorted(columns) or _frames.only_numbered(value.index):
        return value
    return np.tile(np.asarray(_frames.in_order(value, columns, "prior", "columns")), n_classes - 1)


def _of_counts(
    X: Any, y: Any, n_classes: int | None, offset: Any, weights: Any, groups: tuple[Groups, ...]
) -> tuple[Any, NDArray[np.intp], int, Array | None, Array, tuple[Groups, ...]]:
    """The arguments with a row for each pair of a row and a class that a table of counts has there."""
    table = np.asarray(_frames.as_table(y, "y", "classes, or a table of counts"))
    x = design_table(X, check_finite=True)
    n, k = table.shape
    if x.shape[0] != n:
        raise ValueError(f"y is a table of counts of shape {table.shape}, and X has {counted(x.shape[0], 'row')}; a "
                         f"row of counts for each row of X is needed")
    if n_classes is not None and n_classes != k:
        raise ValueError(f"y is a table of counts of {k} classes, one a column, and n_classes is {n_classes}: leave it "
                         f"out")
    if table.dtype.kind not in "fiub":
        raise TypeError(f"y is a table of dtype {table.dtype}; counts, whole numbers from 0 up, are needed")
    good = np.isfinite(table) & (table >= 0) & (table == np.floor(table))
    if not good.all():
        row, column = np.argwhere(~good)[0]
        raise ValueError(f"y[{row}, {column}] is {table[row, column]}; counts, whole numbers from 0 up, are needed")
    if not table.any():
        raise ValueError(f"all {n} x {k} counts of y are 0: at least one outcome is needed")
    for group in groups:
        if len(group.codes) != n:
            raise ValueError(f"groups have {counted(len(group.codes), 'row')}; {n}, as many as X, are needed")
    rows, classes = np.nonzero(table)
    times = row_numbers(weights, "weights", n, are_counts, "a whole number from 0 up")
    counts = table[rows, classes].astype(np.float64) * (1.0 if times is None else times[rows])
    apart = None if offset is None else offset_table(offset, (n, k))[rows]
    return x[rows], classes, k, apart, counts, tuple(group.reordered(rows) for group in groups)


def _with_indicators(table: Any, factors: Sequence[Factor]) -> Any:
    """With a column for each effect of each factor, what it multiplies in the rows of its group; sparse."""
    if not factors:
        return table
    n, parts = table.shape[0], []
    for factor in factors:
        w = factor.width
        places = factor.codes[:, None].astype(np.int64) * w + np.arange(w)
        ends = w * np.arange(n + 1, dtype=np.int64)
        parts.append(csr_array((factor.values(table, slice(0, n)).ravel(), places.ravel(), ends),
                               shape=(n, factor.n_groups * w)))
    return csr_array(hstack([csr_array(table), *parts], format="csr"), dtype=np.float64)


def _scales_of(effects: Effects, given: Any) -> tuple[Scale, ...]:
    """Priors of the standard deviations of a factor's effects, one for each term."""
    given = given.get(effects.name) if isinstance(given, Mapping) else given
    terms = given if isinstance(given, Mapping) else dict.fromkeys(effects.terms, given)
    strange = [term for term in terms if term not in effects.terms]
    if strange:
        raise ValueError(f"group_prior of {effects.name!r} names {strange[0]!r}; its effects are "
                         f"{', '.join(map(repr, effects.terms))}, '1' for the intercept")
    out = []
    for term, spread in zip(effects.terms, effects.spreads, strict=True):
        own = terms.get(term)
        own = HalfNormal(_WIDE / (spread or 1.0)) if own is None else own
        if not isinstance(own, Scale):
            raise TypeError(f"the group_prior of {effects.name!r} is {_checks.shown(own)}; a prior of a scale such as "
                            f"HalfNormal(1.0), the same for all classes, is needed")
        out.append(own)
    return tuple(out)
