"""Mixtures of generalised linear models over groups of rows, and the expansions of the groups."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fastrace._base import _checks, _frames
from fastrace._base._blas import one_blas_thread
from fastrace._base._words import counted
from fastrace._models._group_expansions import GroupExpansions, about_one_origin
from fastrace._models.grouping import as_values, refuse_missing
from fastrace._models.rows import chunks, lengths
from fastrace.control_variates import cubic_weights, residual_rounding
from fastrace.likelihoods import GLMSource
from fastrace.mcmc.models._glm_rows import expanded
from fastrace.mcmc.models._modes import CORRELATED, Parts, find_mode
from fastrace.mcmc.models.glm import GLM

__all__ = ["MixtureOf"]

Array = NDArray[np.float64]
_BENT = -1e-9  # eigenvalue of a curvature whose diagonal is 1, below which it is not rounding
_PLAUSIBLE = 5.0  # log-likelihood, beside that for each parameter, that a group of a class may lose by its parameters
_EM_STEPS = 15
_CANDIDATES = 5  # for each class at the start
_SHARE = 0.05  # of a group's own curvature that the ridge may add to its metric


class MixtureOf:
    r"""A mixture of generalised linear models: each group of rows belongs to one of several classes.

    All rows of a group, such as the events of a user, have the parameters of the group's class. Classes, labels of the
    groups and weights of the classes are unknown. `SurrogateGibbs` draws them, and is what `sample` takes for a
    mixture.

    Parameters
    ----------
    model : GLM
        The rows and the prior of the parameters of each class, which must be a normal one: give ``prior_sd``. A `scale`
        must be given too, and is that of all classes.
    groups : array_like of shape (n_rows,)
        The group of each row of the table that the model was given: numbers or words. Rows are copied in the order of
        groups, unless they are in it.
    n_classes : int
        Number of classes, or the largest number of them that is possible: see the notes.
    concentration : float, default 1.0
        Of the symmetric Dirichlet prior of the weights. Small values, such as ``1 / n_classes``, leave classes that the
        data do not need empty.
    weights : array_like of shape (n_classes,), optional
        The weights, if they are given and not learned. They are divided by their sum.
    parameters : array_like of shape (n_classes, p), optional
        The parameters of the classes, if they are given: then the labels, and the weights unless given too, are drawn.
    hierarchical : bool, default False
        Learn where the classes lie: parameter j of each class is normal with mean ``mean[j]`` and standard deviation
        ``sd[j]``, both unknown. The model's prior is then that of ``mean``, and ``sd[j]`` has a half-Cauchy prior.
    sd_scale : float, default 1.0
        Scale of that half-Cauchy prior.

    Attributes
    ----------
    levels : tuple
        What the groups are called, in the order of the labels.
    n_groups, n_classes, dim, n_rows : int
    expansions : GroupExpansions
        The log-likelihood of each group to second order.

    Raises
    ------
    ValueError
        If an argument is out of range, a group is missing (None or nan), the prior is flat somewhere, the model has a
        ``log_prior``, or the pandas index of `groups` is not that of the model's rows. A model that was pickled has
        forgotten its index.
    TypeError
        If `model` is no `GLM`.

    Notes
    -----
    Labels have no names: a posterior is the same whatever classes are called, and chains may exchange the names of
    classes on the way or differ in them from the start. Means of ``theta[k]`` and R-hat then say nothing. Ask what does
    not depend on names, such as `together`, `occupied` and the quantities of `nameless`, which `sample` judges chains
    by; or let `SurrogateGibbs` record classes in the order of one
    coefficient, which names them well where that coefficient separates them.

    For an unknown number of classes take `n_classes` larger than what can be needed and a small `concentration`:
    `occupied` then counts the classes in use (Rousseau & Mengersen 2011).

    A group is expanded at the mode of its own posterior under the prior, which is the maximum of its likelihood where
    that says much, and is defined where a group is separated or has few rows. From these expansions the EM algorithm
    finds where the classes may be, and groups that could be of one of them are expanded there instead: so the errors of
    many expansions do not add up. That takes a few passes over the rows. Where it is wrong, draws are refused more
    often, and are right all the same.
    Memory: ``1.5 p**2`` numbers a group and 3 numbers a row, beside the rows.

    References
    ----------
    .. [1] Rousseau, Mengersen, "Asymptotic behaviour of the posterior distribution in overfitted mixture models",
       JRSS B 73(5), 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> user = np.repeat(np.arange(12), 500)
    >>> X = rng.normal(size=(6000, 2))
    >>> slopes = np.array([[1.0, 0.0], [-1.0, 0.5]])[user % 2]
    >>> y = rng.random(6000) < 1 / (1 + np.exp(-(X * slopes).sum(axis=1)))
    >>> mixture = mcmc.MixtureOf(mcmc.GLM(X, y, prior_sd=2.5), groups=user, n_classes=2)
    >>> trace = mcmc.sample(mcmc.SurrogateGibbs(mixture, order_by=0), n_draws=200, n_chains=2, rng=1)
    >>> trace.to_arrays()["posterior"]["label"][0, -1]
    array([1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0])
    """

    @one_blas_thread()
    def __init__(
        self,
        model: GLM,
        groups: ArrayLike,
        n_classes: int,
        *,
        concentration: float = 1.0,
        weights: ArrayLike | None = None,
        parameters: ArrayLike | None = None,
        hierarchical: bool = False,
        sd_scale: float = 1.0,
    ) -> None:
        if not isinstance(model, GLM):
            raise TypeError(f"model is {_checks.shown(model)}; a GLM, whose terms have expansions, is needed")
        if model.learns_scale:
            raise ValueError(f"the {model.scale_name} of the {model._glm.family} model is to be learned, and groups of "
                             f"a mixture are expanded in coefficients alone: give GLM(..., scale=...) a number, which "
                             f"is the same for all classes")
        if model.dim != model.n_columns or "a sparse X" in model.beside:
            raise ValueError(f"model is {model!r}; a table of numbers as X, and a coefficient for each column and "
                             f"nothing else, are needed: no grouping factors, no sparse X")
        self.model = model
        self.n_classes = _checks.integer(n_classes, "n_classes", 1, "groups belong to classes")
        self.concentration = _checks.positive(concentration, "concentration", "it counts as so many groups a class")
        self.sd_scale = _checks.positive(sd_scale, "sd_scale", "it is the scale of a standard deviation")
        self.hierarchical = _checks.flag(hierarchical, "hierarchical")
        self.weights = None if weights is None else _weights(weights, self.n_classes)
        self.parameters = None if parameters is None else _states(parameters, self.n_classes, model.dim)
        if self.hierarchical and self.parameters is not None:
            raise ValueError("hierarchical=True came with parameters, which are then given and have no prior to learn")
        self._check_prior()
        _frames.require_same_rows(**{"the model": model, "groups": groups})
        code, levels = _coded(groups, model.n_rows)
        code = code if model._row_order is None else code[model._row_order]
        self.levels = tuple(levels.tolist())
        order = np.argsort(code, kind="stable")
        self._order: NDArray[np.intp] = order
        starts = np.append(0, np.cumsum(np.bincount(code)))
        mean, precision = self._ridge()
        glm = self.rows_by_group()._glm
        own = _at_modes(glm, starts, mean, precision)
        _moved(glm, starts, own, self.n_classes, mean, precision, self.parameters)
        self.expansions = _bounded(glm, starts, own, precision)

    def __repr__(self) -> str:
        return (f"MixtureOf({self.model!r}, {counted(self.n_groups, 'group')}, n_classes={self.n_classes})")

    @property
    def dim(self) -> int:
        """Number of parameters of a class."""
        return self.model.dim

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.model.n_rows

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.levels)

    def _check_prior(self) -> None:
        if self.parameters is not None:
            return
        if self.model.log_prior is not None:
            raise ValueError("the model has a log_prior, or a prior that is not normal; classes are drawn from a "
                             "normal prior times expansions: give prior=Normal(0.0, 2.5), or prior_mean and prior_sd")
        if self.model.prior_part is not None:
            raise ValueError(CORRELATED.format("classes are drawn from independent normal priors"))
        flat = np.flatnonzero(self.model.prior_precision == 0.0)
        if len(flat):
            raise ValueError(f"prior_sd of the model is infinite for parameters {flat.tolist()}; a class without "
                             f"groups has its prior alone: give a finite prior_sd, such as 2.5 for columns of standard "
                             f"deviation 1")

    def _ridge(self) -> tuple[Array, Array]:
        """Mean and precision of the normal density under which each group is expanded at its mode."""
        if self.parameters is None:
            return self.model.prior_mean, self.model.prior_precision
        spread = 3.0 * self.parameters.std(axis=0)
        floor = 1e-3 * float(spread.max()) or 1.0
        return self.parameters.mean(axis=0), 1.0 / np.maximum(spread, floor) ** 2

    def rows_by_group(self) -> GLM:
        """The model with its rows in the order of groups: a copy, unless they are in it."""
        rows = copy.copy(self.model)
        rows._glm = self.model._in_order(self._order)
        return rows

    def occupied(self, trace: Any) -> NDArray[np.int64]:
        """How many classes have groups, in each draw: shape (n_chains, n_draws)."""
        labels = np.sort(self._labels(trace), axis=2)
        return np.asarray(1 + (np.diff(labels, axis=2) > 0).sum(axis=2), dtype=np.int64)

    def together(self, trace: Any) -> Array:
        """Posterior probability that two groups are of one class: shape (n_groups, n_groups)."""
        labels = self._labels(trace).reshape(-1, self.n_groups)
        out = np.zeros((self.n_groups, self.n_groups))
        for k in range(self.n_classes):
            inside = (labels == k).astype(np.float64)
            out += inside.T @ inside
        return out / max(len(labels), 1)

    def nameless(self, trace: Any) -> dict[str, Array]:
        """What draws say whatever classes are called: chains that exchange names still agree on it.

        `sample` computes R-hat and effective sizes from these quantities, unless `SurrogateGibbs` has `order_by`, which
        names the classes.

        Parameters
        ----------
        trace : Trace
            Draws of this mixture by `SurrogateGibbs`, with labels or without.

        Returns
        -------
        dict of ndarray of shape (n_chains, n_draws)
            By what they are called, as far as they are drawn: "occupied", the number of classes that have groups;
            "together", the share of pairs of groups that are of one class; the weights, the largest first; mean and
            standard deviation of each coefficient over groups, each with the parameters of its class, or, without
            labels, over classes by their weights; and the common mean and spread of classes.
        """
        found = trace.to_arrays()["posterior"]
        out: dict[str, Array] = {}
        shares = found.get("weight", self.weights)
        if "label" in found:
            labels = self._labels(trace)
            counts = np.stack([(labels == k).sum(axis=2) for k in range(self.n_classes)], axis=2)
            shares = counts / self.n_groups
            out["occupied"] = self.occupied(trace).astype(np.float64)
            out["together"] = (counts * (counts - 1.0)).sum(axis=2) / max(self.n_groups * (self.n_groups - 1.0), 1.0)
        if "weight" in found:
            weights = -np.sort(-found["weight"], axis=2)
            out |= {f"weight, number {k + 1} in size": weights[:, :, k] for k in range(self.n_classes)}
        columns = self.model.names or range(self.dim)
        if "theta" in found:
            mean = np.einsum("...k,...kj->...j", shares, found["theta"])
            square = np.einsum("...k,...kj->...j", shares, (found["theta"] - mean[:, :, None]) ** 2)
            for j, name in enumerate(columns):
                out[f"mean over groups of theta[{name}]"] = mean[:, :, j]
                out[f"sd over groups of theta[{name}]"] = np.sqrt(square[:, :, j])
        for part in ("mean", "sd") if self.hierarchical else ():
            out |= {f"{part}[{name}]": found[part][:, :, j] for j, name in enumerate(columns)}
        return out

    def _labels(self, trace: Any) -> NDArray[np.int64]:
        found = trace.to_arrays()["posterior"].get("label")
        if found is None or found.shape[2:] != (self.n_groups,):
            raise ValueError(f"the trace holds no labels of {counted(self.n_groups, 'group')}; one of SurrogateGibbs, "
                             f"with keep_labels=True, of this mixture is needed")
        return np.asarray(found)


def _weights(weights: ArrayLike, n_classes: int) -> Array:
    out = _checks.floats(weights, "weights")
    if out.shape != (n_classes,) or not (np.isfinite(out).all() and (out >= 0.0).all() and out.sum() > 0.0):
        raise ValueError(f"weights is {_checks.shown(weights)}; {n_classes} numbers from 0 up, not all of them 0, are "
                         f"needed")
    return np.asarray(out / out.sum())


def _states(parameters: ArrayLike, n_classes: int, dim: int) -> Array:
    out = _checks.floats(parameters, "parameters")
    if out.shape != (n_classes, dim) or not np.isfinite(out).all():
        raise ValueError(f"parameters has shape {out.shape}; finite numbers of shape {(n_classes, dim)}, one row a "
                         f"class, are needed")
    return out


def _coded(groups: ArrayLike, n_rows: int) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """The number of each row's group, and what the groups are called."""
    given = _checks.as_array(groups, "groups")
    if given.shape != (n_rows,):
        raise ValueError(f"groups has shape {given.shape}; ({n_rows},), one group for each row, is needed")
    refuse_missing(as_values(groups, "groups"), "groups")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise ValueError(f"groups[{int(np.argmin(np.isfinite(given)))}] is not finite; each row needs a group")
    try:
        levels, code = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise TypeError("groups cannot be sorted; give numbers or words, of one kind and without gaps") from error
    return code.reshape(-1), levels


