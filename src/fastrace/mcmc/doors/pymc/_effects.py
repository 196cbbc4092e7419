"""Effects of groups in a PyMC model: which entry of a variable is whose effect, and what spreads it; needs PyMC.

Graphs of one model are written in many ways: ``b[g, 0]`` of a centred `MvNormal`, ``(chol @ z).T[g, 1]``,
``mu[:, None] + sd[:, None] * z``. So they are not read, but asked for numbers: what the rows see at points where all
effects are 0 but for some, from which it is plain which group each number belongs to, and by which row of the root of
the covariance it is spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace.mcmc.doors.pymc._cuts import law
from fastrace.mcmc.doors.pymc._graphs import RowGraphs
from fastrace.mcmc.doors.pymc._laws import (
    CORRELATIONS,
    COVARIANCE,
    OtherModelError,
    is_standard,
    listed,
    locations,
    only_number,
    parameters,
    scales,
)
from fastrace.mcmc.models.priors import Scale

__all__ = ["MOST_ASKED", "Effects", "Probe", "Spread", "effects_of"]

Array = NDArray[np.float64]
Places = NDArray[np.intp]

MOST_ASKED = 200  # entries of variables that coefficients or means of effects are functions of
_MOST_TERMS = 16  # effects of a group
_SAME = 1e-8  # relative difference of two roots of one covariance: rounding


class Spread(NamedTuple):
    """The standard deviation of one effect: its prior, its place in theta as a logarithm, its row of the root.

    The place is -1 where a variable of whole covariances holds it.
    """

    variable: Any
    entry: int
    prior: Scale
    place: int
    row: Array


class Effects(NamedTuple):
    """A variable whose entries are effects of groups.

    Attributes
    ----------
    variable : variable
    standardised : bool
        Whether its entries are in units of the root of their covariance.
    places : ndarray of shape (n_groups, n_terms)
        Of the entries in theta.
    spreads : list of Spread
        One for each term.
    correlation : variable or None
        That holds the correlations of the terms, and `eta` of its LKJ prior.
    constants : ndarray of shape (n_groups, n_terms)
        The mean of effects that are not standardised: a constant, and
    columns, slopes : ndarray of shape (k,), of shape (n_groups, n_terms, k)
        variables in these places in theta times these.
    rows : ndarray of shape (n_coefficients, n_terms)
        What coefficients that the rows see multiply the entries of a group by.
    group, term : ndarray of shape (n_coefficients,)
        Whose effect each of them is; -1 for none of these.
    """

    variable: Any
    standardised: bool
    places: Places
    spreads: list[Spread]
    correlation: Any
    eta: float
    constants: Array
    columns: Places
    slopes: Array
    rows: Array
    group: Places
    term: Places

    def added(self, theta: Array) -> Array:
        """What they add to the coefficients that rows see."""
        return np.where(self.group >= 0, (self.rows * theta[self.places[self.group]]).sum(axis=1), 0.0)


class Probe:
    """Numbers of nodes at points of theta.

    Parameters
    ----------
    graphs : RowGraphs
    values : list of value variables
        What theta is made of.
    movable : set of value variables
        Coefficients and effects, which are 0 at `points`; the others have random values there.

    Attributes
    ----------
    places : dict
        Of each value variable's entries in theta, raveled.
    points : list of ndarray
        Two of them.
    coefficients : list of variables
        Of linear predictors, and scalars that a reader adds, before it asks for any.
    """

    def __init__(self, graphs: RowGraphs, values: list[Any], movable: set[Any]) -> None:
        self.graphs, self.model, self.movable = graphs, graphs.model, movable
        ends = np.cumsum([0, *graphs.sizes])
        self.places = {v: np.arange(first, last) for v, first, last in zip(values, ends[:-1], ends[1:], strict=True)}
        self.points = []
        for child in np.random.SeedSequence(23).spawn(2):
            point = np.random.default_rng(child).uniform(0.1, 0.9, graphs.dim)
            for value in movable:
                point[self.places[value]] = 0.0
            self.points.append(point)
        self.coefficients = list(graphs.predictors.coefficients)
        self._seen: Any = None

    def seen(self, theta: Array) -> Array:
        """The coefficients that rows see."""
        if self._seen is None:
            self._seen = self.graphs.quick([c.ravel() for c in self.coefficients])
        with np.errstate(all="ignore"):
            return np.concatenate([np.asarray(part, dtype=np.float64) for part in self._seen(theta)])

    def moved(self, places: Any, by: Any = 1.0, k: int = 0) -> Array:
        """How far they are from those at point `k` if theta is `by` in some places."""
        theta = self.points[k].copy()
        theta[places] = by
        return self.seen(theta) - self.seen(self.points[k])

    def numbers(self, nodes: Sequence[Any]) -> Any:
        """A function of theta that gives what nodes of random variables are."""
        return self.graphs.quick(self.model.replace_rvs_by_values(list(nodes)))


def effects_of(
    probe: Probe, variable: Any, standardised: bool, beside: list[Any], behind: Callable[[Any], list[Any]]
) -> Effects:
    """Read the effects that a variable holds.

    Parameters
    ----------
    probe : Probe
    variable : variable
    standardised : bool
        Whether its own prior depends on no other variable, and what it adds to coefficients on those `beside` it.
    beside : list of variables
    behind : callable
        The free variables that a node depends on.
    """
    value, name = probe.model.rvs_to_values[variable], variable.name
    shape, places = np.shape(probe.graphs.starts[value]), probe.places[value]
    kind, given = law(variable), parameters(variable)
    if kind != "Normal" and (standardised or kind != "MvNormal"):
        raise OtherModelError(f"the effects {name!r} are {kind}; normal ones are needed")
    if standardised and not is_standard(variable, shape):
        raise OtherModelError(f"the effects {name!r} are scaled by {listed(beside)}, and their own mean and standard "
                              f"deviation are not 0 and 1")
    scaling = beside if standardised else behind(given[-1])
    if not scaling:
        raise OtherModelError(f"the standard deviation of the effects {name!r} depends on none; a variable is needed")
    for entries, root in _layouts(probe, shape, None if standardised else given[-1], kind == "MvNormal"):
        found = groups_of(probe, places[entries])
        possible, correlation, eta = spreads_of(probe, scaling, entries.shape[1])
        if found is None or not possible:
            continue
        group, rows = found
        pairs = matched(rows[group >= 0] if root is None else root, possible)
        spreads = None if pairs is None else _by_term(pairs, entries.shape[1])
        if pairs is None or spreads is None:
            continue
        if len({(s.variable, s.entry) for s in spreads}) < len(spreads):
            raise OtherModelError(f"the {len(spreads)} effects of each group in {name!r} share a standard deviation, "
                                  f"{listed(scaling)}; one for each is needed")
        term = np.full(len(group), -1, dtype=np.intp)
        term[group >= 0] = [k for k, _ in pairs] if root is None else rows[group >= 0].argmax(axis=1)
        mean = (np.zeros(shape), np.empty(0, dtype=np.intp), np.zeros((*shape, 0)))
        if not standardised:
            mean = _mean(probe, variable, shape, behind)
        constants, columns, slopes = mean
        return Effects(variable, standardised, places[entries], spreads, correlation, eta, constants.ravel()[entries],
                       columns, slopes.reshape(len(places), len(columns))[entries], rows, group, term)
    raise OtherModelError(f"the effects {name!r} are spread by {listed(scaling)}, and not as standard deviations or "
                          f"the root of a covariance spread them: sd * z, chol @ z with z of shape (n_effects, "
                          f"n_groups), or MvNormal(mu, chol=chol, shape=(n_groups, n_effects)) is needed")


def _layouts(
    probe: Probe, shape: tuple[int, ...], spread: Any, joint: bool
) -> Iterator[tuple[Places, Any]]:
    """Ways in which a variable of this shape may hold effects: which entries are those of a group, (n_groups, n_terms).

    With them the root of their covariance, if `spread` is their standard deviation, or a covariance where they are
    `joint`.
    """
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    ways = [numbers.reshape(-1, 1), *([numbers, numbers.T] if len(shape) == 2 else [])]
    ways = [entries for entries in ways if 0 < entries.shape[1] <= _MOST_TERMS]
    if spread is None:
        yield from ((entries, None) for entries in ways)
        return
    found = np.asarray(probe.numbers([spread])(probe.points[0])[0])
    if joint:
        if len(shape) == 2 and found.size == shape[1] ** 2:
            yield numbers, np.linalg.cholesky(found.reshape(shape[1], shape[1]))
        return
    for entries in ways:
        sds = np.broadcast_to(found, shape).ravel()[entries]
        if (sds == sds[0]).all():
            yield entries, np.diag(sds[0])


def _by_term(pairs: Sequence[tuple[int, Spread]], n_terms: int) -> list[Spread] | None:
    """The one spread of each term; None if there is another number of them."""
    found: dict[int, Spread] = {}
    for k, spread in pairs:
        known = found.setdefault(k, spread)
        if (known.variable, known.entry) != (spread.variable, spread.entry):
            return None
    return [found[k] for k in range(n_terms)] if len(found) == n_terms else None


def _mean(
    probe: Probe, variable: Any, shape: tuple[int, ...], behind: Callable[[Any], list[Any]]
) -> tuple[Array, Places, Array]:
    """The mean of effects: a constant, and what it adds of variables in these places, shape (*shape, k)."""
    node, name = parameters(variable)[0], variable.name
    function = probe.numbers([node])

    def at(theta: Array) -> Array:
        return np.array(np.broadcast_to(function(theta)[0], shape), dtype=np.float64)

    variables = behind(node)
    values = [probe.model.rvs_to_values[v] for v in variables]
    some = [value for v, value in zip(variables, values, strict=True)
            if value in probe.movable and locations(v, np.shape(probe.graphs.starts[value])) is not None]
    columns = np.concatenate([np.empty(0, np.intp), *(probe.places[v] for v in some)]).astype(np.intp)
    if len(columns) > MOST_ASKED:
        raise OtherModelError(f"the mean of the effects {name!r} depends on {len(columns)} numbers; at most "
                              f"{MOST_ASKED} can be told apart")
    constants, slopes = at(probe.points[0]), np.zeros((*shape, len(columns)))
    for k, place in enumerate(columns):
        theta = probe.points[0].copy()
        theta[place] = 1.0
        slopes[..., k] = at(theta) - constants
    theta, rng = probe.points[1].copy(), np.random.default_rng(26)
    for value in values:
        theta[probe.places[value]] = rng.uniform(0.1, 0.9, len(probe.places[value]))
    read = constants + slopes @ theta[columns]
    if (np.abs(at(theta) - read) > 1e-9 * (1.0 + np.abs(read))).any():
        raise OtherModelError(f"the mean of the effects {name!r} depends on {listed(variables)}, and not by sums and "
                              f"multiples of coefficients alone: write effects of larger groups as summands of the "
                              f"predictor, with a standard deviation of their own")
    return constants, columns, slopes


def groups_of(probe: Probe, places: Places) -> tuple[Places, Array] | None:
    """The group that each coefficient belongs to, -1 for none, and what it multiplies the entries of that group by.

    Entries of a group stand in a row of `places`, of shape (n_groups, n_terms). None if a coefficient is no sum over
    one group.
    """
    numbers = 1.0 + np.arange(len(places))
    group, rows = np.full(len(probe.seen(probe.points[0])), -1, dtype=np.intp), []
    for k in range(places.shape[1]):
        alike, apart = probe.moved(places[:, k]), probe.moved(places[:, k], numbers)
        felt = (alike != 0.0) | (apart != 0.0)
        with np.errstate(all="ignore"):
            ratio = apart[felt] / alike[felt]
        found = np.rint(ratio)
        good = np.isfinite(ratio) & (np.abs(ratio - found) < 1e-6) & (found >= 1.0) & (found <= len(places))
        if not (good & ((group[felt] < 0) | (group[felt] == found - 1.0))).all():
            return None
        group[felt] = found.astype(np.intp) - 1
        rows.append(alike)
    return group, np.stack(rows, axis=1)


def spreads_of(probe: Probe, behind: Sequence[Any], n_terms: int) -> tuple[list[tuple[int, Spread]], Any, float]:
    """What the standard deviations of so many terms may be, given the variables behind them.

    Pairs of a term and a `Spread`, the variable of correlations if there is one, and its eta.
    """
    theta, whole = probe.points[0], [v for v in behind if law(v) == COVARIANCE]
    related = [v for v in behind if law(v) == CORRELATIONS]
    if len(whole) + len(related) > 1 or (whole and len(behind) > 1):
        raise OtherModelError(f"the covariance of effects depends on {listed(behind)}; one pm.LKJCholeskyCov, or one "
                              f"pm.LKJCorr with standard deviations, is needed")
    unit: Array = np.eye(n_terms)
    eta = 1.0
    for variable in whole or related:
        size, eta = (only_number(p, f"a parameter of {variable.name!r}") for p in parameters(variable)[:2])
        if size != n_terms:
            return [], None, 1.0
        value = np.asarray(probe.numbers([variable])(theta)[0])
        if whole:
            lower = np.zeros((n_terms, n_terms))
            lower[np.tril_indices(n_terms)] = value
            priors = scales(parameters(variable)[2], n_terms, variable.name)
            return [(k, Spread(variable, k, priors[k], -1, lower[k])) for k in range(n_terms)], variable, eta
        matrix = np.eye(n_terms)
        matrix[np.triu_indices(n_terms, 1)] = matrix.T[np.triu_indices(n_terms, 1)] = value
        unit = np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    out: list[tuple[int, Spread]] = []
    for variable in behind:
        if variable in related:
            continue
        places = probe.places[probe.model.rvs_to_values[variable]]
        values = np.asarray(probe.numbers([variable])(theta)[0]).ravel()
        priors = scales(variable, values.size)
        out += [(k, Spread(variable, j, priors[j], int(places[j]), sd * unit[k]))
                for j, sd in enumerate(values) for k in range(n_terms)]
    return out, (related or [None])[0], eta


def matched(rows: Array, possible: Sequence[tuple[int, Spread]]) -> list[tuple[int, Spread]] | None:
    """The pair that each row of a root is of; None if one of them is of none."""
    known = np.stack([spread.row for _, spread in possible])
    apart = np.abs(rows[:, None] - known).max(axis=2)
    nearest = apart.argmin(axis=1)
    if (apart[np.arange(len(rows)), nearest] > _SAME * np.abs(rows).max(axis=1)).any():
        return None
    return [possible[k] for k in nearest]
