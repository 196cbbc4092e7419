"""A likelihood compressed into its second-order expansion in what the rows see."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace._base._blas import one_blas_thread
from fastrace._base._words import counted
from fastrace._models._arrow import Arrow, ArrowFactor, Quadratic
from fastrace._models._priors import JointPrior
from fastrace._models._seen import expand_seen
from fastrace.mcmc._chunked import Chunks
from fastrace.mcmc._moving import mean_seen
from fastrace.mcmc._peaks import has_more, log_prior_about, peak_of
from fastrace.mcmc._scales import (
    CLOSE,
    NEAR,
    WEAK,
    Parts,
    Scales,
    bent,
    empirical_bayes,
    expansion_or_none,
    factored,
    parts_of,
    with_part,
)
from fastrace.mcmc.kernels._nested_normal import layout_of
from fastrace.mcmc.models._first_pass import is_long, some_rows
from fastrace.mcmc.models._modes import QuadraticPart, called, require_precision
from fastrace.mcmc.models.model import GLM, Model, NoModeError
from fastrace.results import Result

__all__ = ["Compressed", "compress"]

Array = NDArray[np.float64]

_COLLINEAR = 1e12  # variance of a coefficient, beside that if all others were given, that is rounding
_PASSES = 6  # over chunks, at most
_FAR = 6.0  # standard deviations beyond the bulk, as of chains: draws of long tails say points that are far
_ROUNDED = 1e-5  # relative, within which priors are alike; those of columns in single precision are
_MOST_LED = 12  # times that parts of the prior which Newton's steps leave out lead to a point farther on
_NEAR = 0.1  # share of the posterior's reach within which the last of these points is
_SIZES = 1.0, 0.5, 0.25, 0.125, 0.0625  # of the step there, until the posterior is higher
_APART = 4.0  # standard deviations between two modes
FLAT = ("the expansion of the log-posterior at psi_hat is flat in some direction, so that it gives no units to move "
        "in: leave out columns that are 0 or that others make up, give each parameter a normal prior (of a LogDensity "
        "no curvature is known), or give psi_hat where the rows are not far out in their tails")


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
        `curvature` it says how far the posterior reaches. Where the rows see a map of the parameters it is one block,
        with which `curvature` is the inverse covariance of what rows see in short chains on prior times expansion.
    n_rows : int
        Rows that were expanded.
    prior : JointPrior
        Of all that the model's chains move. Flat where the rows see a map of the parameters: the model has the prior.
    names : tuple of str
        Of what the rows see; empty if the parameters have none. What a PyMC model makes of several variables is called
        after them, such as "f(tau, z)[0]".
    from_mode : float
        How far `psi_hat` is from `mode`, in posterior standard deviations: up to sqrt(n_seen) it is in the bulk of the
        posterior. nan where `compress` searched the rows that it expanded until next to nothing was left.
    mode : ndarray of shape (n_seen,)
        Where the expansion times the prior, as normal with estimated scales, is highest: one step of Newton's method
        from `psi_hat`, which is where to expand next if that is far. Where `from_mode` is nan it is `psi_hat`. Where
        the rows see a map of the parameters it is the mean over short chains on prior times expansion.
    n_chunks, n_passes : int
        Chunks that held the rows, and passes over them; 0 where rows were those of the model.
    moved_by_density : float
        How far a `LogDensity`, or a Laplace prior, moved `psi_hat` from where all else would have it, in posterior
        standard deviations without that density; 0 where `psi_hat` was near enough, or given.

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
    from_mode: float = field(default=math.nan, repr=False)
    n_chunks: int = field(default=0, repr=False)
    n_passes: int = field(default=0, repr=False)
    _mode: Array | None = field(default=None, repr=False)
    moved_by_density: float = field(default=0.0, repr=False)
    _mapped: bool = field(default=False, repr=False)  # whether the rows see a map of the parameters

    def __repr__(self) -> str:
        blocks = self.curvature.n_blocks
        shape = f", {counted(blocks, 'block')} of width {self.curvature.width}" if blocks else ""
        return f"Compressed({counted(self.n_rows, 'row')}, {counted(self.n_seen, 'parameter')}{shape})"

    @property
    def n_seen(self) -> int:
        """Number of parameters that the rows see."""
        return len(self.psi_hat)

    @property
    def _layout(self) -> list[tuple[int, int]]:
        """Runs of equal blocks in `precision`."""
        return [(1, self.n_seen)] if self._mapped else layout_of(self.prior)

    @property
    def mode(self) -> Array:
        """Where Newton's method goes from `psi_hat`."""
        return self.psi_hat if self._mode is None else self._mode

    @property
    def quadratic(self) -> Quadratic:
        """The compiled function, with working memory of its own, and `_part` of the prior if there is one."""
        value, slope, whole = with_part(self._part, (self.value, self.slope, self.curvature), self.psi_hat)
        return Quadratic(self.psi_hat, value, slope, whole)

    def _step(self, psi: ArrayLike) -> Array:
        point = _frames.floats_in_order(psi, self.names, "psi")
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
        return -np.asarray(self.curvature.shared().times(_frames.floats_in_order(vector, self.names, "vector")))

    def factor(self) -> ArrowFactor:
        """Cholesky factor of the curvature and `precision`."""
        made = ArrowFactor(self.curvature, self._layout)
        try:
            made.factor(self.precision)
        except np.linalg.LinAlgError:
            raise NoModeError(FLAT) from None
        return made

    def covariance_root(self) -> Array:
        """A matrix M of shape (n_seen, n_seen) with M M' the inverse of the curvature and `precision`."""
        made = self.factor()
        return np.stack([made.draw(unit) for unit in np.eye(self.n_seen)], axis=1)

    def metric(self) -> Arrow:
        """The curvature and `precision` as one arrow: squared lengths in posterior standard deviations."""
        return with_precision(self.curvature, self._layout, self.precision)

    def distance(self, psi: ArrayLike) -> float:
        """How far a point is from `psi_hat`, in posterior standard deviations."""
        step = self._step(psi)
        return math.sqrt(max(0.0, float(step @ self.metric().times(step))))


