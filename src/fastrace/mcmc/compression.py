"""A likelihood compressed into its second-order expansion in what the rows see."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from fastrace._base import _checks
from fastrace._base._blas import one_blas_thread
from fastrace._base._words import counted
from fastrace._models._arrow import Arrow, ArrowFactor, Quadratic
from fastrace._models._priors import JointPrior
from fastrace._models._seen import expand_seen
from fastrace.mcmc._moving import mean_seen
from fastrace.mcmc.kernels._nested_normal import layout_of
from fastrace.mcmc.models._modes import ImproperError, QuadraticPart, called, require_precision
from fastrace.mcmc.models.model import GLM, Model, NoModeError
from fastrace.results import Result

__all__ = ["Compressed", "compress"]

Array = NDArray[np.float64]
Parts = tuple[float, Array, Arrow]

_STEPS = 60  # Newton steps with the scales of the effects estimated on the way,
_HELD, _FIXED = 30, 45  # from the one on by their priors too, and from the other on as they are then
_CLOSE = 1e-4  # squared length of the last step, in posterior standard deviations, over the number of parameters
_SETTLED = 0.02  # relative change of those scales
_SAMPLE = 200_000  # rows that the first steps take where there are far more
_COLLINEAR = 1e12  # variance of a coefficient, beside that if all others were given, that is rounding
_DAMPING = (0.0, 1.0, 10.0, 100.0)  # times its own size that a curvature gets where it is not positive definite
_APART = 4.0  # standard deviations between two modes
_WEAK = 1e-8  # precision, as a share of the curvature, of what has no proper prior


@dataclass(frozen=True, eq=False)
class Compressed:
    r"""A log-likelihood as its second-order expansion in what the rows see, made by `compress`.

    .. math:: L(\psi) \approx L(\hat\psi) + g^\top (\psi - \hat\psi)
              - (\psi - \hat\psi)^\top H (\psi - \hat\psi) / 2

    Attributes
    ----------
    psi_hat : ndarray of shape (n_seen,)
        Where the log-likelihood was expanded, a learned scale as its logarithm.
    value : float
        The log-likelihood there.
    slope : ndarray of shape (n_seen,)
        Its gradient there.
    curvature : Arrow
        Minus its Hessian there, block-diagonal in the effects of the largest grouping factor. ``curvature.to_dense()``
        is the whole matrix.
    precision : ndarray
        Of a normal prior with the scales of effects as they were estimated: blocks in order of the parameters. With
        `curvature` it says how far the posterior reaches.
    n_rows : int
        Rows that were expanded.
    prior : JointPrior
        Of all that the model's chains move.
    names : tuple of str
        Of what the rows see; empty if the parameters have none.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = rng.random(1000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    >>> compressed = mcmc.compress(mcmc.GLM(X, y, prior_sd=10.0))
    >>> compressed
    Compressed(1000 rows, 2 parameters)
    >>> bool(compressed.log_likelihood(compressed.psi_hat) == compressed.value)
    True
    >>> compressed.gradient(compressed.psi_hat + 0.01).shape
    (2,)
    """

    psi_hat: Array
    value: float
    slope: Array = field(repr=False)
    curvature: Arrow = field(repr=False)
    precision: Array = field(repr=False)
    n_rows: int
    prior: JointPrior = field(repr=False)
    names: tuple[str, ...] = field(default=(), repr=False)
    _part: QuadraticPart | None = field(default=None, repr=False)  # of the prior, which `prior` does not hold

    def __repr__(self) -> str:
        blocks = self.curvature.n_blocks
        shape = f", {counted(blocks, 'block')} of width {self.curvature.width}" if blocks else ""
        return f"Compressed({counted(self.n_rows, 'row')}, {counted(self.n_seen, 'parameter')}{shape})"

    @property
    def n_seen(self) -> int:
        """Number of parameters that the rows see."""
        return len(self.psi_hat)

    @property
    def quadratic(self) -> Quadratic:
        """The compiled function, with working memory of its own, and `_part` of the prior if there is one."""
        value, slope, whole = _with_part(self._part, (self.value, self.slope, self.curvature), self.psi_hat)
        return Quadratic(self.psi_hat, value, slope, whole)

    def _step(self, psi: ArrayLike) -> Array:
        point = _checks.floats(psi, "psi")
        if point.shape != (self.n_seen,):
            raise ValueError(f"psi has shape {point.shape}; ({self.n_seen},), what the rows see, is needed")
        return point - self.psi_hat

    def log_likelihood(self, psi: ArrayLike) -> float:
        """The expansion at a point of shape (n_seen,)."""
        step = self._step(psi)
        return float(self.value + step @ (self.slope - 0.5 * self.curvature.shared().times(step)))

    def gradient(self, psi: ArrayLike) -> Array:
        """Its gradient at a point, shape (n_seen,)."""
        return np.asarray(self.slope - self.curvature.shared().times(self._step(psi)))

    def hessian_product(self, vector: ArrayLike) -> Array:
        """The Hessian, which is the same everywhere, times a vector of shape (n_seen,)."""
        return -np.asarray(self.curvature.shared().times(_checks.floats(vector, "vector")))

    def factor(self) -> ArrowFactor:
        """Cholesky factor of the curvature and `precision`."""
        made = ArrowFactor(self.curvature, layout_of(self.prior))
        made.factor(self.precision)
        return made

    def covariance_root(self) -> Array:
        """A matrix M of shape (n_seen, n_seen) with M M' the inverse of the curvature and `precision`."""
        made = self.factor()
        return np.stack([made.draw(unit) for unit in np.eye(self.n_seen)], axis=1)

    def metric(self) -> Arrow:
        """The curvature and `precision` as one arrow: squared lengths in posterior standard deviations."""
        return with_precision(self.curvature, layout_of(self.prior), self.precision)

    def distance(self, psi: ArrayLike) -> float:
        """How far a point is from `psi_hat`, in posterior standard deviations."""
        step = self._step(psi)
        return math.sqrt(max(0.0, float(step @ self.metric().times(step))))


@one_blas_thread()
def compress(model: Model, psi_hat: ArrayLike | Result | None = None) -> Compressed:
    """Expand a model's log-likelihood to second order in what its rows see.

    Parameters
    ----------
    model : GLM, Softmax, FunctionModel or other Model
        It must give derivatives.
    psi_hat : Trace or array_like of shape (n_seen,), optional
        Where to expand: a trace of the model, for the mean of what the rows see of its draws, or a point, a learned
        scale as its logarithm. By default near the posterior's bulk; see the notes.

    Returns
    -------
    Compressed
        Value, gradient and curvature at that point, and what the chains of the model need besides.

    Raises
    ------
    ValueError
        If the model has no derivatives, the posterior is improper, or no such point is found.

    Notes
    -----
    The joint mode of coefficients, effects and their scales is a bad place to expand at: it may lie where the scales
    are 0, or far out. Instead the scale of each factor's effects is estimated by empirical Bayes: Newton's steps for
    coefficients and effects alternate with the mean of squared effects and their posterior variances, 10 to 25 of
    them. Each takes a pass over the rows in chunks; where a `GLM` has more than 4e5 rows, every k-th row does for all
    but the last two or three. Memory maps are read in place, and memory is that of the expansion, O(s^2 + G s) numbers
    for G groups and s other parameters. A model without learned scales is expanded at the mode of its posterior.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = rng.random(1000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    >>> mcmc.compress(mcmc.GLM(X, y, prior_sd=10.0)).psi_hat.round(1)
    array([ 1. , -0.4])
    """
    if not isinstance(model, Model):
        raise TypeError(f"model is {_checks.shown(model)}; a GLM or other mcmc.Model is needed"
                        f"{_checks.of_pymc(model)}")
    if not model.has_derivatives:
        raise ValueError(f"{type(model).__name__} has no derivatives to expand: give them, or use RacingMetropolis")
    model = model._surrogate_form()
    if model.own_surrogate is not None:
        raise ValueError("the rows see a map of the model's parameters, which an expansion alone does not hold: "
                         "SurrogateMetropolis(model) makes its own")
    prior = prior_of(model)
    if psi_hat is not None:
        point = mean_seen(model, psi_hat) if isinstance(psi_hat, Result) else _checks.floats(psi_hat, "psi_hat")
        if point.shape != (prior.n_seen,) or not np.isfinite(point).all():
            raise ValueError(f"psi_hat has shape {point.shape}; {prior.n_seen} finite parameters are needed")
        parts = expansion_of(model, point)
        _require_precision(model, prior, parts, _Scales(prior))
        bent = _bent(parts[2], model.prior_part)
        return _compressed(model, prior, point, parts, _Scales(prior).about(point, bent))
    if prior.n_hyper == 0 and not prior.given[2]:
        point = np.array(model.reference().theta_hat)
        parts = expansion_of(model, point)
        scales = _Scales(prior)
        scales.bend(point)
        return _compressed(model, prior, point, parts, scales.precision())
    start, scales, both = _start(model, prior), _Scales(prior), partial(_with_part, model.prior_part)
    if model.n_rows > 2 * _SAMPLE and isinstance(model, GLM):  # most steps on some of the rows
        rows = np.arange(0, model.n_rows, -(-model.n_rows // _SAMPLE))
        with contextlib.suppress(NoModeError):
            start, scales = _on_some(model, rows, start, scales)
    try:
        point, parts, scales = _empirical_bayes(lambda psi: both(expansion_of(model, psi), psi), start, scales)
    except NoModeError:
        _require_precision(model, prior, expansion_of(model, start), scales, exactly=False)
        model._explain_no_mode()
        raise
    if model.prior_part is not None:
        parts = expansion_of(model, point)
    _require_proper(model, prior, point, parts, scales)
    _require_precision(model, prior, parts, scales)
    return _compressed(model, prior, point, parts, scales.precision())


def _on_some(model: GLM, rows: NDArray[np.intp], start: Array, scales: _Scales) -> tuple[Array, _Scales]:
    """Where Newton's steps lead on some of the rows, and the scales there."""
    some, both = model._taken(rows), partial(_with_part, model.prior_part)
    point, _, scales = _empirical_bayes(lambda psi: both(_parts(*expand_seen(some, psi)), psi), start, scales)
    return point, scales


def expansions_apart(model: GLM, compressed: Compressed, starts: Iterable[Array],
                     rows: NDArray[np.intp]) -> Iterator[Compressed]:
    """Expansions where Newton's steps lead from far points, on some of the rows, then on all; only of other modes."""
    hat, metric = np.array(compressed.psi_hat), compressed.metric()
    both = partial(_with_part, model.prior_part)

    def apart(a: Array, b: Array) -> bool:
        return bool((a - b) @ metric.times(a - b) > _APART**2)

    near, _ = _on_some(model, rows, hat, _Scales(compressed.prior))
    for start in starts:
        with contextlib.suppress(ValueError, np.linalg.LinAlgError):  # so far out there need not be a way back
            point, scales = _on_some(model, rows, start, _Scales(compressed.prior))
            if apart(point, near):
                point, _, scales = _empirical_bayes(lambda psi: both(expansion_of(model, psi), psi), point, scales)
                if apart(point, hat):
                    yield _compressed(model, compressed.prior, point, expansion_of(model, point), scales.precision())


def _bent(curvature: Arrow, part: QuadraticPart | None) -> Arrow:
    """With that of a part of the prior."""
    if part is None:
        return curvature
    dense, p = np.array(curvature.dense), len(part.shift)
    dense[:p, :p] += part.precision
    blocks = (curvature.border, curvature.blocks, curvature.start) if curvature.n_blocks else ()
    return Arrow(dense, *blocks)


def _with_part(part: QuadraticPart | None, parts: Parts, psi: Array) -> Parts:
    """An expansion with a part of the prior, which scales of factors are estimated with."""
    if part is None:
        return parts
    value, slope, _ = part.expansion(psi)
    return parts[0] + value, parts[1] + slope, _bent(parts[2], part)


def _require_precision(
    model: Model, prior: JointPrior, parts: Parts, scales: _Scales, exactly: bool = True
) -> None:
    """Refuse columns so nearly collinear that the sums over rows, in double precision, cannot tell them apart.

    What is computed of their coefficients would be rounding, without a sign of it where priors are proper. `exactly`
    says whether columns that are collinear are refused too, where priors are so wide that they do not help.
    """
    p = len(prior.given[0])
    if prior.given[4]:
        return

    def moved(step: Array) -> float:
        return math.inf if exactly else model._moved(np.append(step, np.zeros(prior.n_seen - p)))

    curvature = _bent(parts[2], model.prior_part).dense[:p, :p] + np.diag(scales.precision()[:p])
    require_precision(curvature, moved, model.names, "or give them narrower priors")


def _require_proper(model: Model, prior: JointPrior, point: Array, parts: Parts, scales: _Scales) -> None:
    """Refuse coefficients with a flat prior that the rows do not bound: collinear ones, or separated outcomes."""
    flat = np.array([j for j, c in enumerate(prior.given[0]) if c[0] == "flat"], dtype=int)
    if not len(flat) or prior.given[4]:
        return
    names, curvature = tuple(model.names or ()), _bent(parts[2], model.prior_part)
    factor = ArrowFactor(curvature, scales.layout)
    share = np.zeros(len(point))
    share[flat] = 1.0
    try:
        factor.factor(scales.precision())
        spread = (np.diagonal(factor.block_covariances()[0]) * np.diagonal(curvature.dense))[: len(prior.given[0])]
        share[flat] = np.sqrt(spread[flat])
        bounded = bool(np.isfinite(spread).all() and (spread[flat] < _COLLINEAR).all())
    except np.linalg.LinAlgError:
        bounded = False
        scale = np.sqrt(np.diagonal(parts[2].dense)[flat]) + _WEAK
        share[flat] = np.abs(np.linalg.eigh(parts[2].dense[np.ix_(flat, flat)] / np.outer(scale, scale))[1][:, 0])
    if not bounded:
        raise ValueError(f"the posterior is improper: the rows say nothing about one direction of parameters "
                         f"{called(share, names)}, on which the prior is flat, as with collinear columns or two "
                         f"intercepts. Leave a column out, or give a prior such as Normal(0.0, 2.5)")
    if model.prior_part is not None:  # it may bound a direction in which outcomes are separated
        return
    step = factor.solve(parts[1] + scales.pulled(factor, point)[1])
    step[np.setdiff1d(np.arange(len(step)), flat)] = 0.0
    for direction in (step, point * (share > 0.0)):
        least, most = model._margins(direction) or (-1.0, 0.0)
        if most > 0.1 and least >= -1e-3 * most:
            raise ValueError(f"the posterior is improper: the outcomes are separated: the likelihood rises for ever as "
                             f"theta moves along parameters {called(np.abs(direction), names)}, on which the prior is "
                             f"flat. Give a prior such as Normal(0.0, 2.5), or leave out what separates the outcomes")


def _compressed(model: Model, prior: JointPrior, point: Array, parts: Parts, precision: Array) -> Compressed:
    value, slope, curvature = parts
    prior = prior.copy()
    prior.expand_at(point)
    for array in (point, slope, precision):
        array.flags.writeable = False
    names = tuple(model.names or ())[: prior.n_seen]
    return Compressed(point, value, slope, curvature, precision, model.n_rows, prior, names, model.prior_part)


def require_of(compressed: Compressed, model: Model, with_prior: bool = True) -> None:
    """Refuse the expansion of other rows, or of a model with another prior: a chain on it would be of neither."""
    sizes = [(part.n_rows, part.n_seen) for part in (compressed, model)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"{compressed!r} came for a model of {counted(sizes[1][0], 'row')} and "
                         f"{counted(sizes[1][1], 'parameter')} that these see; compress(model) of this very model is "
                         f"needed")
    if with_prior:
        own, other = compressed.prior.given, prior_of(model).given
        parts = [part and (part.precision.tolist(), part.shift.tolist())
                 for part in (compressed._part, model.prior_part)]
        if own[:4] != other[:4] or [p for _, p in own[4]] != [p for _, p in other[4]] or parts[0] != parts[1]:
            raise ValueError("the Compressed has another prior than the model; compress(model) of this very model is "
                             "needed")
    value, slope, curvature = expansion_of(model, np.array(compressed.psi_hat))
    apart = np.abs(slope - compressed.slope) > 1e-3 * np.sqrt(np.abs(curvature.diagonal())) + 1e-9
    if abs(value - compressed.value) > 1e-6 * (1.0 + abs(value)) or apart.any():
        raise ValueError(f"at psi_hat the log-likelihood is {value:.10g}, and the Compressed has "
                         f"{compressed.value:.10g}: it is of other rows or another family; compress(model) of this "
                         f"very model is needed")


def prior_of(model: Model) -> JointPrior:
    """The compiled prior of a model; of one that has none, its independent normal or flat priors."""
    joint = getattr(model, "joint_prior", None)
    if joint is not None:
        return joint
    if model.log_prior is not None:
        raise ValueError("the model has a log_prior without a gradient, which no surrogate can follow: give a prior "
                         "object such as mcmc.LogDensity, or use RacingMetropolis")
    sd = np.array([1.0 / math.sqrt(p) if p > 0.0 else math.inf for p in model.prior_precision])
    return JointPrior([("flat", 0.0, 1.0, 0.0, -1) if s == math.inf else ("normal", float(m), float(s), 0.0, -1)
                       for m, s in zip(model.prior_mean, sd, strict=True)])


def expansion_of(model: Any, psi: Array) -> Parts:
    """Value, gradient and minus the Hessian of the summed terms at a point, in one pass."""
    if hasattr(model, "expand_seen"):
        return _parts(*model.expand_seen(psi))
    value, slope, whole = model._expand(psi)
    return float(value), np.array(slope, dtype=np.float64), Arrow(-whole)


def _parts(value: float, slope: Array, hessian: Arrow) -> Parts:
    """With minus the Hessian."""
    grouped = len(hessian.blocks) > 0
    curvature = Arrow(-hessian.dense, -hessian.border if grouped else None, -hessian.blocks if grouped else None,
                      hessian.start if grouped else None)
    return float(value), np.array(slope, dtype=np.float64), curvature


def with_precision(arrow: Arrow, layout: Sequence[tuple[int, int]], precision: Array) -> Arrow:
    """An arrow with the blocks of a prior's precision added."""
    dense, blocks = np.array(arrow.dense), np.array(arrow.blocks)
    first, last, q = arrow.start, arrow.start + arrow.n_blocks * arrow.width, arrow.width
    place = taken = 0
    for count, width in layout:
        for _ in range(count):
            part = precision[taken : taken + width * width].reshape(width, width)
            if first <= place < last:
                g, k = divmod(place - first, q)
                blocks[g, k : k + width, k : k + width] += part
            else:
                k = place if place < first else place - (last - first)
                dense[k : k + width, k : k + width] += part
            place, taken = place + width, taken + width * width
    if not arrow.n_blocks:
        return Arrow(dense)
    return Arrow(dense, arrow.border, blocks, arrow.start)


def _first_variance(sd: tuple[str, float, float]) -> float:
    """Of effects, before anything is known but the prior of their standard deviation, which knows their units.

    The estimate rises slowly from far below what the data say.
    """
    return (0.4 * sd[1]) ** 2 if sd[0] in ("half-normal", "half-student") else 1.0


def _held(sd: tuple[str, float, float], n: int, variance: float) -> float:
    """The likeliest variance of n effects whose mean square is `variance`, under the prior of its root's logarithm."""
    density = JointPrior((), aux=sd)

    def slope(s: float) -> float:
        by_prior = density.value_and_gradient(np.array([s]))[1]
        return n * variance * math.exp(-2.0 * s) - n + float(by_prior[0])

    low = high = 0.5 * math.log(variance)
    while slope(low) < 0.0:
        low -= 1.0
    while slope(high) > 0.0:
        high += 1.0
    return math.exp(2.0 * float(brentq(slope, low, high)))


class _Scales:
    """Normal priors whose scales are estimated: one covariance per factor, one variance per pool of coefficients."""

    hold = False  # by their own priors: with groups of one outcome the likelihood alone may lead them nowhere

    def __init__(self, prior: JointPrior) -> None:
        coefficients, pools, factors, aux, _ = prior.given
        self.aux = None if aux is None else JointPrior((), aux=aux)
        self.of_aux = np.zeros(int(aux is not None))
        self.mean = np.array([c[1] for c in coefficients], dtype=np.float64)
        fixed = [0.0 if c[0] == "flat" or c[4] >= 0 else 1.0 / c[2] ** 2 for c in coefficients]
        self.fixed = np.array(fixed, dtype=np.float64)
        self.pools = [np.array([j for j, c in enumerate(coefficients) if c[4] == k]) for k in range(len(pools))]
        self.variances = [1.0] * len(pools)
        self.factors = [(count, len(sds)) for count, sds, _ in factors]
        self.of_scales = [sds for _, sds, _ in factors]
        self.covariances = [np.diag([_first_variance(sd) for sd in sds]) for _, sds, _ in factors]
        self.n_seen = prior.n_seen

    def precision(self) -> Array:
        coefficients = self.fixed.copy()
        for members, variance in zip(self.pools, self.variances, strict=True):
            coefficients[members] = 1.0 / variance
        parts = [coefficients]
        for (count, _), covariance in zip(self.factors, self.covariances, strict=True):
            parts.append(np.tile(np.linalg.inv(covariance).ravel(), count))
        return np.concatenate([*parts, self.of_aux])

    def bend(self, psi: Array) -> None:
        """Take up the curvature at psi of the log prior of an auxiliary parameter."""
        if self.aux is not None:
            self.aux.expand_at(psi[-1:])
            _, self.of_aux = self.aux.conditional_of(())

    def pulled(self, factor: ArrowFactor, psi: Array) -> tuple[float, Array]:
        """Log density, without its constant, and gradient at psi."""
        step, level = psi.copy(), 0.0
        step[: len(self.mean)] -= self.mean
        if self.aux is not None:
            step[-1] = 0.0
            level, slope = self.aux.value_and_gradient(psi[-1:])
        pull = factor.prior_times(self.precision(), step)
        if self.aux is not None:
            pull[-1] = -slope[0]
        return level - 0.5 * float(step @ pull), -pull

    def estimate(self, psi: Array, factor: ArrowFactor) -> float:
        """Take up the second moments of the posterior about psi; the largest relative change of a scale."""
        dense, blocks = factor.block_covariances()
        arrow, change = factor.base, 0.0
        _, outside = arrow.block_coordinates()
        place = {int(c): k for k, c in enumerate(outside)}
        for k, members in enumerate(self.pools):
            own = [place[int(j)] for j in members]
            new = float(np.mean((psi[members] - self.mean[members]) ** 2 + np.diagonal(dense)[own]))
            change, self.variances[k] = max(change, abs(new / self.variances[k] - 1.0)), new
        first = len(self.mean)
        for k, (count, q) in enumerate(self.factors):
            effects = psi[first : first + count * q].reshape(count, q)
            if arrow.n_blocks and first == arrow.start:
                spread = blocks.sum(axis=0)
            else:
                here = place[first]
                table = dense[here : here + count * q, here : here + count * q].reshape(count, q, count, q)
                spread = np.einsum("gigj->ij", table)
            new = (effects.T @ effects + spread) / max(count, 1)
            if self.hold:
                held = [_held(sd, count, v) / v for sd, v in zip(self.of_scales[k], np.diagonal(new), strict=True)]
                new = new * np.sqrt(np.outer(held, held))
            old = np.diagonal(self.covariances[k])
            change = max(change, float(np.abs(np.diagonal(new) / old - 1.0).max()))
            self.covariances[k] = new
            first += count * q
        return change

    def about(self, psi: Array, curvature: Arrow) -> Array:
        """The precision with scales estimated about a given point."""
        self.bend(psi)
        for _ in range(10):
            factor = _factored(curvature, self)
            if self.estimate(psi, factor) < _SETTLED:
                break
        return self.precision()

    @property
    def layout(self) -> list[tuple[int, int]]:
        return [(len(self.mean), 1), *self.factors, *([(1, 1)] if self.aux is not None else [])]


def _factored(curvature: Arrow, scales: _Scales) -> ArrowFactor:
    """Factor of curvature and prior. Where a term is convex it has no curvature, and a weak prior stands in."""
    factor = ArrowFactor(curvature, scales.layout)
    precision = scales.precision()
    diagonal = np.abs(curvature.diagonal())
    ends = np.cumsum([0] + [count * width for count, width in scales.layout])
    for times in _DAMPING:
        parts, taken = [], 0
        for (count, width), first in zip(scales.layout, ends[:-1], strict=True):
            size = count * width * width
            block = precision[taken : taken + size].reshape(count, width, width).copy()
            more = diagonal[first : first + count * width].reshape(count, width) + _WEAK
            block[:, np.arange(width), np.arange(width)] += times * more
            parts.append(block.ravel())
            taken += size
        with contextlib.suppress(np.linalg.LinAlgError):
            factor.factor(np.concatenate(parts))
            return factor
    raise NoModeError("the log-likelihood is not curved downwards where Newton's method went: centre and scale "
                      "columns, give proper priors, or give psi_hat")


def _start(model: Model, prior: JointPrior) -> Array:
    start = np.asarray(model._start(), dtype=np.float64)
    return start[: prior.n_seen] if len(start) >= prior.n_seen else np.zeros(prior.n_seen)


def _empirical_bayes(
    expand: Callable[[Array], Parts], psi: Array, scales: _Scales
) -> tuple[Array, Parts, _Scales]:
    """Mode of the likelihood under normal priors whose scales are estimated on the way, and the expansion there."""
    parts, learned = expand(psi), bool(psi.any())
    for t in range(_STEPS):
        scales.hold = t >= _HELD
        scales.bend(psi)
        change = math.inf if t == 0 else 0.0
        if t < _FIXED and (t > 0 or learned):
            change = scales.estimate(psi, _factored(parts[2], scales))
        factor = _factored(parts[2], scales)
        level, pull = scales.pulled(factor, psi)
        step = factor.solve(parts[1] + pull)
        promised = float(step @ (parts[1] + pull))
        if promised < _CLOSE * len(psi) and change < _SETTLED:
            return psi, parts, scales
        size = 1.0
        while True:
            with np.errstate(all="ignore"):
                new = _tried(expand, psi + size * step)
            if new is not None:
                gain = new[0] + scales.pulled(factor, psi + size * step)[0] - parts[0] - level
                if gain >= 1e-4 * size * promised - 1e-9 * abs(parts[0]):
                    break
            size /= 2.0
            if size < 1e-6:
                raise NoModeError("Newton's method found no point to expand at: centre and scale columns, give proper "
                                  "priors, or give psi_hat")
        psi, parts = psi + size * step, new
    raise NoModeError(f"no point to expand at was found in {_STEPS} Newton steps: the outcomes may be separated, or "
                      f"columns collinear or all 0, under a flat prior; give proper priors, or psi_hat")


def _tried(expand: Callable[[Array], Parts], psi: Array) -> Parts | None:
    """The expansion, or None where the likelihood overflows."""
    try:
        parts = expand(psi)
    except ImproperError:
        raise
    except ValueError:
        return None
    return parts if math.isfinite(parts[0]) and np.isfinite(parts[1]).all() else None