@dataclass
class _Expanded:
    """Expansions of n groups at points of their own."""

    hats: Array
    values: Array
    gradients: Array
    curvatures: Array
    bent: NDArray[np.bool_]  # whether a curvature had a negative part, which has been taken off

    def take(self, g: int, at: Array, parts: Parts) -> None:
        """Keep what a group is at a point."""
        self.hats[g], self.values[g], self.gradients[g] = at, parts[0], parts[1]
        self.curvatures[g], self.bent[g] = _upright(-(parts[2] + parts[2].T) / 2.0)


def _at_modes(glm: GLMSource, starts: NDArray[np.int64], mean: Array, precision: Array) -> _Expanded:
    """Expand each group at the mode of its log-likelihood plus the log of a normal density."""
    n, d = len(starts) - 1, len(mean)
    out = _Expanded(np.empty((n, d)), np.empty(n), np.empty((n, d)), np.empty((n, d, d)), np.zeros(n, np.bool_))
    start = mean
    for g in range(n):
        first, last = int(starts[g]), int(starts[g + 1])

        def ridged(at: Array, first: int = first, last: int = last) -> Parts:
            value, gradient, hessian = expanded(glm, at, first, last)
            step = at - mean
            pull = precision * step
            return value - 0.5 * float(step @ pull), gradient - pull, hessian - np.diag(precision)

        hat = find_mode(ridged, start, 1e-6)
        start = start + (hat - start) / (g + 1)
        out.take(g, hat, expanded(glm, hat, first, last))
    return out