@one_blas_thread()
def compress(
    model: Model, psi_hat: ArrayLike | Result | Compressed | None = None, *, chunks: Any = None
) -> Compressed:
    """Expand a model's log-likelihood to second order in what its rows see.

    Parameters
    ----------
    model : GLM, Softmax, FunctionModel, PyMCModel or other Model
        It must give derivatives.
    psi_hat : Trace, Compressed or array_like of shape (n_seen,), optional
        Where to expand: a trace of the model, for the mean of what the rows see of its draws; another expansion of it,
        for the `mode` of that; or a point, a learned scale as its logarithm. By default near the posterior's bulk; see
        the notes.
    chunks : iterable of chunks, or callable that returns one, optional
        All rows, where they do not fit into a table, such as the row groups of a Parquet file or several memory maps.
        A chunk is a pair (X, y), or a dict of "X", "y" and those of "offset", "weights", "trials" and "groups" that
        the model has. `model` is then a `GLM` or a `Softmax` of some of the rows, the more random the better: it says
        what family, classes, columns, groups and priors are. Every group must be among those of the model.
        Categories of `y`, and columns of an offset, go by the names of the classes. A list, or a function that
        opens the rows anew, can be read several times, and an iterator once.

    Returns
    -------
    Compressed
        Value, gradient and curvature at that point, and what the chains of the model need besides.

    Raises
    ------
    ValueError
        If the model has no derivatives, the posterior is improper, or no such point is found; if a chunk is not what
        the model needs, or chunks that give their rows once are needed twice.

    Warns
    -----
    UserWarning
        If `chunks` came, and are an iterator or have `psi_hat` beside them, and the expansion is farther from its mode
        than the posterior reaches, sqrt(n_seen) standard deviations; of the rows of a model, if `psi_hat` came and is
        farther by 6 more and the prior is normal.

    Notes
    -----
    The joint mode of coefficients, effects and their scales is a bad place to expand at: it may lie where the scales
    are 0, or far out. Instead the scale of each factor's effects is estimated by empirical Bayes: Newton's steps for
    coefficients and effects alternate with the mean of squared effects and their posterior variances, 10 to 25 of
    them. Each takes a pass over the rows in chunks, and `GLM` has made two or three by then: for numbers that are not
    finite, for the scales of its priors and, in float64, for numbers whose squares overflow.

    A `GLM` with learned scales and more than 4e5 rows in a dense table is expanded in one pass as a rule, after one
    that the model has made. Before that pass 2e5 rows, in runs of 256, or shorter ones where these are of more groups,
    say about which point to sum up all terms and their derivatives. About that point the log-likelihood is then its
    expansion, plus what the 2e5 rows leave of theirs, times n_rows / 2e5; Newton's steps on this sum read no row of the
    table. Where they lead, the rows are expanded. If the mode is more than a tenth of a posterior standard deviation
    away, as the root mean square over parameters, Newton's method goes on from there, a pass a step: so it may be with
    thousands of groups, of which the 2e5 rows say little each. Sparse tables of so many rows take about three passes.

    Memory maps are read in place, and memory is that of the expansion, O(s^2 + G s) numbers
    for G groups and s other parameters. A model without learned scales is expanded at the mode of its posterior.

    Newton's steps leave out a `LogDensity` and Laplace priors, which need not be smooth. Where there are such, prior
    times expansion is then climbed from the point that was found, with learned scales held: by a quasi-Newton method,
    which reads no row and goes by values where a density has no gradient. If the top is more than sqrt(n_seen)
    posterior standard deviations away, the rows are expanded there, in one more pass over all of them. That goes on
    until the next top is within a tenth of that distance; steps that lower the posterior are halved.
    `Compressed.moved_by_density` says how far it led. From a point at which the density is 0 it leads nowhere.

    With `psi_hat` there is one pass over the rows of the model, or over the chunks. With `chunks` alone the model's
    rows, which are a pilot, say where to expand. Then comes a pass over the chunks, and another one from the mode of
    the expansion as long as that is more than sqrt(n_seen) posterior standard deviations away, up to 6 in all: one or
    two passes as a rule. `Compressed.from_mode` says how far it is in the end. Each row is read once in a pass, and
    memory is that of 65,536 rows besides that of the expansion; a chunk that is not an array, a memory map or a sparse
    table, such as a frame, is converted whole. Priors are those of the model, so that what is in units of the data,
    such as "weak" ones, is in units of the pilot's.

    A PyMC model that is no `GLM` is expanded in what its rows see, a map of its parameters, as `SurrogateMetropolis`
    expands it: `Compressed.names` says in what, and ``from_pymc(model, through=...)`` chooses. The expansion is made at
    the mean of what the rows see under prior times expansion, by short chains; directions in which the log-likelihood
    bends upwards count as straight; `value` may lack constants of a family. The map and the prior stay with the model.
    `fastrace.mcmc.doors.compressed.pymc_model` puts both together, as a PyMC model without rows, and `correct` takes
    the draws that PyMC makes of it. In a program of another language write the map and the prior by hand. The
    `Compressed` holds numbers alone: it pickles by plain pickle, and no graph is compiled when it is read again. A
    `PyMCModel` needs cloudpickle, and compiles its own functions anew.

    Kernels and `correct` decide by rows read at random, which chunks do not give: they need a model of all rows, such
    as a `GLM` of one memory map, beside the expansion. Without one, NUTS or any other sampler on the expansion is what
    is left, whose draws nothing corrects.

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
        return _of_map(model, psi_hat, chunks)
    prior = prior_of(model)
    if chunks is not None:
        return _of_chunks(model, prior, psi_hat, chunks)
    if psi_hat is not None:
        point = _given_point(model, prior.n_seen, (model.names or ())[: prior.n_seen], psi_hat)
        out = _expanded_at(model, prior, point, expansion_of(model, point))
        if prior.normal:        # the mode of another may be far from where its draws are
            _tell_how_far(out, math.sqrt(prior.n_seen) + _FAR, "psi_hat is", "compress(model, "
                          "psi_hat=compressed.mode) goes on from there, and compress(model) finds a point itself")
        return out
    if prior.n_hyper == 0 and not prior.given[2]:
        try:
            point = np.array(model.reference().theta_hat)
        except NoModeError:
            if _has_scale_by_priors(model):
                return _by_columns(model, prior)
            raise
        parts = expansion_of(model, point)
        scales = Scales(prior)
        scales.bend(point)
        return _led(model, prior, point, parts, scales)
    start, scales, close = _near_mode(model, prior)
    last: list[Any] = []  # point and expansion

    def expand(psi: Array) -> Parts:
        last[:] = psi, expansion_of(model, psi)
        return with_part(model.prior_part, last[1], psi)

    try:
        point, parts, scales = empirical_bayes(expand, start, scales, close)
    except NoModeError:
        if _has_scale_by_priors(model):
            return _by_columns(model, prior)
        _require_precision(model, prior, expansion_of(model, start), scales, exactly=False)
        model._explain_no_mode()
        raise
    if model.prior_part is not None:  # that of the rows alone, made last
        parts = last[1] if np.array_equal(last[0], point) else expansion_of(model, point)
    _require_proper(model, prior, point, parts, scales)
    _require_precision(model, prior, parts, scales)
    return _led(model, prior, point, parts, scales)


def _has_scale_by_priors(model: Model) -> bool:
    return isinstance(model, GLM) and model._scale_by_priors


def _by_columns(model: Any, prior: JointPrior) -> Compressed:
    """The expansion where effects are 0, of Gaussian outcomes whose joint density has no mode.

    Given the scale such a likelihood is its expansion, whatever the point. The joint density is curved downwards there
    if the scale is larger than the deviation of effects.
    """
    point, precision = np.asarray(model._start(), dtype=np.float64), Scales(prior).precision()
    if prior.n_hyper == 0:
        point[-1] = max(point[-1], 0.5 * math.log(2.0 / precision[model.n_columns : -1].min()))
    return replace(_expanded_at(model, prior, point, expansion_of(model, point)), from_mode=math.nan, _mode=None)


def _of_map(model: Any, psi_hat: Any, chunks: Any) -> Compressed:
    """The expansion of a model whose rows see a map of its parameters, in what they see."""
    if chunks is not None:
        raise ValueError("the rows of the model see a map of its parameters, and chunks are read by a GLM or a "
                         "Softmax: leave chunks out")
    names = model.seen_names
    made: Compressed = model.compressed(None if psi_hat is None else _given_point(model, len(names), names, psi_hat))
    return made


def _led(model: Model, prior: JointPrior, point: Array, parts: Parts, scales: Scales) -> Compressed:
    """The expansion where the parts of the prior that Newton's steps left out lead to, if that is far."""
    start, root = point, None
    expand, whole = partial(expansion_of, model), partial(with_part, model.prior_part)
    for _ in range(_MOST_LED if has_more(prior) else 0):
        value, slope, curvature = whole(parts, point)
        factor = factored(curvature, scales)
        log_prior = log_prior_about(prior, scales, factor, point)
        step = peak_of(Quadratic(point, value, slope, curvature), log_prior, factor, point) - point
        if float(np.linalg.norm(factor.whiten(step))) <= (1.0 if root is None else _NEAR) * math.sqrt(len(point)):
            break
        root, level = factor if root is None else root, value + log_prior(point)[0]
        for size in _SIZES:
            new = point + size * step
            there = expansion_or_none(expand, new)
            if there is not None and whole(there, new)[0] + log_prior(new)[0] > level:
                break
        else:
            break
        point, parts = new, there
        scales.about(point, bent(parts[2], model.prior_part))
    out = _compressed(model, prior, point, parts, scales.precision())
    return out if root is None else replace(out, moved_by_density=float(np.linalg.norm(root.whiten(point - start))))


