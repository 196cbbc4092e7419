"""Coefficients of a PyMC model with a horseshoe prior, written in any of its ways; needs PyMC.

People write ``z * tau * lam``, ``z * tau * lam * sqrt(c2 / (c2 + tau**2 * lam**2))`` with c2 learned or a number, or a
normal density with either of these as its standard deviation. So the graph is not read, but asked for numbers: how far
each coefficient moves with its entry where the global scale is tiny, where it is huge, and at random points, at which
what was read must hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace.mcmc.doors.pymc._cuts import law
from fastrace.mcmc.doors.pymc._effects import Probe, groups_of
from fastrace.mcmc.doors.pymc._families import numbers
from fastrace.mcmc.doors.pymc._laws import is_standard, parameters
from fastrace.mcmc.models.priors import Horseshoe, LogDensity

__all__ = ["GlobalScale", "Shrunk", "shrunk_of"]

Array = NDArray[np.float64]
Places = NDArray[np.intp]

_HALF = ("HalfCauchy", "HalfStudentT")
_FAR = 25.0  # of the logarithm of a global scale, beside which a slab or the rest is rounding
_SAME = 1e-8  # relative difference that is rounding


class Shrunk(NamedTuple):
    """A variable whose entries are coefficients with a horseshoe, and where its scales stand in theta.

    Attributes
    ----------
    places : ndarray of shape (p,)
        Of the entries in theta.
    standardised : bool
        Whether they are in units of their scales.
    prior : Horseshoe
        Of the `GLM`.
    log_factor, by_scale : float
        The `GLM` has ``exp(log_factor)`` times PyMC's global scale, times the power `by_scale` of the variable behind
        the scale of the family.
    power : float
        Of that variable, in the scale of the global scale's prior.
    log_global : int
        Place of the logarithm of the global scale.
    log_local, log_unit : ndarray of shape (p,) and float
        Places of the logarithms of the local ones, which are ``exp(log_unit)`` times those of the `GLM`.
    log_slab, log_slab_factor : int and float
        Place of the logarithm of c^2, or -1; the `GLM` has ``exp(log_slab_factor)`` times c. Of a slab that is a number
        it is the logarithm of the `GLM`'s, and infinite without a slab.
    spread : ndarray of shape (p,)
        The scales of the entries, in units of the `GLM`, at the first point of the probe.
    slopes : tuple of ndarray
        Coefficients that rows see, the entry that each is, and what it is multiplied by beside its scale.
    columns : ndarray of shape (p,)
        Of the entries in the `GLM`, ascending.
    """

    places: Places
    standardised: bool
    prior: Horseshoe
    log_factor: float
    by_scale: float
    power: float
    log_global: int
    log_local: Places
    log_unit: float
    log_slab: int
    log_slab_factor: float
    spread: Array
    slopes: tuple[Places, Places, Array]
    columns: Places = np.empty(0, dtype=np.intp)

    @property
    def n_hyper(self) -> int:
        """Global, slab and local scales."""
        return 1 + (self.log_slab >= 0) + len(self.places)

    def ordered(self, order: Places) -> Shrunk:
        """The same with its entries in another order."""
        return self._replace(places=self.places[order], log_local=self.log_local[order], spread=self.spread[order])

    def widths(self, hyper: Array) -> Array:
        """Scales of coefficients, shape (..., p), of hyperparameters of the `GLM`, scales as they are."""
        wide = hyper[..., :1] * hyper[..., self.n_hyper - len(self.places) :]
        if self.log_slab < 0 and self.log_slab_factor == math.inf:
            return np.asarray(wide)
        slab = hyper[..., 1:2] if self.log_slab >= 0 else np.exp(self.log_slab_factor)
        with np.errstate(over="ignore", divide="ignore"):  # an infinite one is the slab's, or 0
            return np.asarray(1.0 / np.sqrt(wide**-2.0 + slab**-2.0))

    def hyper_of(self, theta: Array, log_scale: Array) -> Array:
        """Hyperparameters of the `GLM` of PyMC's parameters; `log_scale` is of the variable behind the scale."""
        overall = np.exp(theta[..., self.log_global] + self.log_factor + self.by_scale * log_scale)[..., None]
        local = np.exp(theta[..., self.log_local] - self.log_unit)
        if self.log_slab < 0:
            return np.concatenate([overall, local], axis=-1)
        slab = np.exp(0.5 * theta[..., self.log_slab] + self.log_slab_factor)[..., None]
        return np.concatenate([overall, slab, local], axis=-1)

    def put_hyper(self, hyper: Array, log_scale: Array, out: Array) -> None:
        """The inverse, written to PyMC's parameters."""
        out[..., self.log_global] = np.log(hyper[..., 0]) - self.log_factor - self.by_scale * log_scale
        out[..., self.log_local] = np.log(hyper[..., self.n_hyper - len(self.places) :]) + self.log_unit
        if self.log_slab >= 0:
            out[..., self.log_slab] = 2.0 * (np.log(hyper[..., 1]) - self.log_slab_factor)