def _moved(
    glm: GLMSource, starts: NDArray[np.int64], own: _Expanded, n_classes: int, mean: Array, precision: Array,
    states: Array | None,
) -> None:
    """Expand groups anew where the classes are, as far as their own expansions can tell.

    Many groups of one class have modes that scatter about its parameters. Their expansions err by a little each, all in
    one direction: the sum over the class errs by more than its standard deviation. At the class the errors vanish.
    """
    n, d = own.hats.shape
    parts = about_one_origin(own.hats, own.values, own.gradients, own.curvatures)
    groups = GroupExpansions(starts, own.hats, *parts, np.broadcast_to(np.eye(d), (n, d, d)), np.zeros(int(starts[-1])),
                             np.zeros(n), np.zeros(n))
    centers = _classes(groups, n_classes, mean, precision) if states is None else states
    values = groups.values_at(centers)
    points = special.softmax(values, axis=1) @ centers
    near = groups.values_at_hats() - values.max(axis=1) < d + _PLAUSIBLE
    for g in np.flatnonzero(near & ~own.bent).tolist():
        kept = own.hats[g].copy(), (own.values[g], own.gradients[g].copy(), -own.curvatures[g])
        own.take(g, points[g], expanded(glm, points[g], int(starts[g]), int(starts[g + 1])))
        if own.bent[g]:
            own.take(g, *kept)