def _given_point(model: Model, n_seen: int, names: tuple[str, ...], psi_hat: Any) -> Array:
    """The point that a user names; `names` are of what the rows see."""
    if isinstance(psi_hat, Result):
        point = mean_seen(model, psi_hat)
    else:
        point = _frames.floats_in_order(psi_hat.mode if isinstance(psi_hat, Compressed) else psi_hat, names, "psi_hat")
        if isinstance(psi_hat, Compressed) and (order := _frames.order_of(psi_hat.names, names, "psi_hat", "model")):
            point = point[order]
    if point.shape != (n_seen,) or not np.isfinite(point).all():
        raise ValueError(f"psi_hat is {_checks.shown(psi_hat)}, of shape {point.shape}; {n_seen} finite parameters are "
                         f"needed")
    return point


def _expanded_at(model: Model, prior: JointPrior, point: Array, parts: Parts, rows: Chunks | None = None,
                 n_passes: int = 0) -> Compressed:
    """An expansion at any point, with how far its mode is; of the rows of chunks, if they came."""
    scales = Scales(prior)
    _require_precision(model, prior, parts, scales)
    precision = scales.about(point, bent(parts[2], model.prior_part))
    _, slope, whole = with_part(model.prior_part, parts, point)
    factor = factored(whole, scales)
    if has_more(prior):
        quadratic = Quadratic(point, *with_part(model.prior_part, parts, point))
        step = peak_of(quadratic, log_prior_about(prior, scales, factor, point), factor, point) - point
        away = float(np.linalg.norm(factor.whiten(step)))
    else:
        gradient = slope + scales.pulled(factor, point)[1]
        step = np.asarray(factor.solve(gradient))
        away = math.sqrt(max(0.0, float(step @ gradient)))
    out = replace(_compressed(model, prior, point, parts, precision), from_mode=away, _mode=point + step)
    return out if rows is None else replace(out, n_rows=rows.n_rows, n_chunks=rows.n_chunks, n_passes=n_passes)


