"""What the first pass over many rows of a generalised linear model finds, and what a pass about a point finds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace._models._arrow import Arrow, ArrowFactor, added
from fastrace._models._priors import JointPrior
from fastrace._models._seen import expand_seen
from fastrace._models.glm_inputs import refuse_overflow, require_finite
from fastrace._models.grouping import Factor
from fastrace._models.rows import chunks, norms, products_of
from fastrace.mcmc._scales import Parts, Scales, empirical_bayes, parts_of, with_part
from fastrace.mcmc.models._joint import Layout, MomentsOfColumns, layout_of
from fastrace.mcmc.models._modes import QuadraticPart
from fastrace.mcmc.models._unseen import Multiples

__all__ = ["About", "Pilot", "first_pass", "is_long", "some_rows"]

Array = NDArray[np.float64]
PriorsOf = Callable[[Layout], tuple[JointPrior, Any, QuadraticPart | None]]
Moments = tuple[list[float], list[float]]

SAMPLE = 200_000  # rows that the first steps take where there are more than twice as many
RUN, SHORTEST = 256, 16  # of them that follow each other: of a file few pages are read for them; and where groups
ALIKE = 0.95  # of those that the shortest runs see are seen by these, the longest that do


def is_long(n_rows: int) -> bool:
    """Whether there are so many rows that some of them say first where to look at all."""
    return n_rows > 2 * SAMPLE


def some_rows(n_rows: int, factors: Sequence[Factor] = ()) -> NDArray[np.intp]:
    """About `SAMPLE` of the rows, in short runs at even distances.

    In a table sorted by group they are shorter, so that groups that stand between long ones are seen too.
    """
    run, rows = SHORTEST, _runs(n_rows, SHORTEST)
    most = [_n_seen(factor, rows) for factor in factors]
    while run < RUN:
        longer = _runs(n_rows, 2 * run)
        if any(_n_seen(factor, longer) < ALIKE * n for factor, n in zip(factors, most, strict=True)):
            break
        run, rows = 2 * run, longer
    return rows


def _runs(n_rows: int, run: int) -> NDArray[np.intp]:
    starts = np.arange(max(1, SAMPLE // run)) * n_rows // max(1, SAMPLE // run)
    return np.asarray((starts[:, None] + np.arange(min(run, SAMPLE))).ravel(), dtype=np.intp)


def _n_seen(factor: Factor, rows: NDArray[np.intp]) -> int:
    """Of how many groups there are rows."""
    return int(np.count_nonzero(np.bincount(factor.codes[rows], minlength=factor.n_groups)))


class Pilot(NamedTuple):
    """Where the expansion of a likelihood will be wanted, as far as the first pass tells.

    point, shape (n_seen,), is where Newton's method leads from the sums of all rows about another point, corrected by
    what some of the rows say of the way between them. variances and covariances are those of `Scales` there.
    curvature and precision are what a `Compressed` at this point should have, up to what those rows leave open.
    """

    point: Array
    variances: list[float]
    covariances: list[Array]
    curvature: Arrow
    precision: Array

    def scales(self, prior: JointPrior) -> Scales | None:
        """Scales to begin with under the prior of the model; None if this prior has others."""
        out = Scales(prior)
        alike = len(self.point) == prior.n_seen and len(self.variances) == len(out.variances)
        if not alike or [c.shape for c in self.covariances] != [c.shape for c in out.covariances]:
            return None
        out.variances, out.covariances = list(self.variances), [c.copy() for c in self.covariances]
        return out

    def factor(self, layout: Sequence[tuple[int, int]]) -> ArrowFactor:
        """Cholesky factor of curvature and precision."""
        out = ArrowFactor(self.curvature, layout)
        out.factor(self.precision)
        return out


def first_pass(
    model: Any, columns: Sequence[str], in_frame: Sequence[str] | None, priors_of: PriorsOf
) -> tuple[Moments, Pilot | None]:
    """Refuse numbers that are not finite or would overflow, take moments of columns, and look where to expand.

    All of that is one pass over a dense table, after some of its rows said about which point to sum up its terms. The
    pilot is None where there are no scales to learn, or Newton's method does not get there. `columns` are the names of
    columns, and `in_frame` those that a frame has for them, which errors name.

    Raises
    ------
    ValueError
        If a number is not finite, or so large that its square overflows.
    """
    glm, start = model._glm, None
    taken, moments = 0, MomentsOfColumns(glm.X.shape[1], glm.weights)
    with contextlib.suppress(ValueError, TypeError, ArithmeticError, np.linalg.LinAlgError), np.errstate(all="ignore"):
        start = _Start(model, columns, priors_of)

    def take(part: slice, x: Array, _: Any = None) -> None:
        nonlocal taken
        if not np.isfinite(x).all():
            require_finite(glm.X[part], in_frame, part.start)
        if glm.X.dtype == np.float64:
            refuse_overflow(x, glm.y[:0])
        moments.take(part, x)
        taken = part.stop

    pilot = None
    if start is not None and start.point is not None:
        try:
            pilot = start.led(parts_of(*expand_seen(glm, start.point, take)))
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            if taken < glm.n_rows:
                raise
    for part, x in chunks(glm.X) if taken < glm.n_rows else ():
        take(part, x)
    return moments.found(), pilot


class _Start:
    """Where Newton's method leads on some of the rows, with the priors that these would have."""

    point: Array | None = None

    def __init__(self, model: Any, columns: Sequence[str], priors_of: PriorsOf) -> None:
        rows = some_rows(model.n_rows, model.factors)
        self.rows, self.times = model._taken(rows), model.n_rows / len(rows)
        self.prior, _, self.part = priors_of(layout_of(self.rows, columns, model.learns_scale))
        if not (self.prior.n_hyper or self.prior.given[2]):
            return
        start = model._first_guess(self.rows)
        self.point, _, self.scales = empirical_bayes(self._expand, start, Scales(self.prior))

    def _expand(self, psi: Array) -> Parts:
        return with_part(self.part, parts_of(*expand_seen(self.rows, psi)), psi)

    def led(self, whole: Parts) -> Pilot:
        """Where it leads further, from the expansion of all rows at `point`.

        About that point a log-likelihood is its expansion, and `times` what some of the rows leave of theirs.
        """
        hat = self.point
        assert hat is not None
        some = parts_of(*expand_seen(self.rows, hat))
        value, slope = whole[0] - self.times * some[0], whole[1] - self.times * some[1]
        bend = added(whole[2], _times(-self.times, some[2]))

        def near(psi: Array) -> Parts:
            own, step = parts_of(*expand_seen(self.rows, psi)), psi - hat
            across = np.asarray(bend.times(step))
            return (self.times * own[0] + value + float(step @ (slope - 0.5 * across)),
                    self.times * own[1] + slope - across, added(_times(self.times, own[2]), bend))

        point, _, scales = empirical_bayes(lambda psi: with_part(self.part, near(psi), psi), hat, self.scales)
        return Pilot(point, scales.variances, scales.covariances, near(point)[2], scales.precision())


