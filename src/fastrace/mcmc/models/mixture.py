"""Mixtures of generalised linear models over groups of rows, and the expansions of the groups."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.optimize import brentq

from fastrace._base import _checks, _frames
from fastrace._base._blas import one_blas_thread
from fastrace._base._words import counted
from fastrace._models._group_expansions import GroupExpansions, about_one_origin
from fastrace._models._priors import JointPrior
from fastrace._models.grouping import as_values, refuse_missing
from fastrace._models.rows import chunks, lengths
from fastrace.control_variates import cubic_weights, residual_rounding
from fastrace.likelihoods import GLMSource
from fastrace.mcmc.models._glm_rows import expanded, mixed_weights
from fastrace.mcmc.models._modes import CORRELATED, Parts, find_mode
from fastrace.mcmc.models.glm import GLM

__all__ = ["MixtureOf"]

Array = NDArray[np.float64]
_BENT = -1e-9  # eigenvalue of a curvature whose diagonal is 1, below which it is not rounding
_PLAUSIBLE = 5.0  # log-likelihood, beside that for each parameter, that a group of a class may lose by its parameters
_EM_STEPS = 15
SMALL_GROUP = 25  # rows a parameter up to which a group is read, and not expanded, where a scale is learned
_MANY = 2000  # such groups that are enough to find classes by
_CANDIDATES = 5  # for each class at the start
_FAR = 700.0  # logarithm of a scale that double precision holds
_APART = 3.0  # of the logarithm of a group's scale from the prior's, where the search for its mode begins
_SHARE = 0.05  # of a group's own curvature that the ridge may add to its metric


class MixtureOf:
    r"""A mixture of generalised linear models: each group of rows belongs to one of several classes.

    All rows of a group, such as the events of a user, have the parameters of the group's class. Classes, labels of the
    groups and weights of the classes are unknown. `SurrogateGibbs` draws them, and is what `sample` takes for a
    mixture.

    Parameters
    ----------
    model : GLM
        The rows and the prior of the parameters of each class. That of coefficients must be a normal one: give
        ``prior_sd``, or ``prior=Normal(...)``. A `scale` that is given is that of all classes. One that is learned,
        ``GLM(..., scale=None)``, is learned for each class, with the model's prior of the scale for each, or for all
        classes together: see `shared_scale`.
    groups : array_like of shape (n_rows,)
        The group of each row of the table that the model was given: numbers or words. Rows are copied in the order of
        groups, unless they are in it.
    n_classes : int
        Number of classes, or the largest number of them that is possible: see the notes.
    concentration : float, default 1.0
        Of the symmetric Dirichlet prior of the weights. Small values, such as ``1 / n_classes``, leave classes that the
        data do not need empty.
    weights : array_like of shape (n_classes,), optional
        The weights, if they are given and not learned. They are divided by their sum. A series of pandas has the index
        of `parameters`, if these are a frame.
    parameters : array_like of shape (n_classes, p), optional
        The parameters of the classes, if they are given: then the labels, and the weights unless given too, are drawn.
        Where the model has no `scale`, the last column is the scale or dispersion of each class, not its logarithm.
        Columns of a frame go by the names of the model's parameters, the last one "scale" or "dispersion".
    hierarchical : bool, default False
        Learn where the classes lie: parameter j of each class is normal with mean ``mean[j]`` and standard deviation
        ``sd[j]``, both unknown. The model's prior is then that of ``mean``, and ``sd[j]`` has a half-Cauchy prior.
        Scales that are learned are not among these: each keeps the model's prior.
    sd_scale : float, default 1.0
        Scale of that half-Cauchy prior.
    shared_scale : bool, default False
        All classes have one scale or dispersion, which is learned, with the model's prior of it. Otherwise each class
        learns its own.

    Attributes
    ----------
    levels : tuple
        What the groups are called, in the order of the labels.
    n_groups, n_classes, n_coefficients, dim, n_rows : int
    expansions : GroupExpansions
        The log-likelihood of each group to second order.

    Raises
    ------
    ValueError
        If an argument is out of range, a group is missing (None or nan), the prior of coefficients is flat somewhere or
        not normal, `shared_scale` comes with a scale or with parameters that are given, or the pandas index of `groups`
        is not that of the model's rows. A model that was pickled has forgotten its index.
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

    A scale that is learned is one more parameter of the expansions, as its logarithm. There an expansion holds near its
    point only, and a group of few rows says little: groups of up to 25 rows a parameter are read by `SurrogateGibbs`,
    and an EM algorithm on their rows finds where chains begin. The prior of the scale alone keeps that of a class from
    0 whose rows its coefficients fit exactly.

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

    Gaussian classes, each with a standard deviation of its own:

    >>> z = (X * slopes).sum(axis=1) + np.array([0.5, 2.0])[user % 2] * rng.normal(size=6000)
    >>> model = mcmc.GLM(X, z, "gaussian", prior=mcmc.Normal(0.0, 2.5))
    >>> kernel = mcmc.SurrogateGibbs(mcmc.MixtureOf(model, groups=user, n_classes=2), order_by="scale")
    >>> trace = mcmc.sample(kernel, n_draws=200, n_chains=2, rng=1)
    >>> trace.to_arrays()["posterior"]["scale"].mean(axis=(0, 1)).round(1)
    array([0.5, 2. ])
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
        shared_scale: bool = False,
    ) -> None:
        if not isinstance(model, GLM):
            raise TypeError(f"model is {_checks.shown(model)}; a GLM, whose terms have expansions, is needed")
        if model.dim != model.n_columns + model.learns_scale or "a sparse X" in model.beside:
            raise ValueError(f"model is {model!r}; a table of numbers as X, and a coefficient for each column and "
                             f"nothing else but a scale, are needed: no grouping factors, no sparse X, no prior that "
                             f"learns scales of its own")
        self.model = model
        self.n_classes = _checks.integer(n_classes, "n_classes", 1, "groups belong to classes")
        self.concentration = _checks.positive(concentration, "concentration", "it counts as so many groups a class")
        self.sd_scale = _checks.positive(sd_scale, "sd_scale", "it is the scale of a standard deviation")
        self.hierarchical = _checks.flag(hierarchical, "hierarchical")
        _frames.require_same_rows(parameters=parameters, weights=weights)
        self.weights = None if weights is None else _weights(weights, self.n_classes)
        self.parameters = None if parameters is None else _states(parameters, self.n_classes, model)
        if self.hierarchical and self.parameters is not None:
            raise ValueError("hierarchical=True came with parameters, which are then given and have no prior to learn")
        self.shared_scale = _checks.flag(shared_scale, "shared_scale")
        if self.shared_scale and not model.learns_scale:
            raise ValueError(f"shared_scale=True came with {model!r}, which learns no scale: one that is given is that "
                             f"of all classes; for one that is learned, make the GLM without scale")
        if self.shared_scale and self.parameters is not None:
            raise ValueError("shared_scale=True came with parameters, whose last column gives the scale of each class: "
                             "there is none to learn")
        prior = () if self.parameters is not None else self._class_prior()[:2]
        _frames.require_same_rows(**{"the model": model, "groups": groups})
        code, levels = _coded(groups, model.n_rows)
        code = code if model._row_order is None else code[model._row_order]
        self.levels = tuple(levels.tolist())
        order = np.argsort(code, kind="stable")
        self._order: NDArray[np.intp] = order
        starts = np.append(0, np.cumsum(np.bincount(code)))
        rows = self.rows_by_group()
        glm, states = rows._glm, self._points()
        mean, precision = _ridge(rows, *prior) if states is None else _ridge_of_states(states)
        own = _at_modes(rows, starts, mean, precision)
        _moved(rows, starts, own, self.n_classes, mean, precision, states)
        self.expansions = _bounded(glm, starts, own, precision)

    def __repr__(self) -> str:
        return (f"MixtureOf({self.model!r}, {counted(self.n_groups, 'group')}, n_classes={self.n_classes})")

    shared_scale = False  # of mixtures saved before there was one

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

    @property
    def n_coefficients(self) -> int:
        """Number of coefficients of a class: its parameters but for a scale that is learned."""
        return self.model.n_columns

    @property
    def column_names(self) -> tuple[Any, ...]:
        """What the coefficients are called: names, or numbers where the model has none."""
        return tuple(self.model.column_names) or tuple(range(self.n_coefficients))

    def _class_prior(self) -> tuple[Array, Array, JointPrior | None]:
        """The prior of the parameters of a class.

        Returns
        -------
        mean, precision : ndarray of shape (dim,)
            Of independent normal densities; that of the logarithm of a scale is near its prior.
        scale : JointPrior or None
            That prior, of an auxiliary parameter alone; None where it is the normal density.

        Raises
        ------
        ValueError
            If it is not normal in the coefficients, or not proper.
        """
        model = self.model
        if model.prior_part is not None:
            raise ValueError(CORRELATED.format("classes are drawn from independent normal priors"))
        mean, precision, scale = model.prior_mean, model.prior_precision, None
        joint = model.joint_prior
        normal = joint is None and model.log_prior is None
        if model.learns_scale and joint is not None:
            coefficients, _, _, aux, own = joint.given
            normal = not own and all(c[0] in ("flat", "normal") for c in coefficients)
            scale = JointPrior((), aux=aux)
            widths = [c[2] if c[0] == "normal" else math.inf for c in coefficients]
            of_scale = _normal_of(scale)
            mean = np.array([*(c[1] for c in coefficients), of_scale[0]])
            precision = np.array([*(width**-2.0 for width in widths), of_scale[1]])
        if not normal:
            raise ValueError("the model has a log_prior, or a prior that is not normal; classes are drawn from a "
                             "normal prior times expansions: give prior=Normal(0.0, 2.5), or prior_mean and prior_sd")
        flat = np.flatnonzero(precision == 0.0)
        if len(flat):
            raise ValueError(f"prior_sd of the model is infinite for parameters {flat.tolist()}; a class without "
                             f"groups has its prior alone: give a finite prior_sd, such as 2.5 for columns of standard "
                             f"deviation 1")
        if model.learns_scale and not abs(mean[-1]) < _FAR:
            raise ValueError(f"the prior of the {model.scale_name} is highest at exp({mean[-1]:.4g}); between "
                             f"exp(-{_FAR:g}) and exp({_FAR:g}) is needed")
        return np.asarray(mean, dtype=np.float64), np.asarray(precision, dtype=np.float64), scale

    def _points(self) -> Array | None:
        """The given parameters of the classes as their rows see them: a scale as its logarithm. None if unknown."""
        if self.parameters is None or not self.model.learns_scale:
            return self.parameters
        return np.column_stack([self.parameters[:, :-1], np.log(self.parameters[:, -1])])

    def rows_by_group(self) -> GLM:
        """The model with its rows in the order of groups: a copy, unless they are in it."""
        rows = copy.copy(self.model)
        rows._glm, rows.index = self.model._in_order(self._order), None
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
            labels, over classes by their weights; a scale that all share; and the common mean and spread of classes.
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
        columns = self.column_names
        if "theta" in found:
            names, values = [f"theta[{name}]" for name in columns], found["theta"]
            if self.shared_scale:
                out[self.model.scale_name] = found[self.model.scale_name]
            elif self.model.learns_scale:
                names.append(self.model.scale_name)
                values = np.concatenate([values, found[self.model.scale_name][..., None]], axis=3)
            mean = np.einsum("...k,...kj->...j", shares, values)
            square = np.einsum("...k,...kj->...j", shares, (values - mean[:, :, None]) ** 2)
            for j, name in enumerate(names):
                out[f"mean over groups of {name}"] = mean[:, :, j]
                out[f"sd over groups of {name}"] = np.sqrt(square[:, :, j])
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