def _of_chunks(model: Model, prior: JointPrior, psi_hat: Any, chunks: Any) -> Compressed:
    """The expansion of rows in chunks, of which those of the model are some."""
    rows = Chunks(model, chunks)
    point = np.array(compress(model).psi_hat) if psi_hat is None else _given_point(
        model, prior.n_seen, (model.names or ())[: prior.n_seen], psi_hat)
    reach = math.sqrt(prior.n_seen)
    for n_passes in range(1, _PASSES + 1):
        out = _expanded_at(model, prior, point, parts_of(*rows.expand(point)), rows, n_passes)
        if out.from_mode <= reach or rows.once or psi_hat is not None:
            break
        point = np.array(out.mode)
    _tell_how_far(out, reach, "the chunks were expanded",
                  "compress(model, psi_hat=compressed, chunks=...), with the chunks once more, goes on from there")
    return out


def _tell_how_far(made: Compressed, reach: float, what: str, again: str) -> None:
    """Warn of a point that is no point of the posterior's bulk."""
    if made.from_mode > reach:
        warnings.warn(f"{what} {made.from_mode:.3g} posterior standard deviations from the mode of the expansion, and "
                      f"up to {reach:.3g} are expected of a point in the posterior's bulk: {again}",
                      stacklevel=_checks.users_level())