class GlobalScale:
    """Log density of a global scale whose prior is in units of a learned scale, over that in fixed units.

    Parameters
    ----------
    df, fixed : float
        Of the half-Student prior that the model has for it.
    log_width, power : float
        The logarithm of its own scale where the learned one is 1, and the power of that.
    """

    def __init__(self, df: float, fixed: float, log_width: float, power: float) -> None:
        self.df, self.log_fixed, self.log_width, self.power = df, math.log(fixed), log_width, power

    def _of(self, t: float) -> tuple[float, float]:
        """Log density of a logarithm less that of its scale, up to a constant, and its slope."""
        square = math.exp(min(2.0 * t, 700.0)) / self.df
        return t - 0.5 * (self.df + 1.0) * math.log1p(square), 1.0 - (self.df + 1.0) * square / (1.0 + square)

    def __call__(self, theta: Array) -> float:
        own, _ = self._of(theta[0] - self.log_width - self.power * theta[1])
        return own - self._of(theta[0] - self.log_fixed)[0]

    def gradient(self, theta: Array) -> Array:
        _, own = self._of(theta[0] - self.log_width - self.power * theta[1])
        _, fixed = self._of(theta[0] - self.log_fixed)
        return np.array([own - fixed, -self.power * own])

    def density(self, names: tuple[str, str]) -> LogDensity:
        """Of the global scale and the learned one, by these names."""
        return LogDensity(self, self.gradient, names=names)


class _Scales(NamedTuple):
    """The scales behind some coefficients, by their roles; `family` is the variable behind the family's scale."""

    overall: Any
    local: Any
    slab: Any
    family: Any


def shrunk_of(
    probe: Probe, variable: Any, standardised: bool, beside: list[Any], behind: Callable[[Any], list[Any]], family: Any
) -> Shrunk | None:
    """Read coefficients with a horseshoe; None if the variable's entries are nothing of the kind.

    Parameters
    ----------
    probe : Probe
    variable : variable
    standardised : bool
        Whether its own prior depends on no other variable, and what it adds to coefficients on those `beside` it.
    beside : list of variables
    behind : callable
        The free variables that a node depends on.
    family : variable or None
        The one that the scale of the family depends on.
    """
    places, given = probe.places[probe.model.rvs_to_values[variable]], parameters(variable)
    if law(variable) != "Normal" or len(places) < 2:
        return None
    scales = _scales(probe, beside if standardised else behind(given[-1]), len(places), family)
    if scales is None:
        return None
    if standardised:
        if not is_standard(variable, np.shape(probe.graphs.starts[probe.model.rvs_to_values[variable]])):
            return None
    else:
        mean = numbers(given[0])
        if mean is None or np.any(mean):
            return None
    grouped = groups_of(probe, places[:, None])
    if grouped is None or len(np.unique(grouped[0][grouped[0] >= 0])) < len(places):
        return None
    seen = np.flatnonzero(grouped[0] >= 0)
    return _read(probe, places, standardised, scales, seen, grouped[0][seen], given[-1])


def _scales(probe: Probe, among: list[Any], p: int, family: Any) -> _Scales | None:
    sizes = {v: len(probe.places[probe.model.rvs_to_values[v]]) for v in among}
    known = [v for v in among if v is family]
    local = [v for v in among if sizes[v] == p and law(v) in _HALF and v is not family]
    overall = [v for v in among if sizes[v] == 1 and law(v) in _HALF and v is not family]
    slab = [v for v in among if sizes[v] == 1 and law(v) == "InvGamma" and v is not family]
    if len(local) != 1 or len(overall) != 1 or len(slab) > 1 or len(among) != 2 + len(slab) + len(known):
        return None
    return _Scales(overall[0], local[0], slab[0] if slab else None, family)