def _states(parameters: ArrayLike, n_classes: int, model: GLM) -> Array:
    out, dim = _frames.floats_in_order(parameters, model.natural_names, "parameters"), model.dim
    if out.shape != (n_classes, dim) or not np.isfinite(out).all():
        last = f", the last column the {model.scale_name}," if model.learns_scale else ","
        raise ValueError(f"parameters has shape {out.shape}; finite numbers of shape {(n_classes, dim)}, one row a "
                         f"class{last} are needed")
    if model.learns_scale and not (out[:, -1] > 0.0).all():
        raise ValueError(f"the last column of parameters is {out[:, -1]}; it holds the {model.scale_name} of each "
                         f"class, which is positive")
    return out


def _normal_of(scale: JointPrior) -> tuple[float, float]:
    """Mean and precision of the normal density at the mode of the prior of a scale's logarithm."""

    def slope(t: float) -> float:
        return float(scale.value_and_gradient(np.array([t]))[1][0])

    low, high = -1.0, 1.0
    while slope(low) < 0.0 and low > -_FAR:
        low *= 2.0
    while slope(high) > 0.0 and high < _FAR:
        high *= 2.0
    if slope(low) < 0.0 or slope(high) > 0.0:
        return math.copysign(math.inf, slope(low)), 1.0
    scale.expand_at(np.array([brentq(slope, low, high)]))
    mean, precision = scale.conditional_of(())
    return float(mean[0]), float(precision[0])


