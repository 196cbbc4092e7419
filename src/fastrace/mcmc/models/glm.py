"""Generalised linear models."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace._base._words import counted
from fastrace._models._arrow import Arrow
from fastrace._models._cubic import cubic_bends
from fastrace._models._expanded import Expanded
from fastrace._models._seen import expand_seen
from fastrace._models.glm_inputs import check_offset, refuse_overflow
from fastrace._models.grouping import Factor
from fastrace.control_variates import cubic_shells, cubic_weights
from fastrace.likelihoods import SCALED, GLMSource
from fastrace.mcmc.kernels._chain import mirror, parameters_of
from fastrace.mcmc.models._formula import arguments_of, with_given
from fastrace.mcmc.models._joint import Layout, layout_of
from fastrace.mcmc.models._modes import ImproperError, NoModeError, Parts, ascent, find_mode, movement
from fastrace.mcmc.models._pieces import Pieces
from fastrace.mcmc.models._rows import chunks, lengths, products
from fastrace.mcmc.models.base import LogPrior, Model, Reference
from fastrace.mcmc.models.priors import Scale
from fastrace.results.columns import model_names
from fastrace.sources import Source, column_names

__all__ = ["GLM"]

Array = NDArray[np.float64]

_WIDE = 1 << 16  # rows at a time

STEP = 1e-3  # of a predictor, between second derivatives whose difference is a third
_TINY = -20.0    # logarithm of a learned scale over the size of outcomes, below which rows may be fitted exactly
_FITTED = 0.01   # residual over that scale, below which they are,
_EXACT = 1e-11   # or over the size of the outcomes, which is rounding
_MOST_FITTED = 1000  # parameters, in which a fit with the scale held is tried where no mode was found
_RIDGE = 1e-12   # curvature that it has besides


class GLM(Model):
    r"""A generalised linear model with a normal, flat or user-given prior.

    Parameters
    ----------
    X, y, family
        As in `fastrace.likelihoods.GLMSource`: "logistic", "probit", "cloglog", "binomial", "poisson",
        "negative-binomial", "gaussian", "student-t" or "gamma" regression. An array
        `X` is read in place, a memory map and a sparse table of SciPy in rows (CSR) too.
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
    offset : array_like of shape (n_rows,), optional
        Added to each row's predictor, such as the logarithm of the exposure of a count. At most 700 from 0 where the
        predictor is the logarithm of a mean, or log-odds and the like.
    weights : array_like of whole numbers from 0 up, shape (n_rows,), optional
        How many times each row was seen: its log-likelihood is multiplied by this number.
    trials : array_like of whole numbers from 0 up, shape (n_rows,), optional
        Of the "binomial" family: how many trials had the `y` successes of each row; 1 by default.
    groups : Groups, array_like, sequence or dict of these, optional
        Grouping factors, each an array of codes, or a `Groups` where slopes vary or names matter. Several factors may
        be crossed or nested. The predictor of a row is offset + x . coefficients + the effects of its groups. The
        parameters are the coefficients, then the effects of each factor group by group, then the hyperparameters of the
        prior: standard deviations and correlations of the effects, unless a finite `prior_sd` is given.
    prior : Normal, StudentT, Laplace, Horseshoe, LogDensity, dict or sequence of these, or "weak", optional
        Prior of the coefficients: one for all, or a dict by name of column, in which "intercept" is a constant column.
        A sequence adds a `LogDensity` to a prior. A horseshoe, or a prior with a learned scale, leaves constant columns
        out. "weak", and what a dict or such a prior leaves out, is weakly informative, in units of the data: normal
        with mean 0 and a standard deviation of 2.5 s / (standard deviation of the column). Standard deviations of the
        data have the divisor n, as in bambi. If there is a constant
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
    prior_mean, prior_sd : float or array_like of shape (dim,), default 0 and infinity
        Independent normal priors; an infinite standard deviation is a flat prior. `dim` is the number of parameters:
        p without groups.
    log_prior : callable, optional
        ``log_prior(theta)``, in place of the normal prior or besides. Python code: about a microsecond a step.
    shuffle : None, int, SeedSequence or Generator, optional
        Copy the rows in random order. Races then read consecutive rows, which is much faster where the data are far
        larger than the cache; see ``access`` in `RacingMetropolis`.
    names : sequence of str of length p, optional
        What the coefficients are called in errors and in traces; by default the columns of a frame or dict `X`, or
        "x0", "x1" and so on. The
        intercept of group "3" of the factor "clinic" is called "1|clinic[3]", its slope of "age" "age|clinic[3]".

    Raises
    ------
    ValueError
        If an argument is out of range, pandas indexes differ, or `scale` is given where the family has none.
        `reference`, and so every kernel, raises where the posterior is improper: columns are collinear, or outcomes
        separated, under a flat prior. It also raises where columns are so nearly collinear that double precision does
        not suffice, such as time stamps beside an intercept: centre and scale the columns.

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
    (42, ('1|clinic[0]', 'x1|clinic[0]'))
    """

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
        if scale is not None and family not in SCALED:
            raise ValueError(f"scale is {scale!r}; the {family!r} family has none: leave it out")
        self._glm = GLMSource(
            X, y, None, family, scale, df, offset=offset, weights=weights, trials=trials, groups=groups,
            learn_scale=scale is None and family in SCALED,
        )
        refuse_overflow(self._glm.X, self._glm.y)
        for argument in ("weights", "trials"):
            given = getattr(self._glm, argument)
            if given is not None and not np.asarray(given).any():
                raise ValueError(f"{argument} are all 0: no row says anything, and the posterior would be the prior; "
                                 f"give a row that counts")
        if self._glm.offset is not None:
            check_offset(np.asarray(self._glm.offset), family, self._glm.outcomes, np.asarray(self._glm.y))
        self.shuffled = shuffle is not None
        if self.shuffled:
            self._row_order = _checks.generator(shuffle, "shuffle").permutation(self._glm.n_rows)
            self._glm = self._taken(self._row_order)
        names = model_names(column_names(X)) if names is None else names
        dim = self._glm.theta.shape[1]
        columns = self._all_names(names)
        super().__init__(dim, self._glm.n_rows, prior_mean, prior_sd, log_prior, columns)
        self._take_priors(prior, group_prior, scale_prior, weak=bool(self.factors) or self.learns_scale)
        self._require_priors()

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
        r"""A model written as a formula, with priors scaled as bambi scales them.

        Parameters
        ----------
        formula : str
            As in R and bambi, by the library formulae: ``"y ~ x + (1 + x | g)"`` has an intercept, a slope of ``x``,
            and of each an effect for each level of ``g``. ``offset(z)`` adds a column to the predictor, and
            ``outcome['level']`` before the ~ is whether an outcome in words is that level, and ``p(won, trials)`` is
            successes out of trials. `log`, `log2`, `log10`, `exp`, `exp2` and `abs` are functions of columns.
        frame : pandas.DataFrame, or another frame that has a method `to_pandas`
            The columns that the formula names. A category of pandas without a row is left out, as in bambi; that of a
        `GLM` made of ``groups=`` stays, and its effect has its prior alone.
        family : str, default "logistic"
            As in `GLM`.
        prior : dict, optional
            In place of the scaled priors of columns, by their names. One of "Intercept" is on the intercept itself.
        group_prior : prior of a scale, or dict, optional
            As in `GLM`; what it does not name keeps its scaled prior.
        **options
            Of `GLM`, such as `scale`, `weights` or `shuffle`.

        Returns
        -------
        GLM
            Its parameters are called as bambi calls its terms: "Intercept", "x", "h[b]"; "1|g[u]" is the effect of
            level "u" on the intercept.

        Raises
        ------
        ImportError
            Without formulae: ``python -m pip install "formulae>=0.5"``.
        ValueError
            If the formula cannot be read, or names a column or a level of the outcome that the frame does not have, an
            outcome is not one number a row, a value is missing, or a column is constant.

        Notes
        -----
        With s the standard deviation of the outcome of the "gaussian" and "student-t" families, and 1 elsewhere, a
        coefficient is normal about 0 with standard deviation 2.5 s / sd(column); on the scale of log-odds with
        1 / sd(column), or 1 for a category. The predictor without groups at the mean of all columns, which is the
        intercept of centred columns, is normal about the mean of the outcome, or 0, with standard deviation
        :math:`\sqrt{(2.5 s)^2 + \sum_j (\sigma_j \bar x_j)^2}`, or 1.5 for log-odds. Effects of groups are
        independent with half-normal standard deviations of 2.5 s / sd(column), or as wide as that square root. This
        is bambi's joint density, where families, links and parameters are the same: bambi's link of the gamma
        family is the inverse unless told otherwise, and here it is the logarithm; its alpha of the gamma and negative
        binomial families is 1 / dispersion, whose prior, half-Cauchy with scale 1, is the same of both; it learns the
        degrees of freedom of the "student-t" family, which are fixed here.

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
        """
        _frames.require_same_rows(frame=frame, **options)
        found, names, part = arguments_of(formula, frame, family, prior)
        for name, words in (("offset", "write the sum of both in one place"), ("trials", "write them in one place")):
            if found[name] is not None and options.get(name) is not None:
                raise ValueError(f"{name} was given, and the formula has one too: {words}")
        prior = found.pop("prior")
        scaled = with_given(found.pop("group_prior"), group_prior)
        x, y = found.pop("X"), found.pop("y")
        model = cls(x, y, family, prior=prior, group_prior=scaled, names=names, **{**found, **options})
        model.prior_part = part
        return model

    def _taken(self, rows: NDArray[np.intp] | slice, n_arms: int = 1) -> GLMSource:
        """These rows in this order, with all that each has, and arms of zeros."""
        g = self._glm
        beside: dict[str, Any] = {
            name: tuple(group.reordered(rows) for group in value) if name == "groups"
            else value if name == "learn_scale" else value[rows]
            for name, value in g.beside().items()
        }
        theta = np.zeros((n_arms, g.theta.shape[1]))
        return GLMSource(g.X[rows], g.y[rows], theta, g.family, g.scale, g.df, check_finite=False, **beside)

    def _all_names(self, names: Sequence[str] | None) -> Sequence[str]:
        """Of all parameters: the columns, "1|clinic[3]" for the intercept of group 3, "age|clinic[3]" for its slope."""
        if names is not None and not self.factors and not self.learns_scale:
            return names
        columns = [f"x{k}" for k in range(self.n_columns)] if names is None else list(names)
        if len(columns) == self.n_columns:
            columns += [name for factor in self.factors for name in factor.effect_names()]
            columns += [f"log({self.scale_name})"] * self.learns_scale
        return columns

    def _layout(self) -> Layout:
        """What priors are put on."""
        return layout_of(self._glm, list(self.names or ())[: self.n_columns], self.learns_scale)

    def _require_priors(self) -> None:
        """Refuse flat priors under which the posterior is improper whatever the data."""
        if self.joint_prior is not None:
            return
        for factor in self.factors:
            if not (self.prior_precision[factor.start : factor.stop] > 0.0).all():
                raise ValueError(
                    f"the effects of groups {factor.name!r} have a flat prior, under which the posterior is improper: "
                    f"give prior_sd, a number or one for each of the {self.dim} parameters, finite for effects"
                )
        if self.learns_scale and self._glm.family == "negative-binomial" and not self.prior_precision[-1] > 0.0:
            raise ValueError(
                f"the logarithm of the dispersion has a flat prior, under which the posterior is improper: as the "
                f"dispersion falls the likelihood tends to that of a Poisson model, not to 0. Give prior_sd, a number "
                f"or one for each of the {self.dim} parameters, finite for the last, or give scale"
            )

    def __repr__(self) -> str:
        groups = "".join(f", {counted(f.n_groups, 'group')} of {f.name!r}" for f in self.factors)
        return (f"GLM({counted(self.n_rows, 'row')}, {counted(self.n_columns, 'column')}{groups}, "
                f"family={self._glm.family!r})")

    @property
    def n_columns(self) -> int:
        """Number of columns of X, whose coefficients are the first parameters."""
        return int(self._glm.X.shape[1])

    @property
    def learns_scale(self) -> bool:
        """Whether the last parameter that the rows see is the logarithm of the scale."""
        return bool(self._glm.learns_scale)

    @property
    def natural_names(self) -> tuple[str, ...] | None:
        """Names of what `constrain` returns: a learned scale has lost its logarithm there if priors are objects."""
        if self.names is None or self.joint_prior is None or not self.learns_scale:
            return self.names
        last = self.n_seen - 1
        return (*self.names[:last], self.scale_name, *self.names[last + 1 :])

    @property
    def scale_name(self) -> str:
        """What `scale` is: the "scale" of outcomes about their mean or center, or their "dispersion"."""
        return "scale" if self._glm.outcomes == "real" else "dispersion"

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The grouping factors, with where each stands in the parameters; empty without groups."""
        return tuple(self._glm.factors)

    def expand_seen(self, psi: ArrayLike) -> tuple[float, Array, Arrow]:
        """Expand the log-likelihood in what the rows see.

        Parameters
        ----------
        psi : array_like of shape (n_seen,)
            Coefficients, then the effects of each factor group by group, then the logarithm of the scale if it is
            learned.

        Returns
        -------
        value : float
            The log-likelihood but for terms that depend on no parameter.
        gradient : ndarray of shape (n_seen,)
            Its first derivatives.
        hessian : Arrow
            Its second derivatives: dense in all but the effects of the factor that has most of them, whose blocks are
            kept apart.
        """
        point = np.asarray(psi, dtype=np.float64)
        self._require_misfit(point)
        return expand_seen(self._glm, point)

    @property
    def _shown_last(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(j for factor in self.factors for j in range(factor.start, factor.stop))

    _positive = True

    @property
    def _concave(self) -> bool:  # type: ignore[override]
        return self._glm.family != "student-t" and not self.learns_scale

    @property
    def has_derivatives(self) -> bool:
        return True

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        own, theta = self._arms(2)
        return own if reference is None else Expanded(own, reference.theta_hat), theta

    def _arms(self, count: int) -> tuple[GLMSource, Array]:
        g = self._glm
        theta = np.zeros((count, self.n_seen))
        own = GLMSource(g.X, g.y, theta, g.family, g.scale, g.df, check_finite=False, **g.beside())
        return own, parameters_of(own)

    def _pairs(self, count: int, middle: Array) -> tuple[GLMSource, Array]:
        own, theta = self._arms(count)
        if not self.learns_scale:
            mirror(own, middle)
        return own, theta

    def _lean(self, reference: Reference) -> Array:
        """Half the contraction of the third derivatives with the covariance, whitened; Tierney & Kadane (1986)."""
        out = np.zeros(self.n_seen)
        if self.learns_scale:
            return out
        eta, y = self._predictors(reference.theta_hat), np.asarray(self._glm.y)
        third = (self._glm.expand(y, eta + STEP)[2] - self._glm.expand(y, eta - STEP)[2]) / (2.0 * STEP)
        if self._glm.term_weights is not None:
            third = third * self._glm.term_weights
        for part, x in products(self._glm.X, self.factors, reference.factor):
            out += (third[part] * np.square(x).sum(axis=1)) @ x
        return 0.5 * out

    @property
    def beside(self) -> tuple[str, ...]:
        """What the model has beside columns in memory and outcomes, in words; empty for most models."""
        return (*self._glm.beside(), *(["a sparse X"] if hasattr(self._glm.X, "nnz") else []))

    def _expand_some(self, at: Array, rows: NDArray[np.int64]) -> Parts:
        return _summed(self._taken(rows), at)

    def _in_order(self, order: NDArray[np.intp]) -> GLMSource:
        """Two arms of the rows in another order; rows that are in it already stay where they are."""
        as_they_are = bool((order == np.arange(len(order))).all())
        return self._taken(slice(None) if as_they_are else order, 2)

    def _expand(self, at: Array) -> Parts:
        self._require_misfit(at)
        return _summed(self._glm, at)

    def _require_misfit(self, at: Array) -> None:
        """Raise if a learned scale has fallen almost to 0 and the rows are fitted better still.

        Then they can be fitted exactly, and the likelihood grows without bound as the scale falls.
        """
        kind = self._glm.outcomes
        if not self.learns_scale or kind == "count" or at.shape != (self.n_seen,):
            return
        y = np.asarray(self._glm.y, dtype=np.float64)
        scale = math.exp(min(700.0, max(-700.0, at[-1] if kind == "real" else 0.5 * at[-1])))
        size = (float(np.sqrt(np.square(y).mean())) if kind == "real" else 1.0) or 1.0
        if not scale < math.exp(_TINY) * size:
            return
        with np.errstate(all="ignore"):
            left = y - self._predictors(at) if kind == "real" else y * np.exp(-self._predictors(at)) - 1.0
        if self._glm.term_weights is not None:
            left = left[np.asarray(self._glm.term_weights) > 0.0]
        if float(np.sqrt(np.square(left).mean())) < max(_FITTED * scale, _EXACT * size):
            raise ImproperError(
                f"the {counted(len(left), 'row')} can be fitted exactly by the {self.n_seen - 1} coefficients and "
                f"effects: the likelihood grows without bound as the {self.scale_name} falls to 0, so that there is "
                f"no point to expand at, and the posterior is improper unless its prior keeps it from 0. Give scale, "
                f"or leave out columns or groups, such as groups of one row each"
            )

    def _explain_no_mode(self) -> None:
        """Raise if the rows can be fitted exactly, as far as a fit with the scale held tells."""
        if not self.learns_scale or self._glm.outcomes == "count" or self.n_seen > _MOST_FITTED:
            return

        def held(at: Array) -> Parts:
            value, gradient, hessian = _summed(self._glm, np.append(at, 0.0))
            return value, gradient[:-1], hessian[:-1, :-1] - _RIDGE * np.eye(len(at))

        with contextlib.suppress(NoModeError):
            self._require_misfit(np.append(find_mode(held, np.zeros(self.n_seen - 1), 1e-26), -60.0))

    def _bounds(self, hat: Array, factor: Array) -> tuple[Any, ...]:
        shells: tuple[tuple[float, Array], ...] = ()
        if self.learns_scale:
            weights, radius = self._mixed_weights(hat, factor)
        else:
            of_rows = self._glm, self._lengths(factor), lambda: self._predictors(hat)
            weights, radius = cubic_weights(*of_rows)
            shells = cubic_shells(*of_rows, weights, radius)
        times = self._glm.term_weights
        if times is not None:
            weights, shells = weights * times, tuple((r, w * times) for r, w in shells)
        return weights, radius, self._rounding(hat), *shells

    def _piece_weights(self, hat: Array, pieces: Pieces) -> tuple[Array, float]:
        """Weights of `Pieces` with which a row's bound is a sum over the pieces it sees; `rounding` as `_bounds`."""
        across = pieces.lengths(self._glm.X, self.factors)
        reach, along = pieces.radii @ across, 0.0
        if self.learns_scale:
            along = float(np.linalg.norm(pieces.response[-1]))
            bends = self._mixed_bends(hat, reach, along * pieces.radii[0])
        else:
            bends = cubic_bends(self._glm, lambda: self._predictors(hat), reach)[None]
        weights = pieces.weights(bends, across, along)
        times = self._glm.term_weights
        return (weights if times is None else weights * times), self._rounding(hat)

    def _tilt(self, hat: Array, spread: Array, use: NDArray[np.bool_] | None = None) -> Array:
        """By how much the mean gradient over the rows' own spread differs from that at `hat`; of rows to `use`.

        Added to the gradient of an expansion, it puts the expansion's mean nearly where the posterior's mean is.
        """
        center, times, out = self._predictors(hat), self._glm.term_weights, np.zeros(self.n_seen)
        nodes, shares = np.polynomial.hermite_e.hermegauss(5)
        for first in range(0, self.n_rows, _WIDE):
            part = slice(first, min(first + _WIDE, self.n_rows))
            y, eta = self._glm.y[part], center[part]
            more = -self._glm.expand(y, eta)[1]
            for node, share in zip(nodes, shares / shares.sum(), strict=True):
                more = more + share * self._glm.expand(y, eta + node * spread[part])[1]
            more = more if times is None else more * times[part]
            more = more if use is None else more * use[part]
            out[: self.n_columns] += self._glm.X[part].T @ more
            for factor in self.factors:
                values = factor.values(self._glm.X, part) * more[:, None]
                for k in range(factor.width):
                    out[factor.start + k : factor.stop : factor.width] += np.bincount(
                        factor.codes[part], values[:, k], factor.n_groups)
        return out

    def _mixed_bends(self, hat: Array, reach: Array, further: float) -> Array:
        """Bounds on the third derivatives in eta and aux as long as they move by `reach` and `further` at most."""
        center, y = self._predictors(hat), np.asarray(self._glm.y)
        return np.asarray(self._glm.mixed_third_derivatives(
            center - reach, center + reach, y, hat[-1] - further, hat[-1] + further
        ))

    def _mixed_weights(self, hat: Array, factor: Array) -> tuple[Array, float]:
        """The same where the scale is learned: a step of length 1 moves eta by at most `across`, and aux by `along`."""
        radius = math.sqrt(self.n_seen) + 5.0
        across, along = self._lengths(factor), float(np.linalg.norm(factor[-1]))
        y, bounds = np.asarray(self._glm.y), self._mixed_bends(hat, across * radius, along * radius)
        powers = np.array([across**3, 3.0 * across**2 * along, 3.0 * across * along**2, np.full(len(y), along**3)])
        return np.asarray((bounds * powers).sum(axis=0)), radius

    def _start(self) -> Array:
        """Where to look for the mode from: zeros, or least squares of the outcomes, or of their logarithms."""
        start, kind = np.zeros(self.n_seen), self._glm.outcomes
        logs = kind in ("count", "positive")
        if not (logs or self.learns_scale) or hasattr(self._glm.X, "nnz"):
            return start
        p = self.n_columns
        total = squares = 0.0
        gradient, hessian = np.zeros(p), np.zeros((p, p))
        for part, x in chunks(self._glm.X):
            level = np.asarray(self._glm.y[part], dtype=np.float64)
            mean = level + 0.5 if kind == "count" else np.ones(len(level))
            if logs:
                level = np.log(level + 0.5 if kind == "count" else level)
            if self._glm.offset is not None:
                level = level - self._glm.offset[part]
            if self._glm.weights is not None:
                mean = mean * self._glm.weights[part]
            gradient += (mean * level) @ x
            hessian -= x.T @ (mean[:, None] * x)
            total += float(mean.sum())
            squares += float(mean @ np.square(level))
        step = -self.prior_mean[:p]
        start[:p] = ascent(hessian - np.diag(self.prior_precision[:p]), gradient - self.prior_precision[:p] * step)
        if self.learns_scale and kind != "count":
            left = squares - float(start[:p] @ (2.0 * gradient + hessian @ start[:p]))
            variance = max(left, 1e-6 * squares, 1e-300) / max(total, 1.0)
            start[-1] = math.log(variance) * (1.0 if kind == "positive" else 0.5)
        return start

    def _margins(self, at: Array) -> tuple[float, float] | None:
        if self._glm.outcomes in ("real", "positive"):
            return None
        y, moved = np.asarray(self._glm.y), self._movements(at)
        if self._glm.outcomes == "count":  # rows with a count hold their predictors
            right = np.where(y > 0.0, -np.abs(moved), -moved)
        elif self._glm.trials is not None:
            all_won = np.where(y == self._glm.trials, moved, -np.abs(moved))
            right = np.where(y == 0.0, -moved, all_won)[self._glm.trials > 0.0]
        else:
            right = np.where(y > 0.5, moved, -moved)
        return float(right.min()), float(right.max())

    def _moved(self, direction: Array) -> float:
        return movement(self._glm.X, direction[:, None], self.factors)

    def slopes(self, reference: Reference) -> Array:
        steepest = self._glm.steepest
        if steepest == math.inf or self.learns_scale:
            raise ValueError(
                f"the slope of the {self._glm.family} family's terms is not bounded, and TunaMH needs a bound; use "
                f"PoissonMinibatchMetropolis or RacingMetropolis"
            )
        slopes = steepest * self._lengths(reference.factor)
        return slopes if self._glm.term_weights is None else slopes * self._glm.term_weights

    def _lengths(self, factor: Array) -> Array:
        """Norm of each whitened row: x . (theta - hat) is at most this times the whitened distance."""
        return lengths(self._glm.X, factor, self.factors)

    def _predictors(self, at: Array) -> Array:
        moved = self._movements(at)
        return moved if self._glm.offset is None else moved + self._glm.offset

    def _movements(self, step: Array) -> Array:
        """How far a step of the parameters moves each row's predictor."""
        return np.concatenate([moved for _, moved in products(self._glm.X, self.factors, step)])


def expanded(glm: GLMSource, at: Array, first: int, last: int) -> Parts:
    """Sums of the terms of rows `first` to ``last - 1``, their gradients and Hessians."""
    dim = glm.X.shape[1]
    value, gradient, hessian = 0.0, np.zeros(dim), np.zeros((dim, dim))
    for part, x in chunks(glm.X[first:last]):
        level, slope, curvature = glm.derivatives(at, first + part.start, len(x))
        value += level.sum()
        gradient += slope @ x
        hessian += x.T @ (curvature[:, None] * x)
    return float(value), gradient, hessian


def _summed(glm: GLMSource, at: Array) -> Parts:
    """The same of all rows, whatever the design."""
    if glm.factors or glm.learns_scale or hasattr(glm.X, "nnz"):
        try:
            level, pull, arrow = expand_seen(glm, at)
        except ValueError:  # overflow
            return math.nan, np.full(len(at), np.nan), np.full((len(at), len(at)), np.nan)
        return level, pull, arrow.to_dense()
    return expanded(glm, at, 0, glm.n_rows)
