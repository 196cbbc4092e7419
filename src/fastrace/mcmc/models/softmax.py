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

from fastrace._base import _checks, _frames
from fastrace._base._arguments import names_meant
from fastrace._base._words import counted
from fastrace._models._arrow import Arrow
from fastrace._models._softmax import SoftmaxSource, classes_of
from fastrace._models.glm_inputs import refuse_nothing, refuse_overflow
from fastrace._models.grouping import Factor, as_groups, no_objects
from fastrace._models.rows import CHUNK, lengths, norms, products
from fastrace._models.softmax_sums import (
    THIRD,
    by_class,
    expand_softmax,
    lengths_apart,
    offset_from_first,
    predictors,
    softmax_slope,
    spreads,
)
from fastrace.control_variates import residual_rounding
from fastrace.likelihoods import GLMSource
from fastrace.mcmc._variables import Variable
from fastrace.mcmc.kernels._chain import parameters_of
from fastrace.mcmc.models._alike import doubts
from fastrace.mcmc.models._design import NewRows
from fastrace.mcmc.models._formula import arguments_of_classes, refuse_options
from fastrace.mcmc.models._joint import Layout, check_group_names, layout_of, normals_of_columns
from fastrace.mcmc.models._modes import ImproperError, Parts, movement
from fastrace.mcmc.models._outcomes import (
    categories,
    codes_of,
    for_all_classes,
    refuse_missing_classes,
    rows_of_counts,
)
from fastrace.mcmc.models._pieces import Pieces
from fastrace.mcmc.models._prior_words import with_priors
from fastrace.mcmc.models._unseen import unseen_directions
from fastrace.mcmc.models._variables import softmax_variables
from fastrace.mcmc.models.base import LogPrior, Reference, _CompiledModel, normal_reach, quotients
from fastrace.mcmc.models.priors import Scale
from fastrace.results.columns import model_names
from fastrace.sources import column_names

__all__ = ["Softmax"]

_ROWS = "X", "y", "offset", "weights", "groups"     # arguments with an entry for each row

Array = NDArray[np.float64]