def _ridge(rows: GLM, mean: Array, precision: Array) -> tuple[Array, Array]:
    """Mean and precision of the normal density under which each group is expanded at its mode: about the prior.

    A group of few rows says little of its scale, and may be fitted exactly. So the scale of all rows about one
    regression counts there as much as that of so many rows as there are parameters.
    """
    if rows.learns_scale:
        mean, precision = mean.copy(), precision.copy()
        whole = copy.copy(rows)
        whole.prior_mean, whole.prior_precision = mean, precision
        level = float(np.clip(whole._start()[-1], -_FAR, _FAR))
        own, more = precision[-1], 2.0 * len(mean)
        mean[-1], precision[-1] = (own * mean[-1] + more * level) / (own + more), own + more
    return mean, precision


def _ridge_of_states(states: Array) -> tuple[Array, Array]:
    """The same about classes whose parameters are given."""
    spread = 3.0 * states.std(axis=0)
    floor = 1e-3 * float(spread.max()) or 1.0
    return states.mean(axis=0), 1.0 / np.maximum(spread, floor) ** 2


def _coded(groups: ArrayLike, n_rows: int) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """The number of each row's group, and what the groups are called."""
    given = _checks.as_array(groups, "groups")
    if given.shape != (n_rows,):
        raise ValueError(f"groups has shape {given.shape}; ({n_rows},), one group for each row, is needed")
    given = as_values(groups, "groups")
    refuse_missing(given, "groups")
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

    def groups(self, starts: NDArray[np.int64]) -> GroupExpansions:
        """The expansions without bounds on what they leave."""
        n, d = self.hats.shape
        parts = about_one_origin(self.hats, self.values, self.gradients, self.curvatures)
        return GroupExpansions(starts, self.hats, *parts, np.broadcast_to(np.eye(d), (n, d, d)),
                               np.zeros(int(starts[-1])), np.zeros(n), np.zeros(n))

    def take(self, g: int, at: Array, parts: Parts) -> None:
        """Keep what a group is at a point."""
        self.hats[g], self.values[g], self.gradients[g] = at, parts[0], parts[1]
        self.curvatures[g], self.bent[g] = _upright(-(parts[2] + parts[2].T) / 2.0)