def _near_mode(model: Model, prior: JointPrior) -> tuple[Array, Scales, float]:
    """Where Newton's steps begin, and how close they are to get.

    Of many rows they begin where some of them lead, as the first pass knows or as they say now.
    """
    pilot = model._pilot if isinstance(model, GLM) else None
    known = None if pilot is None else pilot.scales(prior)
    if pilot is not None and known is not None:
        return pilot.point.copy(), known, NEAR
    start, scales = _start(model, prior), Scales(prior)
    if isinstance(model, GLM) and is_long(model.n_rows):  # most steps on some of the rows
        with contextlib.suppress(NoModeError):
            start, scales = _on_some(model, some_rows(model.n_rows, model.factors), start, scales)
    return start, scales, CLOSE


def _on_some(model: GLM, rows: NDArray[np.intp], start: Array, scales: Scales) -> tuple[Array, Scales]:
    """Where Newton's steps lead on some of the rows, and the scales there."""
    some, both = model._taken(rows), partial(with_part, model.prior_part)
    point, _, scales = empirical_bayes(lambda psi: both(parts_of(*expand_seen(some, psi)), psi), start, scales)
    return point, scales


def expansions_apart(model: GLM, compressed: Compressed, starts: Iterable[Array],
                     rows: NDArray[np.intp]) -> Iterator[Compressed]:
    """Expansions where Newton's steps lead from far points, on some of the rows, then on all; only of other modes."""
    hat, metric = np.array(compressed.psi_hat), compressed.metric()
    both = partial(with_part, model.prior_part)

    def apart(a: Array, b: Array) -> bool:
        return bool((a - b) @ metric.times(a - b) > _APART**2)

    near, _ = _on_some(model, rows, hat, Scales(compressed.prior))
    for start in starts:
        with contextlib.suppress(ValueError, np.linalg.LinAlgError):  # so far out there need not be a way back
            point, scales = _on_some(model, rows, start, Scales(compressed.prior))
            if apart(point, near):
                point, _, scales = empirical_bayes(lambda psi: both(expansion_of(model, psi), psi), point, scales)
                if apart(point, hat):
                    yield _compressed(model, compressed.prior, point, expansion_of(model, point), scales.precision())