def _read(
    probe: Probe, places: Places, standardised: bool, scales: _Scales, seen: Places, entry: Places, node: Any
) -> Shrunk | None:
    """The scales as functions of the variables behind them, from how far coefficients move; None if they are others."""
    place = {v: probe.places[probe.model.rvs_to_values[v]] for v in scales if v is not None}
    overall, local = int(place[scales.overall][0]), place[scales.local]
    slab = -1 if scales.slab is None else int(place[scales.slab][0])
    spread_at = _moves(probe, places, seen) if standardised else _deviations(probe, node, len(places), entry)
    base = probe.points[0]

    def spread(**at: Any) -> Array:
        theta = base.copy()
        theta[overall] = at.get("overall", base[overall])
        if slab >= 0:
            theta[slab] = at.get("slab", base[slab])
        if scales.family is not None:
            theta[place[scales.family]] = at.get("family", base[place[scales.family]])
        return spread_at(theta)

    with np.errstate(all="ignore"):
        log_k = np.log(np.abs(spread(overall=-_FAR, family=0.0))) + _FAR - base[local][entry]
        by_scale = float((np.log(np.abs(spread(overall=-_FAR, family=1.0) / spread(overall=-_FAR, family=0.0))))[0])
        log_c = np.log(np.abs(spread(overall=_FAR, slab=0.3, family=0.0))) - (0.15 if slab >= 0 else 0.0)
        farther = np.log(np.abs(spread(overall=_FAR + 1.0, slab=0.3, family=0.0)))
        if slab < 0 and not (np.abs(farther - log_c) < _SAME).all():  # no slab ends the growth
            log_c = np.full(len(seen), math.inf)
    signs = np.sign(spread())
    first = np.flatnonzero(entry == 0)[0]
    slopes = signs * np.exp(log_k - log_k[first]) * signs[first]
    slopes[np.abs(slopes - 1.0) < 1e-9] = 1.0
    if not np.isfinite(log_k).all() or (not standardised and (slopes != 1.0).any()):
        return None
    by_scale = _round(by_scale)
    width = _width(probe, scales)
    unit = numbers(parameters(scales.local)[-1])
    if width is None or unit is None or np.unique(unit).size != 1:
        return None
    df, log_width, power = width
    log_unit = math.log(float(np.ravel(unit)[0]))
    log_factor, log_slab = float(log_k[first]) + log_unit, float(log_c[first])
    own = Shrunk(places, standardised, Horseshoe(global_scale=1.0), log_factor, by_scale, power + by_scale, overall,
                 local, log_unit, slab, log_slab, np.zeros(len(places)), (seen, entry, slopes * signs[first]))
    log_family = (lambda theta: np.asarray(theta[place[scales.family][0]])) if scales.family is not None else (
        lambda theta: np.zeros(()))
    for theta in _random_points(base, np.concatenate([*place.values()])):
        read = own.widths(own.hyper_of(theta, log_family(theta)))[entry] * own.slopes[2]
        if not (np.abs(spread_at(theta) - read) <= _SAME * np.abs(read)).all():
            return None
    local_df, slab_df, slab_scale = _df(scales.local), math.inf, math.exp(log_slab)
    if scales.slab is not None:
        of_slab = [found for found in map(numbers, parameters(scales.slab)) if found is not None]
        if len(of_slab) < 2:
            return None
        a, b = (float(np.ravel(found)[0]) for found in of_slab)
        slab_df, slab_scale = 2.0 * a, slab_scale * math.sqrt(b / a)
    if local_df is None:
        return None
    prior = Horseshoe(global_scale=math.exp(log_factor + log_width), global_df=df, local_df=local_df, slab_df=slab_df,
                      slab_scale=slab_scale)
    return own._replace(prior=prior, spread=own.widths(own.hyper_of(base, log_family(base))))


def _moves(probe: Probe, places: Places, seen: Places) -> Callable[[Array], Array]:
    """How far coefficients move with their entries, as a function of theta."""
    def moves(theta: Array) -> Array:
        there = theta.copy()
        there[places] = 1.0
        return np.asarray((probe.seen(there) - probe.seen(theta))[seen])

    return moves


def _deviations(probe: Probe, node: Any, p: int, entry: Places) -> Callable[[Array], Array]:
    """Standard deviations of a normal density, as a function of theta."""
    function = probe.numbers([node])
    return lambda theta: np.broadcast_to(np.ravel(np.asarray(function(theta)[0], dtype=np.float64)), (p,))[entry]


def _random_points(base: Array, places: Places) -> list[Array]:
    """Points that differ in some places, by as much as slabs and local scales need to show."""
    out = []
    for child in np.random.SeedSequence(27).spawn(4):
        theta = base.copy()
        theta[places] = np.random.default_rng(child).normal(scale=1.5, size=len(places))
        out.append(theta)
    return out


def _round(power: float) -> float:
    return round(power) if abs(power - round(power)) < _SAME else power


def _df(variable: Any) -> float | None:
    """Degrees of freedom of a half-Student density; None if they are learned, or not one number."""
    if law(variable) == "HalfCauchy":
        return 1.0
    found = numbers(parameters(variable)[0])
    return float(np.ravel(found)[0]) if found is not None and np.unique(found).size == 1 else None


def _width(probe: Probe, scales: _Scales) -> tuple[float, float, float] | None:
    """Degrees of freedom of the global scale, log of its prior's scale, and the power of the family's scale in that."""
    node, df = parameters(scales.overall)[-1], _df(scales.overall)
    if df is None:
        return None
    found = numbers(node)
    if found is not None:
        return df, math.log(float(np.ravel(found)[0])), 0.0
    function, base = probe.numbers([node]), probe.points
    if scales.family is None:
        value = [float(np.ravel(function(point)[0])[0]) for point in base]
        return (df, math.log(value[0]), 0.0) if value[0] == value[1] > 0.0 else None
    place = probe.places[probe.model.rvs_to_values[scales.family]]
    logs = []
    for theta, at in zip((base[0], base[0], base[1]), (0.0, 1.0, -1.0), strict=True):
        theta = theta.copy()
        theta[place] = at
        with np.errstate(all="ignore"):
            logs.append(float(np.log(np.ravel(function(theta)[0])[0])))
    power = logs[1] - logs[0]
    right = math.isfinite(power) and abs(logs[2] - logs[0] + power) < _SAME * (1.0 + abs(power))
    return (df, logs[0], _round(power)) if right else None