def _at_modes(rows: GLM, starts: NDArray[np.int64], mean: Array, precision: Array) -> _Expanded:
    """Expand each group at the mode of its log-likelihood plus the log of a normal density."""
    glm, n, d = rows._glm, len(starts) - 1, len(mean)
    out = _Expanded(np.empty((n, d)), np.empty(n), np.empty((n, d)), np.empty((n, d, d)), np.zeros(n, np.bool_))
    start = mean
    for g in range(n):
        first, last = int(starts[g]), int(starts[g + 1])

        def ridged(at: Array, first: int = first, last: int = last) -> Parts:
            value, gradient, hessian = expanded(glm, at, first, last)
            step = at - mean
            pull = precision * step
            return value - 0.5 * float(step @ pull), gradient - pull, hessian - np.diag(precision)

        if rows.learns_scale:
            start = _start_of(rows, slice(first, last), mean, precision)
        hat = find_mode(ridged, start, 1e-6)
        start = start + (hat - start) / (g + 1)
        out.take(g, hat, expanded(glm, hat, first, last))
    return out


def _start_of(rows: GLM, part: slice, mean: Array, precision: Array) -> Array:
    """Least squares of a group, and its scale, unless that is far from the others'."""
    own = copy.copy(rows)
    own._glm, own.prior_mean, own.prior_precision = rows._taken(part), mean, precision
    out = own._start()
    out[-1] = np.clip(out[-1], mean[-1] - _APART, mean[-1] + _APART)
    return out


