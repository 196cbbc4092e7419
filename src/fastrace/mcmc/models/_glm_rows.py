"""What the rows of a generalised linear model say: their terms, the derivatives of these, and bounds on them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _frames
from fastrace._base._words import counted
from fastrace._models._arrow import Arrow
from fastrace._models._cubic import cubic_bends
from fastrace._models._seen import expand_seen
from fastrace._models._slopes import GLMSlopes, Slopes
from fastrace._models.grouping import Factor
from fastrace._models.rows import chunks, lengths, products, products_with, stored_chunks
from fastrace.control_variates import cubic_shells, cubic_weights, residual_rounding
from fastrace.likelihoods import GLMSource
from fastrace.mcmc.kernels._chain import mirror, parameters_of
from fastrace.mcmc.models._first_pass import About, Moments, Pilot
from fastrace.mcmc.models._modes import ImproperError, NoModeError, Parts, ascent, find_mode, movement
from fastrace.mcmc.models._pieces import Pieces
from fastrace.mcmc.models._unseen import unseen_directions
from fastrace.mcmc.models.base import Reference, _CompiledModel, normal_reach, quotients

__all__ = ["GLMRows", "expanded", "mixed_weights"]

Array = NDArray[np.float64]

_WIDE = 1 << 16  # rows at a time
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(5)
_SHARES /= _SHARES.sum()
STEP = 1e-3  # of a predictor, between second derivatives whose difference is a third
_TINY = -20.0    # logarithm of a learned scale over the size of outcomes, below which rows may be fitted exactly
_FITTED = 0.01   # residual over that scale, below which they are,
_EXACT = 1e-11   # or over the size of the outcomes, which is rounding
_MOST_FITTED = 1000  # parameters, in which a fit with the scale held is tried where no mode was found
_RIDGE = 1e-12   # curvature that it has besides
_ROUNDING = 1e-9  # of outcomes, in residuals of least squares


class GLMRows(_CompiledModel):
    """The part of `GLM` that reads rows; `GLM` itself takes the arguments, names and priors."""

    _glm: GLMSource
    _keeps = False  # whether what a pass about a point finds is kept, as long as a kernel is made:
    _kept: About | None = None  # what was found, and
    _planned: About | None = None  # what the pass that expands the rows at its point is to find too
    _pilot: Pilot | None = None  # where that will be wanted, of many rows
    _moments: Moments | None = None  # of columns, where the first pass took them
    _computed = (*_CompiledModel._computed, "_moments", "_pilot")

    @property
    def n_columns(self) -> int:
        """Number of columns of X, whose coefficients are the first parameters."""
        return int(self._glm.X.shape[1])

    @property
    def column_names(self) -> list[str]:
        """What the columns of X are called."""
        return list(self.names or ())[: self.n_columns]

    @property
    def learns_scale(self) -> bool:
        """Whether the last parameter that the rows see is the logarithm of the scale."""
        return bool(self._glm.learns_scale)

    @property
    def scale_name(self) -> str:
        """What `scale` is: the "scale" of outcomes about their mean or center, or their "dispersion"."""
        return "scale" if self._glm.outcomes == "real" else "dispersion"

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The grouping factors, with where each stands in the parameters; empty without groups."""
        return tuple(self._glm.factors)

    @property
    def beside(self) -> tuple[str, ...]:
        """What the model has beside columns in memory and outcomes, in words; empty for most models."""
        return (*self._glm.beside(), *(["a sparse X"] if hasattr(self._glm.X, "nnz") else []))

    # Terms and where they are highest.

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

    def _in_order(self, order: NDArray[np.intp]) -> GLMSource:
        """Two arms of the rows in another order; rows that are in it already stay where they are."""
        as_they_are = bool((order == np.arange(len(order))).all())
        return self._taken(slice(None) if as_they_are else order, 2)

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
        point = _frames.floats_in_order(psi, (self.names or ())[: self.n_seen], "psi")
        self._require_misfit(point)
        planned = self._planned
        if planned is None or not np.array_equal(planned.hat, point):
            return expand_seen(self._glm, point)
        out = expand_seen(self._glm, point, planned.take)
        self._kept, self._planned = planned, None
        return out

    def _slopes(self) -> Slopes:
        return GLMSlopes(self._glm)

    def _expand(self, at: Array) -> Parts:
        self._require_misfit(at)
        return _summed(self._glm, at)

    def _expand_some(self, at: Array, rows: NDArray[np.int64]) -> Parts:
        return _summed(self._taken(rows), at)

    def _require_misfit(self, at: Array) -> None:
        """Raise if a learned scale has fallen almost to 0 and the rows are fitted better still.

        Then they can be fitted exactly, and the likelihood grows without bound as the scale falls.
        """
        kind = self._glm.outcomes
        if not self.learns_scale or kind == "count" or at.shape != (self.n_seen,):
            return
        y = np.asarray(self._glm.y, dtype=np.float64)
        scale = math.exp(min(700.0, max(-700.0, at[-1] if kind == "real" else 0.5 * at[-1])))
        seen = slice(None) if self._glm.term_weights is None else np.asarray(self._glm.term_weights) > 0.0
        size = (float(np.sqrt(np.square(y[seen]).mean())) if kind == "real" else 1.0) or 1.0
        if not scale < math.exp(_TINY) * size:
            return
        with np.errstate(all="ignore"):
            left = y - self._predictors(at) if kind == "real" else y * np.exp(-self._predictors(at)) - 1.0
        left = left[seen]
        if float(np.sqrt(np.square(left).mean())) < max(_FITTED * scale, _EXACT * size):
            who, then, more = ("coefficients", "and the posterior is improper unless its prior keeps it from 0", "")
            if self._glm.factors:
                who, then = ("coefficients and effects", f"and only priors tell the {self.scale_name} from the spread "
                                                         f"of effects")
                if self._marginal_is_bounded:
                    more = ", or priors that say which is which, by scale_prior or group_prior"
            raise (NoModeError if more and self._gave_scales else ImproperError)(
                f"the {counted(len(left), 'row')} can be fitted exactly by the {self.n_seen - 1} {who}: the likelihood "
                f"grows without bound as the {self.scale_name} falls to 0, so that there is no point to expand at, "
                f"{then}. Give scale{more}, or leave out columns or groups, such as groups of one row each"
            )

    @property
    def _scale_by_priors(self) -> bool:
        """Whether priors that came tell the scale from effects that fit all rows: the joint density has no mode."""
        return self._gave_scales and self._marginal_is_bounded

    @property
    def _marginal_is_bounded(self) -> bool:
        """Whether the posterior is proper, as far as known, where columns and effects fit the rows exactly.

        So it is of Gaussian outcomes and intercepts of one factor, if columns alone leave residuals and every outcome
        adds to the rank of columns and effects: the likelihood without effects is then bounded as the scale falls.
        """
        X, y, terms = self._glm.X, np.asarray(self._glm.y, dtype=np.float64), [f.terms for f in self.factors]
        alone = self.learns_scale and self._glm.weights is None and not hasattr(X, "nnz")
        if not (alone and self._glm.family == "gaussian" and terms == [("1",)]):
            return False
        codes = self.factors[0].codes
        counts = np.bincount(codes)
        several = np.flatnonzero(counts[codes] > 1)
        spare = len(several) - int((counts > 1).sum())
        if spare > self.n_columns:
            return False
        x, (_, own) = np.asarray(X[several], dtype=np.float64), np.unique(codes[several], return_inverse=True)
        means = np.stack([np.bincount(own, column) for column in x.T], axis=1) / np.bincount(own)[:, None]
        if spare and np.linalg.matrix_rank(x - means[own]) < spare:
            return False
        y = y if self._glm.offset is None else y - self._glm.offset
        left = y - X @ np.linalg.lstsq(np.asarray(X, dtype=np.float64), y)[0]
        return bool(np.abs(left).max() > _ROUNDING * np.abs(y).max())

    @property
    def _gave_scales(self) -> bool:
        """Whether a prior of the scale, or of the spread of effects, is another than the weakly informative one."""
        if self.joint_prior is None:
            return self.log_prior is None and bool((self.prior_precision[self.n_columns :] > 0.0).all())
        layout, (_, _, factors, aux, _) = self._layout(), self.joint_prior.given
        weak = [layout.weak_sd(effects, 0).triple() for effects in layout.factors]
        return bool(aux != layout.weak_scale().triple() or [sds[0] for _, sds, _ in factors] != weak)

    def _explain_no_mode(self) -> None:
        """Raise if the rows can be fitted exactly, as far as a fit with the scale held tells, or are Student-t."""
        if self.learns_scale and self._glm.outcomes != "count" and self.n_seen <= _MOST_FITTED:
            self._explain_exact_fit()
        if self._glm.family == "student-t":
            raise NoModeError(f"no mode of the Student-t likelihood was found to expand at{self._against_peaks}")

    @property
    def _against_peaks(self) -> str:
        if any(factor.n_groups >= self.n_rows for factor in self.factors) and self.learns_scale:
            return (": effects and scale cannot be told apart, as in groups of one row each. Give scale, leave out the "
                    "groups, or give psi_hat")
        if self._glm.family == "student-t":  # the only one that is not log-concave in its predictors
            scale = "a scale about as wide as that" if self.learns_scale else "a larger scale"
            point = "" if self.learns_scale else ", give psi_hat near one of the modes"
            groups = ", leave out the groups" if self.factors else ""
            return (f". A Student-t likelihood may have several modes where outcomes of a group, or of like "
                    f"predictors, lie further apart than its scale: give {scale} or a larger df{point}{groups}, or "
                    f"take family='gaussian'")
        if self.learns_scale:
            return ": effects and scale are hard to tell apart. Give scale, leave out the groups, or give psi_hat"
        return super()._against_peaks

    def _explain_exact_fit(self) -> None:
        """Raise if the rows can be fitted exactly, as far as a fit with the scale held tells."""

        def held(at: Array) -> Parts:
            value, gradient, hessian = _summed(self._glm, np.append(at, 0.0))
            return value, gradient[:-1], hessian[:-1, :-1] - _RIDGE * np.eye(len(at))

        with contextlib.suppress(NoModeError):
            self._require_misfit(np.append(find_mode(held, np.zeros(self.n_seen - 1), 1e-26), -60.0))

    def _start(self) -> Array:
        """Where to look for the mode from: zeros, or least squares of the outcomes, or of their logarithms."""
        return self._first_guess(self._glm)

    def _first_guess(self, glm: GLMSource) -> Array:
        """The same of all rows, or of some."""
        start, kind = np.zeros(self.n_seen), glm.outcomes
        logs = kind in ("count", "positive")
        if not (logs or self.learns_scale) or hasattr(glm.X, "nnz"):
            return start
        p = self.n_columns
        total = squares = 0.0
        gradient, hessian = np.zeros(p), np.zeros((p, p))
        for part, x in chunks(glm.X):
            level = np.asarray(glm.y[part], dtype=np.float64)
            mean = level + 0.5 if kind == "count" else np.ones(len(level))
            if logs:
                level = np.log(level + 0.5 if kind == "count" else level)
            if glm.offset is not None:
                level = level - glm.offset[part]
            if glm.weights is not None:
                mean = mean * glm.weights[part]
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
            right = np.where(y == 0.0, -moved, all_won)
        else:
            right = np.where(y > 0.5, moved, -moved)
        if self._glm.term_weights is not None:
            right = right[self._glm.term_weights > 0.0]
        return float(right.min()), float(right.max())

    def _moved(self, direction: Array) -> float:
        return movement(self._glm.X, direction[:, None], self.factors)

    # Terms as a chain reads them.

    @property
    def _concave(self) -> bool:  # type: ignore[override]
        return self._glm.family != "student-t" and not self.learns_scale

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

    def _tilt(self, hat: Array, spread: Array, use: NDArray[np.bool_] | None = None) -> Array:
        """By how much the mean gradient over the rows' own spread differs from that at `hat`; of rows to `use`.

        Added to the gradient of an expansion, it puts the expansion's mean nearly where the posterior's mean is.
        """
        kept, out = self._kept, np.zeros(self.n_seen)
        if kept is None or kept.tilt is None or not np.array_equal(kept.hat, hat) or (
                not np.array_equal(kept.across, spread)):
            center = self._predictors(hat)
            for first in range(0, self.n_rows, _WIDE):
                part = slice(first, min(first + _WIDE, self.n_rows))
                self._add_tilt(out, part, self._glm.X[part], center[part], spread[part],
                               None if use is None else use[part])
            return out
        others = np.zeros(0, dtype=np.intp) if use is None else np.flatnonzero(~use)
        for first in range(0, len(others), _WIDE):
            rows = others[first : first + _WIDE]
            self._add_tilt(out, rows, self._glm.X[rows], kept.center[rows], spread[rows])
        return np.asarray(kept.tilt - out)

    def _add_tilt(
        self, out: Array, part: slice | NDArray[np.intp], x: Any, eta: Array, spread: Array,
        use: NDArray[np.bool_] | None = None,
    ) -> None:
        """Add that of some rows, whose entries of X are `x`, with predictors `eta` at `hat`."""
        y, times = self._glm.y[part], self._glm.term_weights
        more = -self._glm.expand(y, eta)[1]
        for node, share in zip(_NODES, _SHARES, strict=True):
            more = more + share * self._glm.expand(y, eta + node * spread)[1]
        more = more if times is None else more * times[part]
        more = more if use is None else more * use
        out[: self.n_columns] += x.T @ more
        for factor in self.factors:
            values = factor.values(self._glm.X, part) * more[:, None]
            for k in range(factor.width):
                out[factor.start + k : factor.stop : factor.width] += np.bincount(
                    factor.codes[part], values[:, k], factor.n_groups)

    # Bounds on how far terms change.

    def _bounds(self, hat: Array, factor: Array) -> tuple[Any, ...]:
        shells: tuple[tuple[float, Array], ...] = ()
        about = self._about(hat, factor)
        center, across, rounding = about.center, about.across, residual_rounding(about.largest)
        if self.learns_scale:
            weights, radius = mixed_weights(self._glm, self._glm.y, center, float(hat[-1]), across, factor)
        else:
            of_rows = self._glm, across, lambda: center
            weights, radius = cubic_weights(*of_rows)
            shells = cubic_shells(*of_rows, weights, radius)
        times = self._glm.term_weights
        if times is not None:
            weights, shells = weights * times, tuple((r, w * times) for r, w in shells)
        return weights, radius, rounding, *shells

    def _about(self, hat: Array, factor: Array) -> About:
        """What a pass over the rows about a point finds, unless it was kept."""
        kept = self._kept
        if kept is not None and np.array_equal(kept.hat, hat) and np.array_equal(kept.factor, factor):
            return kept
        out = About(self, hat, factor)
        source, theta = self.engine(None)
        theta[0] = hat
        for part, x in stored_chunks(self._glm.X):
            out.take(part, x, source.read(np.arange(part.start, part.stop), [0]))
        if self._keeps:
            self._kept = out
        return out

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        self._keeps = True
        try:
            yield
        finally:
            for name in ("_keeps", "_kept", "_planned"):
                self.__dict__.pop(name, None)

    def _inverse_cubes(self, reference: Reference, lengths: Array | None = None) -> NDArray[np.float32] | None:
        if self.learns_scale:
            return None
        return quotients(1.0, (self._lengths(reference.factor) if lengths is None else lengths) ** 3)

    def _weights_within(self, hat: Array, lengths: Array, radius: float) -> Array:
        """Weights as those of `_bounds` that hold within a ball; of a fixed scale."""
        times = self._glm.term_weights
        weights = cubic_bends(self._glm, lambda: self._predictors(hat), radius * lengths) * lengths**3
        return weights if times is None else weights * times

    def _likely_bounds(self, reference: Reference, middle: Array, delta: float) -> Array | None:
        if self.learns_scale:
            return None
        reach = normal_reach(delta, self.n_rows) * self._lengths(reference.factor)
        reach += np.abs(self._movements(middle - reference.theta_hat))
        return self._weights_within(reference.theta_hat, reach, 1.0) / 6.0

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

    def _mixed_bends(self, hat: Array, reach: Array, further: float) -> Array:
        """Bounds on the third derivatives in eta and aux as long as they move by `reach` and `further` at most."""
        return mixed_bends(self._glm, self._glm.y, self._predictors(hat), float(hat[-1]), reach, further)

    def slopes(self, reference: Reference) -> Array:
        steepest = self._glm.steepest
        if steepest == math.inf or self.learns_scale:
            raise ValueError(
                f"the slope of the {self._glm.family} family's terms is not bounded, and TunaMH needs a bound; use "
                f"PoissonMinibatchMetropolis or RacingMetropolis"
            )
        slopes = steepest * self._lengths(reference.factor)
        return slopes if self._glm.term_weights is None else slopes * self._glm.term_weights

    def _unseen_ways(self) -> Array:
        """Steps that no row sees, shape (k, n_seen)."""
        return unseen_directions(self._glm.X, self.factors, self.n_seen)

    def _lengths(self, factor: Array) -> Array:
        """Norm of each whitened row: x . (theta - hat) is at most this times the whitened distance."""
        kept = self._kept
        if kept is not None and np.array_equal(kept.factor, factor):
            return kept.across
        return lengths(self._glm.X, factor, self.factors)

    def _predictors(self, at: Array) -> Array:
        kept = self._kept
        if kept is not None and np.array_equal(kept.hat, at):
            return kept.center
        moved = self._movements(at)
        return moved if self._glm.offset is None else moved + self._glm.offset

    def _movements(self, step: Array, rows: NDArray[np.intp] | None = None) -> Array:
        """How far a step of the parameters moves each row's predictor, or that of some rows."""
        if rows is not None:
            return products_with(rows, self._glm.X, self.factors, step)
        return np.concatenate([moved for _, moved in products(self._glm.X, self.factors, step)])