def _require_precision(
    model: Model, prior: JointPrior, parts: Parts, scales: Scales, exactly: bool = True
) -> None:
    """Refuse columns so nearly collinear that the sums over rows, in double precision, cannot tell them apart.

    What is computed of their coefficients would be rounding, without a sign of it where priors are proper. `exactly`
    says whether columns that are collinear are refused too, where priors are so wide that they do not help.
    """
    p = len(prior.given[0])
    if parts[2].n_blocks:  # effects whose deviations are known are coefficients too
        p = min(p, parts[2].start)
    if prior.given[4]:
        return

    def moved(step: Array) -> float:
        return math.inf if exactly else model._moved(np.append(step, np.zeros(prior.n_seen - p)))

    curvature = bent(parts[2], model.prior_part).dense[:p, :p] + np.diag(scales.precision()[:p])
    require_precision(curvature, moved, model.names, "or give them narrower priors")


def _require_proper(model: Model, prior: JointPrior, point: Array, parts: Parts, scales: Scales) -> None:
    """Refuse coefficients with a flat prior that the rows do not bound: collinear ones, or separated outcomes."""
    flat = np.array([j for j, c in enumerate(prior.given[0]) if c[0] == "flat"], dtype=int)
    if not len(flat) or prior.given[4]:
        return
    names, curvature = tuple(model.names or ()), bent(parts[2], model.prior_part)
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
        scale = np.sqrt(np.diagonal(parts[2].dense)[flat]) + WEAK
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
    if sizes[0] != sizes[1] and compressed.n_chunks:
        raise ValueError(f"{compressed!r} is of {counted(compressed.n_chunks, 'chunk')}, and the model that came is of "
                         f"{counted(model.n_rows, 'row')}: decisions read rows at random, which chunks do not give. A "
                         f"model of all of their rows is needed, in their order or not, such as a GLM of one memory "
                         f"map; where there is none, draws of the expansion cannot be corrected")
    if sizes[0] != sizes[1]:
        raise ValueError(f"{compressed!r} came for a model of {counted(sizes[1][0], 'row')} and "
                         f"{counted(sizes[1][1], 'parameter')} that these see; compress(model) of this very model is "
                         f"needed")
    if with_prior and not has_prior_of(compressed, model):
        raise ValueError("the Compressed has another prior than the model; compress(model) of this very model is "
                         "needed")
    value, slope, curvature = expansion_of(model, np.array(compressed.psi_hat))
    _require_same(compressed, value, slope, curvature.diagonal())


