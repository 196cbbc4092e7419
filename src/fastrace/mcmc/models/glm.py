"""Generalised linear models."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace._base._arguments import names_meant
from fastrace._base._words import counted
from fastrace._models.glm_inputs import check_offset, is_sparse, refuse_nothing, refuse_overflow, require_finite
from fastrace._models.grouping import Factor, as_groups
from fastrace.likelihoods import SCALED, GLMSource
from fastrace.mcmc._variables import Variable
from fastrace.mcmc.models._alike import doubts
from fastrace.mcmc.models._design import NewRows
from fastrace.mcmc.models._first_pass import PriorsOf, first_pass, is_long
from fastrace.mcmc.models._formula import arguments_of, refuse_options, with_given
from fastrace.mcmc.models._glm_rows import GLMRows
from fastrace.mcmc.models._joint import Layout, layout_of, normals_of_columns
from fastrace.mcmc.models._prior_words import with_priors
from fastrace.mcmc.models._variables import glm_variables
from fastrace.mcmc.models.base import LogPrior
from fastrace.mcmc.models.priors import Scale
from fastrace.results.columns import model_names
from fastrace.sources import column_names

__all__ = ["GLM"]

_ROWS = "X", "y", "offset", "weights", "trials", "groups"       # arguments with an entry for each row


class GLM(_frames.Indexed, GLMRows):
    r"""A generalised linear model with a normal, flat or user-given prior.

    Parameters
    ----------
    X, y, family
        As in `fastrace.likelihoods.GLMSource`: "logistic", "probit", "cloglog", "binomial", "poisson",
        "negative-binomial", "gaussian", "student-t" or "gamma" regression. An array
        `X` is read in place, a memory map and a sparse table of SciPy in rows (CSR) too. It is never copied whole, so
        leave it alone as long as the model is used: kernels hold an expansion of the rows as they were, and priors in
        units of the data are those of the columns as they were, so that the draws would be wrong without a sign of it.
        All else is copied. Where it is dense and has more than 4e5 rows, and priors learn scales, one pass refuses
        numbers that are not finite, takes the moments that priors need, and sums up terms and their derivatives about a
        point that 2e5 of the rows told before, so that `compress`, or a kernel that expands the rows, needs one more.
    scale : float, optional
        Of the "gaussian" family the standard deviation of the outcome about its mean; of "student-t" the scale of the
        Student distribution, in units of `y`; of "negative-binomial" and "gamma" the dispersion: the variance is
        mean + scale mean^2, or scale mean^2. By default it is learned: its logarithm, "log(scale)" or
        "log(dispersion)", is the last parameter that the rows see. Draws of all kernels and of `laplace`, and starts
        of chains, hold the scale itself, "scale" or "dispersion". They hold its logarithm only where the prior is
        given by `prior_sd`, which is then one of the logarithm; ``trace.names`` says so. `log_prior` takes the
        logarithm, and so does what works with ``model.names``, such as `compress`: ``model.constrain`` and
        ``model.unconstrain`` lead from the one to the other.
    df : float, default 4.0
        Degrees of freedom of the "student-t" family.
    offset : array_like of shape (n_rows,), or float for all rows, optional
        Added to each row's predictor, such as the logarithm of the exposure of a count. At most 700 from 0 where the
        predictor is the logarithm of a mean, or log-odds and the like.
    weights : array_like of whole numbers from 0 up, shape (n_rows,), or int for all rows, optional
        How many times each row was seen: its log-likelihood is multiplied by this number. A model with weights is the
        model of a table in which each row stands so many times, and those of weight 0 are left out. That holds for
        priors in units of the data too: means, standard deviations and the number of observations count rows so.
    trials : array_like of whole numbers from 0 up, shape (n_rows,), or int for all rows, optional
        Of the "binomial" family: how many trials had the `y` successes of each row; 1 by default. Each trial is an
        observation where a prior asks for their number, such as `Horseshoe`. The mean and standard deviation of a
        column are over rows, whatever their trials.
    groups : Groups, array_like, sequence or dict of these, optional
        Grouping factors, each an array of codes, or a `Groups` where slopes vary or names matter. Several factors may
        be crossed or nested. The predictor of a row is offset + x . coefficients + the effects of its groups. The
        parameters are the coefficients, then the effects of each factor group by group, then the hyperparameters of the
        prior: standard deviations and correlations of the effects. To fix these, give `prior_sd` for all parameters.
        Groups of one row each beside a learned scale mix slowly, as the rows of Gaussian outcomes tell only the sum of
        both variances: of 16,000 draws of 400 such groups 9 to 500 were effective, and 12,000 where `scale` was given.
        Give `scale`, or leave such groups out: the scale then is that of effects and noise together.
    prior : Normal, StudentT, Laplace, Horseshoe, LogDensity, dict or sequence of these, or "weak", optional
        Prior of the coefficients: one for all, or a dict by name of column, in which "intercept" is a constant column.
        Columns that a dict gives one object with a learned scale share that scale; two equal objects have one each.
        A sequence adds a `LogDensity` to a prior. A horseshoe, or a prior with a learned scale, leaves constant columns
        out. "weak", and what a dict or such a prior leaves out, is weakly informative, in units of the data: normal
        with mean 0 and a standard deviation of 2.5 s / (standard deviation of the column). Standard deviations of the
        data have the divisor n, as in bambi; n counts rows by `weights`, unlike in bambi. If there is a constant
        column, the predictor where all columns have their means, without groups, is normal about the mean of the
        outcome with standard deviation 2.5 s: this is the intercept of centred columns, so it does not matter where a
        column, such as a calendar year, has its zero. s is the standard deviation of the outcome of the "gaussian" and
        "student-t" families, whose predictors have its units, and 1 elsewhere, where the mean is taken for 0. By
        default "weak" where there are groups or a learned scale, and flat elsewhere. A prior by the name of the
        constant column, or "intercept", is on its coefficient itself.
    group_prior : prior of a scale, or dict, optional
        Of the effects, which are normal with mean 0. A prior such as `HalfNormal` of all their standard deviations, or
        a dict of "sd", such a prior or a dict of them by effect ("1" for the intercept), and "correlation", an `LKJ`;
        or a dict of these by name of factor. By default half-normal with a scale of 2.5 s / (standard deviation of
        what the effect multiplies, 1 for intercepts), and ``LKJ(2)``.
    scale_prior : prior of a scale, optional
        Of a scale that is learned. By default half-Student with 4 degrees of freedom and scale s, or half-Cauchy with
        scale 1 for a dispersion.
    prior_mean, prior_sd : float or array_like of shape (p,) or (n,), default 0 and infinity
        Independent normal priors of the coefficients; an infinite standard deviation is a flat prior. Numbers of a
        series of pandas, unless it is numbered, are found by the names of columns or parameters. Beside groups
        these are as those of a dict `prior`: effects of groups, and a learned scale, keep priors of their own; an array
        of infinite standard deviations asks for flat priors of the columns, while infinity alone leaves "weak". Arrays
        of shape (n,), with n the number of coefficients, effects, and 1 for a learned scale, are priors of all of
        these: standard deviations of effects are then not learned. Without groups n is p, or p + 1 where a scale is
        learned, of whose logarithm a number is the prior too.
    log_prior : callable, optional
        ``log_prior(theta)``, in place of the normal prior or besides. Beside it numbers in `prior_mean` and `prior_sd`
        are priors of effects too, of which nothing is then learned. Python code: about a microsecond a step.
    shuffle : None, int, SeedSequence or Generator, optional
        Copy the rows in random order. Races then read consecutive rows, which is much faster where the data are far
        larger than the cache; see ``access`` in `RacingMetropolis`.
    names : sequence of str of length p, optional
        What the coefficients are called in errors and in traces; by default the columns of a frame or dict `X`, or
        "x0", "x1" and so on. The
        intercept of group "3" of the factor "clinic" is called "1|clinic[3]", its slope of "age" "age|clinic[3]".

    Attributes
    ----------
    index : pandas.Index or None
        That of the rows as they were given, if one of them had any; None once the model was pickled.

    Raises
    ------
    ValueError
        If an argument is out of range, pandas indexes differ, or `scale` is given where the family has none.
        `reference`, and so every kernel, raises where the posterior is improper: columns are collinear, or outcomes
        separated, under a flat prior. It also raises where columns are so nearly collinear that double precision does
        not suffice, such as time stamps beside an intercept: centre and scale the columns. A scale that is learned,
        where columns and effects fit all rows, as groups of one row each do, is refused too: only priors tell it from
        the spread of effects. Of Gaussian outcomes and intercepts of one factor it is learned where `scale_prior`,
        `group_prior` or `prior_sd` says more than the default; how wide they are then decides.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = rng.random(1000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    >>> model = mcmc.GLM(X, y, prior_sd=10.0)
    >>> model.reference().center.round(1)
    array([ 1. , -0.4])

    The scale of a Gaussian outcome from the residuals of least squares, or of a Student one from their quartiles:

    >>> z = X @ [1.0, -0.5] + rng.normal(scale=3.0, size=1000)
    >>> left = z - X @ np.linalg.lstsq(X, z)[0]
    >>> model = mcmc.GLM(X, z, family="gaussian", scale=np.sqrt(left @ left / (len(z) - 2)))
    >>> model.reference().factor.diagonal().round(1)  # standard deviations, about 3 / sqrt(1000)
    array([0.1, 0.1])
    >>> from scipy import stats
    >>> scale = np.median(np.abs(left)) / stats.t.ppf(0.75, df=4.0)
    >>> model = mcmc.GLM(X, z, family="student-t", scale=scale, df=4.0)

    An intercept for each of 20 clinics, and a slope of the second column:

    >>> clinic = rng.integers(0, 20, size=1000)
    >>> model = mcmc.GLM(X, y, groups={"clinic": mcmc.Groups(clinic, slopes=[1])}, prior_sd=1.0)
    >>> model.dim, model.names[2:4]
    (45, ('1|clinic[0]', 'x1|clinic[0]'))
    >>> model.names[-3:]
    ('sd(1|clinic)', 'sd(x1|clinic)', 'correlation(1,x1|clinic)')
    """

    _terms: tuple[tuple[str, int], ...] = ()  # of a formula: name and number of columns of each
    _unchecked: tuple[Any, ...] = ()  # what a frame calls the columns of X, until all numbers in them were looked at
    _doubts: tuple[str, ...] = ()  # about grouping factors, in words
    _new_rows: NewRows | None = None  # what a formula makes of new rows
    _computed = (*GLMRows._computed, "_terms", "_doubts", "index", "_new_rows")

    @names_meant
    @_frames.rows_by_index(*_ROWS)
    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        family: str = "logistic",
        scale: float | None = None,
        df: float = 4.0,
        *,
        offset: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        groups: Any = None,
        prior: Any = None,
        group_prior: Any = None,
        scale_prior: Scale | None = None,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
        shuffle: _checks.RngLike = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if scale is not None and isinstance(family, str) and family not in SCALED:
            raise ValueError(f"scale is {scale!r}; the {family!r} family has none: leave it out")
        if isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names):
            groups = tuple(group.called_by(names) for group in as_groups(groups)) or None
        if is_long((getattr(X, "shape", None) or (0,))[0]) and not hasattr(X, "tocsr") and shuffle is None:
            self._unchecked = (column_names(X),)
        self._glm = GLMSource(
            X, y, None, family, scale, df, offset=offset, weights=weights, trials=trials, groups=groups,
            learn_scale=scale is None and isinstance(family, str) and family in SCALED,
            check_finite=not self._unchecked,
        )
        for index in _frames.indexes([X, y, offset, weights, trials])[:1]:
            self.index = index
        refuse_overflow(self._glm.X[:0] if self._unchecked else self._glm.X, self._glm.y)
        refuse_nothing(self._glm.weights, "weights")
        refuse_nothing(self._glm.trials, "trials")
        refuse_nothing(self._glm.term_weights, "weights times trials")
        if self._glm.offset is not None:
            check_offset(np.asarray(self._glm.offset), family, self._glm.outcomes, np.asarray(self._glm.y))
        self.shuffled = shuffle is not None
        if self.shuffled:
            self._row_order = _checks.generator(shuffle, "shuffle").permutation(self._glm.n_rows)
            self._glm = self._taken(self._row_order)
        names = model_names(column_names(X)) if names is None else names
        dim = self._glm.theta.shape[1]
        columns = self._all_names(names)
        if self.factors and prior is None and log_prior is None and len(columns) == dim:
            prior = normals_of_columns(columns[: self.n_columns], dim, prior_mean, prior_sd)
            if prior is not None:
                prior_mean, prior_sd = 0.0, math.inf
        super().__init__(dim, self._glm.n_rows, prior_mean, prior_sd, log_prior, columns)
        weak = bool(self.factors) or self.learns_scale  # unless flat priors are spelled
        layout = self._take_priors(prior, group_prior, scale_prior, weak=weak and np.ndim(prior_sd) == 0)
        if self._unchecked:  # no prior asked for more than that
            require_finite(self._glm.X, *self._unchecked)
            refuse_overflow(self._glm.X, self._glm.y)
        self.__dict__.pop("_unchecked", None)
        self._require_priors()
        if layout is not None and self.n_hyper:
            self._doubts = doubts(self._glm, layout.factors)
            for words in self._doubts:
                warnings.warn(words, stacklevel=_checks.users_level())

    @classmethod
    def from_formula(
        cls,
        formula: str,
        frame: Any,
        *,
        family: str = "logistic",
        prior: Any = None,
        group_prior: Any = None,
        **options: Any,
    ) -> GLM:
        r"""A model written as a formula, with priors scaled as bambi scales them, but for `weights`.

        Parameters
        ----------
        formula : str
            As in R and bambi, by the library formulae: ``"y ~ x + (1 + x | g)"`` has an intercept, a slope of ``x``,
            and of each an effect for each level of ``g``. ``offset(z)`` adds a column to the predictor, and
            ``outcome['level']`` before the ~ is whether an outcome in words is that level, and ``p(won, trials)`` is
            successes out of trials. `log`, `log2`, `log10`, `exp`, `exp2` and `abs` are functions of columns, and so
            are those known where `from_formula` is called, which the formula may name too: ``bs(x, knots=knots)``.
        frame : pandas.DataFrame, or another frame that has a method `to_pandas`
            The columns that the formula names, without missing values. A category without a row is left out, and so is
            a combination of nested factors such as ``(1 | a / b)``, of which bambi keeps effects that have their prior
            alone; that of a `GLM` made of ``groups=`` stays.
        family : str, default "logistic"
            As in `GLM`.
        prior : Normal, StudentT, Laplace, Horseshoe or dict, optional
            In place of the scaled priors of columns: one for all, as in `GLM`, or a dict by their names, or by that of
            a term for all of its columns: "h" for "h[b]" and "h[c]", which share a scale that is learned. One of
            "Intercept" is on the intercept itself; bambi's is on that of centred columns.
        group_prior : prior of a scale, or dict, optional
            As in `GLM`; what it does not name keeps its scaled prior.
        **options
            Of `GLM`, such as `scale`, `weights` or `shuffle`. A row of weight k is k rows to the priors too; functions
            of the formula that look at a whole column, such as ``scale(x)``, take every row of the frame once.

        Returns
        -------
        GLM
            Its parameters are called as bambi calls its terms: "Intercept", "x", "h[b]"; "1|g[u]" is the effect of
            level "u" on the intercept. `predict` takes new frames with the columns that the formula names.

        Raises
        ------
        ImportError
            Without formulae: ``python -m pip install "formulae>=0.5"``.
        TypeError
            If an option is bambi's; the message says what to do here.
        ValueError
            If the formula cannot be read, or holds what bambi alone has, such as ``weighted(y, w)`` or ``hsgp(x)``; if
            it names a column or a level of the outcome that the frame does not have; if an outcome is not one number a
            row, a value is missing, or a column whose prior is scaled, or an outcome that scales it, is constant.

        Notes
        -----
        With s the standard deviation of the outcome of the "gaussian" and "student-t" families, and 1 elsewhere, a
        coefficient is normal about 0 with standard deviation 2.5 s / sd(column). On the scale of log-odds, which is
        that of the "logistic", "binomial" and "probit" families, it is 1 / sd(column), 1 for categories and
        interactions of categories, and for other interactions 1 / sd(sum of the interaction's columns). The predictor
        without groups at the mean of all columns, which is the intercept of centred columns, is normal about the mean
        of the outcome, or 0, with standard deviation :math:`\sqrt{(2.5 s)^2 + \sum_j (\sigma_j \bar x_j)^2}`, or 1.5
        for log-odds. Effects of groups are independent with half-normal standard deviations of 2.5 s / sd(column), or
        as wide as that square root. This is bambi's joint density without weights, where families, links and parameters
        are the same.

        With `weights`, means and standard deviations here are those of the table in which each row stands as often as
        its weight says; those of bambi's ``weighted(y, w)`` are not, so that its priors differ. Further, bambi's link
        of the gamma family is the inverse unless told otherwise, and here it is the logarithm; its alpha of the gamma
        and negative binomial families is 1 / dispersion, whose prior, half-Cauchy with scale 1, is the same of both; it
        learns the degrees of freedom of the "student-t" family, which are fixed here. It has no scaled priors for
        splines and polynomials, ``bs(x, df=5)``, on the scale of log-odds; here each of their columns has its own.

        References
        ----------
        .. [1] Capretto, Piho, Kumar, Westfall, Yarkoni, Martin, "Bambi: A simple interface for fitting Bayesian linear
           models in Python", Journal of Statistical Software 103(15), 2022.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> from fastrace import mcmc
        >>> rng = np.random.default_rng(0)
        >>> frame = pd.DataFrame({"x": rng.normal(size=500), "g": rng.choice(["u", "v", "w"], size=500)})
        >>> frame["y"] = rng.random(500) < 1.0 / (1.0 + np.exp(-frame["x"]))
        >>> model = mcmc.GLM.from_formula("y ~ x + (1 | g)", frame)  # doctest: +SKIP
        >>> model.names[:3]  # doctest: +SKIP
        ('Intercept', 'x', '1|g[u]')
        >>> trace = mcmc.sample(model, n_draws=500, rng=1)  # doctest: +SKIP
        >>> model.predict(trace, {"x": [0.0, 2.0], "g": ["u", "w"]}, interval=0.9)[0].round(1)  # doctest: +SKIP
        array([0.5, 0.9])
        """
        refuse_options(family, options)
        _frames.require_same_rows(frame=frame, **options)
        caller = sys._getframe(1)
        scope = (caller.f_locals, caller.f_globals)
        with _frames.rows_called_as(frame, *_ROWS):
            found, names, part, terms, new_rows = arguments_of(formula, frame, family, prior, options.get("weights"),
                                                               scope)
        for name, words in (("offset", "write the sum of both in one place"), ("trials", "write them in one place"),
                            ("groups", "write all of them in one place")):
            if found[name] is not None and options.get(name) is not None:
                raise ValueError(f"{name} was given, and the formula has one too: {words}")
        prior = found.pop("prior")
        scaled = with_given(found.pop("group_prior"), group_prior)
        x, y = found.pop("X"), found.pop("y")
        with _frames.rows_called_as(frame, *_ROWS):
            model = cls(x, y, family, prior=prior, group_prior=scaled, names=names, **{**found, **options})
        model.prior_part, model._terms, model._new_rows = part, terms, new_rows
        for index in _frames.indexes(frame):
            model.index = index
        return model

    def predict(
        self,
        trace: Any,
        X: ArrayLike,
        *,
        offset: ArrayLike | None = None,
        groups: Any = None,
        interval: float | None = None,
        new_levels: bool = False,
        rng: _checks.RngLike = None,
    ) -> NDArray[np.float64]:
        """The means of new rows at each draw of a trace, or their posterior mean and an interval.

        Parameters
        ----------
        trace : Trace
            Of this model.
        X : array_like of shape (n, p), sparse table, frame, or dict of columns
            The new rows. Columns of a frame are found by name, and it may have others. Of a model made by a formula a
            frame or dict has the columns that the formula names after the ~, its groups and offsets too; functions
            such as ``scale(x)`` and splines keep what they took from the model's rows, and rows beyond the knots of
            ``bs(x, df=5)`` are warned of; others of whole columns, such as ``I(x - np.mean(x))``, are refused. Or X has
            the columns of the formula's design, such as "Intercept".
        offset : array_like of shape (n,), or float for all rows, optional
            Added to each row's predictor; 0 by default, whatever the rows of the model had. That of a formula is read
            from the frame.
        groups : Groups, array_like, sequence or dict of these, optional
            The group of each new row, for each factor of the model, by name or in their order. Those of a formula are
            read from the frame.
        interval : float, optional
            Posterior probability of an interval with equal tails, such as 0.9.
        new_levels : bool, default False
            Draw the effects of groups that the model does not have from the distribution of effects, given the
            standard deviations and correlations of each draw. Rows of the same new group share an effect.
        rng : None, int, SeedSequence or Generator, optional
            Source of randomness for `new_levels`.

        Returns
        -------
        ndarray of shape (n_chains * n_draws, n), or with `interval` (3, n)
            Draws of the mean of each row's outcome: a probability, of a trial where there are trials, or the mean in
            units of the outcome; of the "student-t" family its center. With `interval` the posterior mean of that, and
            the ends of the interval.

        Raises
        ------
        ValueError
            If the trace is of another model, columns, groups or values are missing, or a level is unknown, which
            `new_levels` allows for groups alone.

        Notes
        -----
        O(n_draws n (p + effects of a row)) time. With `interval` memory is that of 1e6 numbers besides the result.

        Examples
        --------
        >>> import numpy as np
        >>> from fastrace import mcmc
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(1000, 2))
        >>> y = rng.random(1000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
        >>> model = mcmc.GLM(X, y, prior_sd=10.0)
        >>> trace = mcmc.sample(model, n_draws=500, rng=1)
        >>> mean, low, high = model.predict(trace, [[0.0, 0.0], [2.0, 0.0]], interval=0.9)
        >>> mean.round(1)
        array([0.5, 0.9])
        """
        from fastrace.mcmc._prediction import predicted_glm  # which knows traces, as models do not

        return predicted_glm(self, trace, X, offset, groups, new_levels, rng, interval)

    def _all_names(self, names: Sequence[str] | None) -> Sequence[str]:
        """Of all parameters: the columns, "1|clinic[3]" for the intercept of group 3, "age|clinic[3]" for its slope."""
        if names is not None and not self.factors and not self.learns_scale:
            return names
        columns = [f"x{k}" for k in range(self.n_columns)] if names is None else list(names)
        if len(columns) == self.n_columns:
            columns += [name for factor in self.factors for name in factor.effect_names()]
            columns += [f"log({self.scale_name})"] * self.learns_scale
        return columns

    def _variables_of(self, names: Sequence[str]) -> tuple[Variable, ...]:
        called = names or [f"x{k}" for k in range(self.n_columns)]
        return glm_variables(called, self.n_columns, self._terms, self.factors,
                             self.n_seen - 1 if self.learns_scale else None)

    def _layout(self) -> Layout:
        """What priors are put on."""
        return layout_of(self._glm, list(self.names or ())[: self.n_columns], self.learns_scale, self._moments)

    def _look(self, priors_of: PriorsOf) -> None:
        if is_long(self.n_rows) and not is_sparse(self._glm.X):
            in_frame = self._unchecked[0] if self._unchecked else None
            self._moments, self._pilot = first_pass(self, self.column_names, in_frame, priors_of)
            self._unchecked = ()

    @property
    def _remedy(self) -> str:
        """What to do where chains go wrong, if grouping factors are doubtful."""
        return "; ".join(self._doubts)

    def _require_priors(self) -> None:
        """Refuse flat priors under which the posterior is improper whatever the data."""
        if self.joint_prior is not None:
            return
        for factor in self.factors:
            if not (self.prior_precision[factor.start : factor.stop] > 0.0).all():
                raise ValueError(
                    f"the effects of groups {factor.name!r} have a flat prior, under which the posterior is improper: "
                    f"give prior_sd for each of the {self.dim} parameters, finite for effects, or for columns alone"
                )
        if self.learns_scale and self._glm.family == "negative-binomial" and not self.prior_precision[-1] > 0.0:
            raise ValueError(
                f"the logarithm of the dispersion has a flat prior, under which the posterior is improper: as the "
                f"dispersion falls the likelihood tends to that of a Poisson model, not to 0. Give prior_sd, a number "
                f"or one for each of the {self.dim} parameters, finite for the last, or give scale"
            )

    def __repr__(self) -> str:
        groups = "".join(f", {counted(f.n_groups, 'group')} of {f.name!r}{_several(f)}" for f in self.factors)
        return (f"GLM({counted(self.n_rows, 'row')}, {counted(self.n_columns, 'column')}{groups}, "
                f"family={self._glm.family!r})")

    def __str__(self) -> str:
        return with_priors(self)

    @property
    def natural_names(self) -> tuple[str, ...] | None:
        """Names of what `constrain` returns: a learned scale has lost its logarithm there if priors are objects."""
        if self.names is None or self.joint_prior is None or not self.learns_scale:
            return self.names
        last = self.n_seen - 1
        return (*self.names[:last], self.scale_name, *self.names[last + 1 :])

    @property
    def _shown_last(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(j for factor in self.factors for j in range(factor.start, factor.stop))

    _positive = True


def _several(factor: Factor) -> str:
    """Words on the effects of each group, where there are several."""
    kind = "correlated" if factor.correlated else "independent"
    return f" ({factor.width} {kind} effects each)" if factor.width > 1 else ""