def mixed_bends(glm: GLMSource, y: Any, center: Array, aux: float, reach: Array, further: float) -> Array:
    """Bounds on the third derivatives of some rows' terms in eta and the logarithm aux of a learned scale.

    They hold as long as eta moves by `reach` from `center`, a number for each row, and aux by `further` at most.
    """
    return np.asarray(glm.mixed_third_derivatives(center - reach, center + reach, np.asarray(y), aux - further,
                                                  aux + further))


def mixed_weights(
    glm: GLMSource, y: Any, center: Array, aux: float, across: Array, factor: Array
) -> tuple[Array, float]:
    """Bounds on third derivatives along steps of length 1 where the scale is learned, and the radius where they hold.

    Steps are `factor` times a vector of length 1: they move eta by at most `across`, and aux by the norm of its row.
    """
    radius, along = math.sqrt(len(factor)) + 5.0, float(np.linalg.norm(factor[-1]))
    bounds = mixed_bends(glm, y, center, aux, across * radius, along * radius)
    powers = np.array([across**3, 3.0 * across**2 * along, 3.0 * across * along**2, np.full(len(across), along**3)])
    return np.asarray((bounds * powers).sum(axis=0)), radius


def expanded(glm: GLMSource, at: Array, first: int, last: int) -> Parts:
    """Sums of the terms of rows `first` to ``last - 1``, their gradients and Hessians; of a dense X without groups."""
    p, dim = glm.X.shape[1], glm.theta.shape[1]
    value, gradient, hessian = 0.0, np.zeros(dim), np.zeros((dim, dim))
    for part, x in chunks(glm.X[first:last]):
        level, slope, curvature = glm.derivatives(at, first + part.start, len(x))
        value += level.sum()
        gradient[:p] += slope @ x
        hessian[:p, :p] += x.T @ (curvature[:, None] * x)
        if glm.learns_scale:
            of_scale, mixed, twice = glm.mixed_derivatives(at, first + part.start, len(x))
            gradient[p] += of_scale.sum()
            hessian[p, :p] += mixed @ x
            hessian[p, p] += twice.sum()
    if glm.learns_scale:
        hessian[:p, p] = hessian[p, :p]
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