def _times(number: float, arrow: Arrow) -> Arrow:
    if not arrow.n_blocks:
        return Arrow(number * np.asarray(arrow.dense))
    return Arrow(*(number * np.asarray(part) for part in (arrow.dense, arrow.border, arrow.blocks)), arrow.start)


class About:
    """What a pass over the rows about a point finds, beside the expansion there.

    Parameters
    ----------
    model : GLM
    hat : ndarray of shape (n_seen,)
        The point.
    factor : ndarray of shape (n_seen, k)
        `across` are norms of rows times this.
    width : int
        How many columns of factor, the last ones, are of the group's own coordinates; 0 if that is not asked for.
    tilted : bool
        Whether to sum up the tilt too, which takes a fixed scale.

    Attributes
    ----------
    center, across : ndarray of shape (n_rows,)
        Predictors, and how far a step of length 1 in the metric moves them.
    shared : ndarray of float32, shape (n_rows,), or None
        As `across`, by the other columns alone.
    largest : float
        The largest absolute term.
    tilt : ndarray of shape (n_seen,), or None
        As of `GLMRows._tilt`.
    """

    def __init__(self, model: Any, hat: Array, factor: Array, width: int = 0, tilted: bool = False) -> None:
        self.model, self.hat, self.factor = model, hat.copy(), factor
        self.center, self.across, self.largest = np.empty(model.n_rows), np.empty(model.n_rows), 0.0
        self.shared = np.empty(model.n_rows, dtype=np.float32) if width else None
        self.tilt = np.zeros(model.n_seen) if tilted else None
        self._n_shared = factor.shape[1] - width
        self._ways = Multiples(model._glm.X, model.factors)

    def take(self, part: slice, x: Any, terms: Array) -> None:
        """The next rows, which they are, and their terms."""
        glm = self.model._glm
        moved, whitened = products_of(part, x, glm.X, self.model.factors, [self.hat, self.factor])
        self.center[part] = moved if glm.offset is None else moved + glm.offset[part]
        self.across[part] = norms(whitened)
        if self.shared is not None:
            self.shared[part] = norms(whitened[:, : self._n_shared])
        self.largest = max(self.largest, float(np.abs(terms).max()))
        self._ways.take(part, x)
        if self.tilt is not None:
            self.model._add_tilt(self.tilt, part, x, self.center[part], self.across[part])

    def unseen(self) -> Array:
        """Directions that no row sees, as `unseen_directions`."""
        return self._ways.directions(self.model.n_seen)