MOST_DENSE = 500  # coefficients and effects that are in no block of the curvature
_PARTS = frozenset({"sd", "correlation"})  # of a `group_prior`


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
        intercept of group "3" for class 2, "age|clinic[3][2]" a slope, and "sd(1|clinic)[2]" a standard deviation. All
        effects of a group, of its terms and classes, are correlated where it has several terms, unless
        ``Groups(..., correlated=False)`` says otherwise, or where `group_prior` has a correlation:
        "correlation(1[1],age[2]|clinic)". Effects follow the coefficients of all classes: factor by factor, group by
        group, term by term, and of each term class by class. The factor of most effects may have thousands of groups,
        each of which is a block of the curvature; beside it, at most 500 coefficients and effects of other factors.
        Where `prior_sd` fixes the deviations of effects, at most 500 of all.
    prior : Normal, StudentT, Laplace, Horseshoe, LogDensity, dict or sequence of these, or "weak", optional
        As in `GLM`. A dict names a coefficient, "age[2]", or those of a column for all classes, "age"; "intercept" is
        a constant column. Flat by default, or "weak" where there are groups.
    group_prior : prior of a scale, or dict, optional
        Of the standard deviations of effects, the same for all classes; by default ``HalfNormal(2.5)``, over the
        standard deviation of what a slope multiplies. Or a dict by term, "1" for the intercept, or of "sd", any of
        these, and "correlation", an `LKJ`, by default ``LKJ(2)``; or a dict of these by name of factor.
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
        are given in two ways, correlations are asked for where there are none, or there are too many groups.

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

    With groups, `SurrogateMetropolis` moves on the normal density nearest the posterior for given deviations of effects
    [2]_: gradient and curvature of its expansion are their means over that density. Which class is first has a part in
    the prior: effects of the others are measured from it.

    References
    ----------
    .. [1] Banach, "Über homogene Polynome in (L^2)", Studia Mathematica 7, 1938.
    .. [2] Opper, Archambeau, "The variational Gaussian approximation revisited", Neural Computation 21, 2009.

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

    An intercept for each of 200 clinics and each class but the first:

    >>> clinic = rng.integers(0, 200, size=20_000)
    >>> model = mcmc.Softmax(X, y, groups={"clinic": clinic}, prior=mcmc.Normal(0.0, 1.0))
    >>> model.dim, model.names[4:7]
    (406, ('1|clinic[0][1]', '1|clinic[0][2]', '1|clinic[1][1]'))
    >>> mcmc.compress(model)
    Compressed(20000 rows, 404 parameters, 200 blocks of width 2)
    """

    @names_meant
    @_frames.rows_by_index(*_ROWS)
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
        levels: tuple[Any, ...] | None = categories(y)
        if levels is not None:
            y, n_classes, self._outcomes = codes_of(y, levels, n_classes), len(levels), "categories"
            levels = None if all(type(level) is int and level == k for k, level in enumerate(levels)) else levels
        labels = np.asarray(_frames.as_table(y, "y")) if isinstance(y, Mapping) else _checks.as_array(y, "y")
        if labels.ndim == 2 and labels.shape[1] > 1:
            levels, self._outcomes = _frames.column_names(y), "counts"
            offset = _frames.in_order(offset, levels or range(labels.shape[1]), "offset", "classes")
            levels = None if levels == tuple(map(str, range(labels.shape[1]))) else levels
            X, y, n_classes, offset, weights, own_groups = rows_of_counts(X, y, n_classes, offset, weights, own_groups)
            labels = y
        kind = labels.dtype.kind if labels.ndim == 1 else "f"
        if kind in "OUS":
            refuse_missing_classes(no_objects(np.asarray(y, dtype=object)))     # NumPy makes the word 'nan' of nan
            odd = next((v for v in labels.tolist() if not isinstance(v, int) or abs(v) >= 2**63), labels[0])
            raise ValueError(f"y holds {_checks.shown(odd)}; classes are whole numbers from 0 up, without gaps. "
                             f"np.unique(y, return_inverse=True)[1] numbers labels, if these are of one type")
        if labels.ndim == 1 and kind == "f" and not np.isfinite(labels).all():
            row = int(np.argmin(np.isfinite(labels)))
            raise ValueError(f"y[{row}] is {labels[row]}; finite whole numbers from 0 up are needed")
        rows = GLMSource(X, y, None, "gaussian", 1.0, weights=weights, groups=own_groups or None)
        factors, own = tuple(rows.factors), rows.X.shape[1]
        refuse_overflow(rows.X, rows.y)
        refuse_nothing(rows.weights, "weights")
        self.n_classes = classes_of(rows.y, n_classes)
        each = own + sum(factor.n_groups * factor.width for factor in factors)
        _checks.room(64.0 * self.n_classes * each, f"n_classes is {n_classes}: their parameters")
        if levels is not None:
            _checks.arm_names(levels, self.n_classes, "class")
            self._called = levels
        if factors:
            for words in doubts(rows, layout_of(rows, [f"x{k}" for k in range(own)], learns_scale=False).factors):
                warnings.warn(words, stacklevel=_checks.users_level())
        offset = _frames.in_order(offset, self.classes, "offset", "classes")
        apart = None if offset is None else offset_from_first(offset, (rows.n_rows, self.n_classes))
        beside = {"offset": apart, "weights": rows.weights, "groups": rows.groups or None}
        self._data = self._source(rows.X, rows.y, None, beside)
        self.shuffled = shuffle is not None
        if self.shuffled:
            self._row_order = _checks.generator(shuffle, "shuffle").permutation(rows.n_rows)
            self._data = self._taken(self._row_order)
        self._classes = self._data.rows.y.astype(np.int32)
        columns = _checks.arm_names(called, own, "column")
        if columns is None:
            columns = tuple(f"x{k}" for k in range(own))
        check_group_names((factor.name for factor in factors), group_prior, _PARTS)
        group_prior, self._correlated = _group_priors(factors, group_prior, self.n_classes)
        names = [f"{column}[{k}]" for k in self.classes[1:] for column in columns]
        names += [f"{effect}[{k}]" for factor in factors for effect in factor.effect_names() for k in self.classes[1:]]
        if factors and prior is None and log_prior is None:
            prior = normals_of_columns(columns, self._width, prior_mean, prior_sd)
            if prior is not None:
                prior_mean, prior_sd = 0.0, math.inf
        if not factors:
            prior_mean, prior_sd = (for_all_classes(v, columns, self.n_classes) for v in (prior_mean, prior_sd))
        super().__init__(self._width, rows.n_rows, prior_mean, prior_sd, log_prior, names)
        self._take_priors(prior, group_prior, weak=bool(factors))
        if self.joint_prior is None and not (self.prior_precision[list(self._shown_last)] > 0.0).all():
            raise ValueError(f"the effects of groups {factors[0].name!r} have a flat prior, under which the posterior "
                             f"is improper: leave prior_sd out, or give one that is finite for all {self.dim} "
                             f"parameters")
        self._require_room()
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
        with _frames.rows_called_as(frame, *_ROWS):
            found, names, part, terms, new_rows = arguments_of_classes(formula, frame, prior, options.get("weights"),
                                                                       scope)
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

    def _require_room(self) -> None:
        """Refuse too many parameters whose curvature is dense."""
        fixed = self.joint_prior is None
        apart = 0 if fixed else max((f.stop - f.start for f in self.factors), default=0)
        if not self.factors or self._width - apart <= MOST_DENSE:
            return
        sizes = ", ".join(f"{f.n_groups} of {f.name!r}" + ("" if f.width == 1 else f" with {f.width} effects each")
                          for f in self._data.rows.factors)
        if fixed:
            raise ValueError(f"groups ({sizes}) and columns make {self._width} coefficients and effects of "
                             f"{self.n_classes - 1} classes, whose standard deviations prior_sd or log_prior fixes; "
                             f"kernels then take their curvature for dense, and at most {MOST_DENSE} are possible. "
                             f"Leave prior_sd out: the deviations are learned, and each group has a block of its own")
        raise ValueError(f"groups ({sizes}) and columns make {self._width - apart} coefficients and effects of "
                         f"{self.n_classes - 1} classes beside the factor of most effects; its groups have a block of "
                         f"the curvature each, all else is dense, and at most {MOST_DENSE} are possible there. Merge "
                         f"small groups of the other factors, leave columns out, or compare two classes at a time by "
                         f"GLM(X, y, groups=...)")

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

    def _source(self, x: Any, y: Array, theta: Array | None, beside: dict[str, Any]) -> SoftmaxSource:
        return SoftmaxSource(x, y, theta, self.n_classes, check_finite=False, **beside)

    def _taken(self, rows: NDArray[np.intp]) -> SoftmaxSource:
        """These rows in this order, with all that each has."""
        data = self._data
        beside = {name: tuple(group.reordered(rows) for group in value) if name == "groups" else value[rows]
                  for name, value in data.beside().items()}
        return self._source(data.rows.X[rows], data.rows.y[rows], None, beside)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The grouping factors as the parameters have them: a group has effects of each term in each class."""
        out, first, free = [], self.n_columns * (self.n_classes - 1), self.classes[1:]
        for factor in self._data.rows.factors:
            out.append(factor._replace(start=first, terms=tuple(f"{t}[{k}]" for t in factor.terms for k in free)))
            first = out[-1].stop
        return tuple(out)

    @property
    def _shown_last(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(j for factor in self.factors for j in range(factor.start, factor.stop))

    @property
    def n_columns(self) -> int:
        """Number of columns of X, each of which has a coefficient in each class but the first."""
        return int(self._data.rows.X.shape[1])

    @property
    def _width(self) -> int:  # number of coefficients and effects
        return int(self._data.theta.shape[1])

    def _variables_of(self, names: Sequence[str]) -> tuple[Variable, ...]:
        return softmax_variables(names, self.column_names, self.classes, self._data.rows.factors, self._terms)

    def _layout(self) -> Layout:
        """Of the coefficients, class by class."""
        free, times = self.n_classes - 1, self._data.rows.weights
        columns = self.column_names
        layout = layout_of(self._data.rows, columns, learns_scale=False)
        share = np.bincount(self._classes, times, self.n_classes) / (self.n_rows if times is None else times.sum())
        factors = tuple(replace(effects, correlated=correlated, classes=tuple(map(str, self.classes[1:])))
                        for effects, correlated in zip(layout.factors, self._correlated, strict=True))
        return replace(
            layout, columns=tuple(self.names or ())[: free * self.n_columns], means=layout.means * free,
            spreads=layout.spreads * free, factors=factors, center=0.0, noise=1.0, owners=tuple(columns * free),
            width=self.n_columns,
            row_noise=1.0 / math.sqrt(max(float(np.mean(share * (1.0 - share))), 1.0 / layout.n_observations)),
        )

    def __repr__(self) -> str:
        groups = "".join(f", {counted(factor.n_groups, 'group')} of {factor.name!r}" for factor in self.factors)
        return (f"Softmax({counted(self.n_rows, 'row')}, {counted(self.n_columns, 'column')}{groups}, "
                f"{self.n_classes} classes)")

    def __str__(self) -> str:
        return with_priors(self)

    @property
    def classes(self) -> tuple[Any, ...]:
        """What the classes are called."""
        return tuple(range(self.n_classes)) if self._called is None else self._called

    def _numbered(self, y: Any) -> Any:
        """Classes of other rows; those of a categorical of pandas by their names."""
        levels = categories(y)
        if levels is None:
            return y
        names = [str(name) for name in self.classes]
        codes = codes_of(y, levels, None)
        levels = tuple(map(str, levels))
        strange = [levels[k] for k in np.unique(codes) if levels[k] not in names]
        if strange:
            raise ValueError(f"y has the category {strange[0]!r}; the classes of the model are "
                             f"{', '.join(map(repr, names[:20]))}")
        return np.array([names.index(level) if level in names else -1 for level in levels])[codes]

    @property
    def column_names(self) -> list[str]:
        """What the columns are called."""
        return [name[: -len(f"[{self.classes[1]}]")] for name in (self.names or ())[: self.n_columns]]

    _called: tuple[Any, ...] | None = None  # names of the classes, if they have any
    _outcomes = "labels"  # or "categories", or "counts"
    _terms: tuple[tuple[str, int], ...] = ()  # of a formula, as those of a GLM
    _new_rows: NewRows | None = None
    _computed = (*_CompiledModel._computed, "_called", "_outcomes", "_terms", "_new_rows")
    _correlated: tuple[bool, ...] = ()  # whether the effects of a group are, of each factor
    _positive = _concave = True

    def _arms(self, count: int) -> tuple[SoftmaxSource, Array]:
        own = self._source(self._data.rows.X, self._classes, np.zeros((count, self._width)), self._data.beside())
        return own, parameters_of(own)

    def _expand(self, at: Array) -> Parts:
        value, gradient, hessian = expand_softmax(self._data, at)
        return value, gradient, hessian.to_dense()

    def expand_seen(self, psi: ArrayLike) -> tuple[float, Array, Arrow]:
        """Expand the log-likelihood in what the rows see.

        Parameters
        ----------
        psi : array_like of shape (n_seen,)
            Coefficients class by class, then the effects of each factor group by group.

        Returns
        -------
        value : float
            The log-likelihood.
        gradient : ndarray of shape (n_seen,)
            Its first derivatives.
        hessian : Arrow
            Its second derivatives: dense in all but the effects of the factor that has most of them, whose blocks are
            kept apart.
        """
        return expand_softmax(self._data, _frames.floats_in_order(psi, (self.names or ())[: self.n_seen], "psi"))

    def _value_and_slope(self, at: Array) -> tuple[float, Array]:
        return softmax_slope(self._data, at)

    def _bounds(self, hat: Array, factor: Array) -> tuple[Array | None, float, float]:
        spread = spreads(self._data, factor)
        return self._times_weights(THIRD * spread**3), math.inf, self._rounding(hat)

    def _inverse_cubes(self, reference: Reference, lengths: Array | None = None) -> NDArray[np.float32] | None:
        weights = reference.weights
        return None if weights is None else quotients(self._times_weights(np.full(self.n_rows, THIRD)), weights)

    def _likely_bounds(self, reference: Reference, middle: Array, delta: float) -> Array | None:
        """By how far each two of a row's predictors move apart."""
        reach, pairs = np.zeros(self.n_rows), list(combinations(range(self.n_classes), 2))
        far, moved = normal_reach(delta, self.n_rows * len(pairs)), self._movements(middle - reference.theta_hat)
        for j, k in pairs:
            apart = far * lengths_apart(self._data, reference.factor, j, k) + np.abs(moved[:, k] - moved[:, j])
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
        return movement(self._data.rows.X, by_class(self._data, direction).T, self._data.rows.factors)

    def _movements(self, step: Array) -> Array:
        """How far a step of the parameters moves each row's predictors, shape (n_rows, n_classes)."""
        rows, table = self._data.rows, by_class(self._data, step).T
        moved = np.concatenate([some for _, some in products(rows.X, rows.factors, table)])
        return np.column_stack([np.zeros(self.n_rows), moved])

    def _margins(self, at: Array) -> tuple[float, float]:
        """Extremes over rows and other classes of the own class's predictor less the other's."""
        eta, own = self._movements(at), (np.arange(self.n_rows), self._classes)
        margin = eta[own][:, None] - eta
        margin[own] = np.nan
        if self._data.rows.weights is not None:
            margin = margin[self._data.rows.weights > 0.0]
        return float(np.nanmin(margin)), float(np.nanmax(margin))

    def _piece_weights(self, hat: Array, pieces: Pieces) -> tuple[Array, float]:
        """Weights of `Pieces` with which a row's bound is a sum over the pieces it sees; `rounding` as `_bounds`.

        A piece moves the predictors of two classes apart, of which the two farthest count.
        """
        rows, free = self._data.rows, self.n_classes - 1
        kept = [rows.factors[i] for i in pieces.kept]
        response = by_class(self._data, pieces.response)
        shared = np.concatenate([np.zeros_like(response[:1]), response])
        roots = []
        for factor, own in zip(kept, pieces.own, strict=True):
            by_term = own.reshape(factor.n_groups, factor.width, free, -1)
            roots.append(np.concatenate([np.zeros_like(by_term[:, :, :1]), by_term], axis=2))
        across = np.zeros((len(kept) + 1, self.n_rows))
        for j, k in combinations(range(self.n_classes), 2):
            np.maximum(across[0], lengths(rows.X, shared[k] - shared[j], kept), out=across[0])
            for number, (factor, root) in enumerate(zip(kept, roots, strict=True), 1):
                apart = root[:, :, k] - root[:, :, j]
                for first in range(0, self.n_rows, CHUNK):
                    part = slice(first, min(first + CHUNK, self.n_rows))
                    moved = np.einsum("nt,nti->ni", factor.values(rows.X, part), apart[factor.codes[part]])
                    np.maximum(across[number, part], norms(moved), out=across[number, part])
        return self._times_weights(pieces.weights(np.full((1, self.n_rows), THIRD), across)), self._rounding(hat)

    def _unseen_ways(self) -> Array:
        """Steps that no row sees, shape (k, n_seen): those of each class alone."""
        rows, places = self._data.rows, self._data.places
        own = unseen_directions(rows.X, rows.factors, places.shape[1])
        out = np.zeros((len(places), len(own), self.n_seen))
        for ways, here in zip(out, places, strict=True):
            ways[:, here] = own
        return out.reshape(-1, self.n_seen)

    def slopes(self, reference: Reference) -> Array:
        """The log of the sum moves by no more than the predictors, so a term by no more than they move apart."""
        out = np.zeros(self.n_rows)
        for j, k in combinations(range(self.n_classes), 2):
            own = (self._classes == j) | (self._classes == k)
            out[own] = np.maximum(out[own], lengths_apart(self._data, reference.factor, j, k)[own])
        return self._times_weights(out)


def _group_priors(
    factors: Sequence[Factor], given: Any, n_classes: int
) -> tuple[dict[str, Any] | None, tuple[bool, ...]]:
    """The priors of each factor's effects as a `GLM` takes them, and whether the effects of a group are correlated."""
    one_for_all = not isinstance(given, Mapping) or (bool(given) and set(given) <= _PARTS)
    out, related = {}, []
    for factor in factors:
        own = given if one_for_all else given.get(factor.name)
        parts = dict(own) if isinstance(own, Mapping) and set(own) <= _PARTS else {} if own is None else {"sd": own}
        sd, several = parts.get("sd"), factor.width * (n_classes - 1) > 1
        strange = [term for term in sd if term not in factor.terms] if isinstance(sd, Mapping) else []
        if strange:
            raise ValueError(f"group_prior of {factor.name!r} names {strange[0]!r}; its effects are "
                             f"{', '.join(map(repr, factor.terms))}, '1' for the intercept")
        for value in sd.values() if isinstance(sd, Mapping) else [] if sd is None else [sd]:
            if not isinstance(value, Scale):
                raise TypeError(f"the group_prior of {factor.name!r} is {_checks.shown(value)}; a prior of a scale "
                                f"such as HalfNormal(1.0), the same for all classes, is needed")
        if "correlation" in parts and several and not factor.correlated:
            raise ValueError(f"group_prior of {factor.name!r} has a 'correlation', and its groups were given with "
                             f"correlated=False: leave one of the two out")
        if "correlation" in parts and not several and one_for_all and len(factors) > 1:
            del parts["correlation"]
        related.append(several and factor.correlated and (factor.width > 1 or "correlation" in parts))
        if parts:
            out[factor.name] = parts
    return (None if given is None else out), tuple(related)