def has_prior_of(compressed: Compressed, model: Model) -> bool:
    """Whether an expansion has the prior of a model.

    Priors in units of the data are sums over rows, which rounding makes differ with the order of these. Densities of a
    user's own are compared by their values about the point of expansion.
    """
    own, other = compressed.prior, prior_of(model)
    parts = [part and (part.precision.tolist(), part.shift.tolist()) for part in (compressed._part, model.prior_part)]
    if not (_alike(own.given[:4], other.given[:4]) and _alike(*parts)):
        return False
    if [places for _, places in own.given[4]] != [places for _, places in other.given[4]]:
        return False
    if not own.given[4]:
        return True
    sd = 1.0 / np.sqrt(np.maximum(compressed.curvature.diagonal(), 1e-12))
    rng = np.random.default_rng(0)
    psi = compressed.psi_hat + np.array([[0.0], [1.0], [1.0], [3.0]]) * sd * rng.standard_normal((4, own.n_seen))
    points = np.column_stack([psi, rng.standard_normal((4, own.n_hyper))])
    values = np.array([[_value(prior, theta) for theta in points] for prior in (own, other)])
    if not np.array_equal(np.isfinite(values[0]), np.isfinite(values[1])):
        return False
    values = values[:, np.isfinite(values[0])]
    apart = values[0] - values[1]           # a constant is none of a prior's
    return not apart.size or float(np.ptp(apart)) <= _ROUNDED * (1.0 + float(np.abs(values).max()))


def _value(prior: JointPrior, theta: Array) -> float:
    try:
        return float(prior.value_of(theta))
    except (ValueError, ArithmeticError):
        return math.nan


def _alike(one: Any, other: Any) -> bool:
    """Whether nested tuples hold the same words, and numbers that are the same but for rounding."""
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, (int, float, np.number)) and isinstance(other, (int, float, np.number)):
        return math.isclose(one, other, rel_tol=_ROUNDED, abs_tol=1e-12)
    return bool(one == other)


def require_of_map(compressed: Compressed, model: Any) -> None:
    """The same of a model whose rows see a map of its parameters, which is then expanded where the `Compressed` is."""
    value, slope, curvature = model.expand_as(compressed)
    if compressed.n_rows != model.n_rows:
        raise ValueError(f"{compressed!r} came for a model of {counted(model.n_rows, 'row')}; compress(model) of this "
                         f"very model is needed")
    _require_same(compressed, value, slope, np.diagonal(curvature))


def _require_same(compressed: Compressed, value: float, slope: Array, diagonal: Array) -> None:
    """Refuse an expansion whose value or gradient at its point are not those of the model."""
    apart = np.abs(slope - compressed.slope) > 1e-3 * np.sqrt(np.abs(diagonal)) + 1e-9
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
    each = [("flat", 0.0, 1.0, 0.0, -1) if s == math.inf else ("normal", float(m), float(s), 0.0, -1)
            for m, s in zip(model.prior_mean, sd, strict=True)]
    if isinstance(model, GLM) and model.learns_scale and sd[-1] < math.inf:
        return JointPrior(each[:-1], aux=("log-normal", *each[-1][1:3]))
    return JointPrior(each)


def expansion_of(model: Any, psi: Array) -> Parts:
    """Value, gradient and minus the Hessian of the summed terms at a point, in one pass."""
    if hasattr(model, "expand_seen"):
        return parts_of(*model.expand_seen(psi))
    value, slope, whole = model._expand(psi)
    return float(value), np.array(slope, dtype=np.float64), Arrow(-whole)


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


def _start(model: Model, prior: JointPrior) -> Array:
    start = np.asarray(model._start(), dtype=np.float64)
    return start[: prior.n_seen] if len(start) >= prior.n_seen else np.zeros(prior.n_seen)