def _moved(
    rows: GLM, starts: NDArray[np.int64], own: _Expanded, n_classes: int, mean: Array, precision: Array,
    states: Array | None,
) -> None:
    """Expand groups anew where the classes are, as far as their own expansions can tell.

    Many groups of one class have modes that scatter about its parameters. Their expansions err by a little each, all in
    one direction: the sum over the class errs by more than its standard deviation. At the class the errors vanish.
    """
    glm, d = rows._glm, own.hats.shape[1]
    groups = own.groups(starts)
    centers = _classes(groups, n_classes, mean, precision) if states is None else states
    if states is None and rows.learns_scale:
        small = np.flatnonzero(np.diff(starts) <= SMALL_GROUP * d)
        if len(small):
            centers = _settled(rows, starts, own, small, centers, mean, precision)
            groups = own.groups(starts)
    values = groups.values_at(centers)
    points = special.softmax(values, axis=1) @ centers
    near = groups.values_at_hats() - values.max(axis=1) < d + _PLAUSIBLE
    if states is None and rows.learns_scale:
        near[small] = False
    for g in np.flatnonzero(near & ~own.bent).tolist():
        kept = own.hats[g].copy(), (own.values[g], own.gradients[g].copy(), -own.curvatures[g])
        own.take(g, points[g], expanded(glm, points[g], int(starts[g]), int(starts[g + 1])))
        if own.bent[g]:
            own.take(g, *kept)


def _settled(
    rows: GLM, starts: NDArray[np.int64], own: _Expanded, small: NDArray[np.intp], centers: Array, mean: Array,
    precision: Array,
) -> Array:
    """Parameters of classes by the EM algorithm on the rows of small groups, which are expanded anew at them.

    In the logarithm of a scale an expansion holds near its point only, and the modes of few rows are far from it. A
    step is one of Newton's.
    """
    source, at = rows._arms(len(centers))
    share = np.full(len(centers), 1.0 / len(centers))
    some = small if len(small) <= _MANY else np.random.default_rng(0).choice(small, _MANY, replace=False)
    for step in range(_EM_STEPS + 1):
        at[:] = centers
        parts = special.softmax(own.groups(starts).values_at(centers) + np.log(share), axis=1)
        for g in (small if step == _EM_STEPS else some).tolist():
            first, last = int(starts[g]), int(starts[g + 1])
            with np.errstate(all="ignore"):
                loss = np.nan_to_num(source.read(np.arange(first, last)).sum(axis=0), nan=-math.inf, posinf=-math.inf)
            if np.isfinite(loss).any():
                parts[g] = special.softmax(loss + np.log(share))
            own.take(g, parts[g] @ centers, expanded(rows._glm, parts[g] @ centers, first, last))
        used = np.isin(np.arange(len(parts)), some) | ~np.isin(np.arange(len(parts)), small)
        share = (parts[used].sum(axis=0) + 1.0) / (used.sum() + len(centers))
        if step < _EM_STEPS:
            new, _ = normals_of_classes(own.groups(starts), parts * used[:, None], mean, precision)
            new[:, -1] = np.clip(new[:, -1], centers[:, -1] - 1.0, centers[:, -1] + 1.0)
            centers = new
    return centers


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
    x, y = glm.X[rows], glm.y[rows]
    beside = 0.0 if glm.offset is None else glm.offset[rows]

    def predictors() -> Array:
        return np.asarray(beside + np.concatenate([part @ hat[: x.shape[1]] for _, part in chunks(x)]))

    if glm.learns_scale:
        weights, radius = mixed_weights(glm, y, predictors(), float(hat[-1]), lengths(x, factor), factor)
    else:
        weights, radius = cubic_weights(glm, lengths(x, factor), predictors, y)
    if glm.term_weights is not None:
        weights = weights * glm.term_weights[rows]
    if not np.isfinite(weights).all():
        return np.zeros(len(x)), 0.0, 0.0
    largest = float(np.abs(glm.derivatives(hat, rows.start, len(x))[0]).max())
    return weights, min(radius, math.inf), residual_rounding(largest)