def _classes(groups: GroupExpansions, n_classes: int, mean: Array, precision: Array) -> Array:
    """Parameters of classes, by the EM algorithm on the expansions: no row is read."""
    theta, share = apart(groups, n_classes, np.random.default_rng(0)), np.full(n_classes, 1.0 / n_classes)
    for _ in range(_EM_STEPS):
        parts = special.softmax(groups.values_at(theta) + np.log(share), axis=1)
        share = (parts.sum(axis=0) + 1.0) / (len(parts) + n_classes)
        theta, _ = normals_of_classes(groups, parts, mean, precision)
    return theta


def normals_of_classes(groups: GroupExpansions, shares: Array, mean: Array, precision: Array) -> tuple[Array, Array]:
    """Means and precisions of classes' parameters, prior times expansions, given the share of each group in each."""
    slope, curvature = groups.derivatives(shares.T @ groups.coefficients)
    curvature = curvature + np.diag(precision)
    slope = slope + precision * (mean - groups.origin)
    means = groups.origin + np.linalg.solve(curvature, slope[:, :, None])[:, :, 0]
    return np.asarray(means, dtype=np.float64), np.asarray(curvature, dtype=np.float64)


def apart(groups: GroupExpansions, n_classes: int, rng: np.random.Generator) -> Array:
    """Points of expansion, drawn in proportion to what the groups lose by those drawn before: the best of a few."""
    hats, best, n = np.asarray(groups.hats), groups.values_at_hats(), groups.n_groups
    _checks.room(8.0 * n_classes * groups.dim, f"n_classes is {n_classes}: their parameters")
    theta = np.empty((n_classes, groups.dim))
    theta[0] = hats[rng.integers(n)]
    loss = np.full(n, np.inf)
    for k in range(1, n_classes):
        loss = np.minimum(loss, np.maximum(best - groups.values_at(theta[k - 1 : k])[:, 0], 0.0))
        total = loss.sum()
        some = rng.choice(n, _CANDIDATES, p=loss / total if total > 0.0 else np.full(n, 1.0 / n))
        left = np.minimum(loss[:, None], np.maximum(best[:, None] - groups.values_at(hats[some]), 0.0))
        theta[k] = hats[some[left.sum(axis=0).argmin()]]
    return theta


def _bounded(
    glm: GLMSource, starts: NDArray[np.int64], own: _Expanded, precision: Array
) -> GroupExpansions:
    """The expansions with bounds on what they leave of each row."""
    n, d = own.hats.shape
    metrics, weights = np.empty((n, d, d)), np.zeros(int(starts[-1]))
    radii, roundings = np.zeros(n), np.zeros(n)
    for g in range(n):
        rows, curved = slice(int(starts[g]), int(starts[g + 1])), np.diag(own.curvatures[g])
        ridge = np.where(curved > 0.0, np.minimum(precision, _SHARE * curved), precision)
        metrics[g] = own.curvatures[g] + np.diag(ridge)
        if not own.bent[g]:
            weights[rows], radii[g], roundings[g] = _bounds(glm, own.hats[g], metrics[g], rows)
    parts = about_one_origin(own.hats, own.values, own.gradients, own.curvatures)
    return GroupExpansions(starts, own.hats, *parts, metrics, weights, radii, roundings)


def _upright(curvature: Array) -> tuple[Array, bool]:
    """A curvature without its negative part, which terms that are not concave may have, and whether it had one."""
    scale = np.sqrt(np.abs(np.diag(curvature)))
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh(curvature / np.outer(scale, scale))
    if values[0] >= _BENT:
        return curvature, False
    return (vectors * np.maximum(values, 0.0)) @ vectors.T * np.outer(scale, scale), True


def _bounds(glm: GLMSource, hat: Array, metric: Array, rows: slice) -> tuple[Array, float, float]:
    """Of the rows of a group: bounds on third derivatives, how far they hold, and what rounding may do."""
    scale = np.sqrt(np.diag(metric))
    factor = np.linalg.inv(np.linalg.cholesky(metric / np.outer(scale, scale))).T / scale[:, None]
    x = glm.X[rows]
    beside = 0.0 if glm.offset is None else glm.offset[rows]
    weights, radius = cubic_weights(glm, lengths(x, factor),
                                    lambda: beside + np.concatenate([part @ hat for _, part in chunks(x)]), glm.y[rows])
    if glm.term_weights is not None:
        weights = weights * glm.term_weights[rows]
    if not np.isfinite(weights).all():
        return np.zeros(len(x)), 0.0, 0.0
    largest = float(np.abs(glm.derivatives(hat, rows.start, len(x))[0]).max())
    return weights, min(radius, math.inf), residual_rounding(largest)
