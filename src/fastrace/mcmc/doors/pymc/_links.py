"""The predictor of a `GLM` as a sum of what the rows of a PyMC model see, by the link function; needs PyMC.

People write one mean in many ways: ``t * exp(eta)``, ``exp(a) * exp(b * x)``, a rate of ``exp(eta) / t``. So the
parameters of the distribution are not read, but evaluated at random points, where the link function of the family
takes them to the predictor. That must be a constant of each row, plus multiples of linear predictors and scalars of the
graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Exp, Expm1

from fastrace._base._words import counted
from fastrace.mcmc.doors.pymc._cuts import law
from fastrace.mcmc.doors.pymc._predictors import Blocks

__all__ = ["Sum", "outer_exponential", "predictor_in"]

Array = NDArray[np.float64]

_ASKED = 400  # rows whose predictors say which multiples of what they see these are
_REACHES = 0.3, 0.03, 3e-3  # how far points move parameters: less, where a predictor is too large for its digits
_MOST = 25.0
_EXACT = 1e-9  # what is rounding, relative to 1 plus the size of a predictor
_NOTHING = 1e-12  # an offset of rounding alone
_FRACTION = 12.0  # multiples are looked for among those of 1 over this


class Sum(NamedTuple):
    """A predictor: ``offset + sum of slopes * linear predictors + sum of weights * scalars`` of a graph.

    Attributes
    ----------
    offset : ndarray of shape (n_rows,) or None
    slopes, weights : ndarray
        One for each linear predictor, and for each scalar.
    """

    offset: Array | None
    slopes: Array
    weights: Array

    @property
    def used(self) -> list[int]:
        """Numbers of the scalars that are in it."""
        return np.flatnonzero(self.weights).tolist()

    def block(self, design: Any) -> Blocks:
        """Its numbers; the scalars in it follow the coefficients of the design."""
        n, first = design.n_rows, design.n_coefficients
        parts = [b.times(s) for b, s in zip(design.blocks, self.slopes.tolist(), strict=True) if s]
        if self.used:
            table = np.tile(self.weights[self.used], (n, 1))
            parts.append(Blocks(None, table, first + np.arange(len(self.used)), []))
        whole = Blocks.joined(parts)
        return whole if self.offset is None else whole.moved(self.offset)


def _logit(p: Array) -> Array:
    return np.asarray(np.log(p) - np.log1p(-p))


def _log_mean_of_counts(n: Array, p: Array) -> Array:
    return np.asarray(np.log(n) + np.log1p(-p) - np.log(p))


def _link(observed: Any, family: str) -> tuple[list[Any], Callable[..., Array]] | None:
    """Nodes in a distribution's parameters, and the function that makes the predictor of a family of them."""
    given, name = list(observed.owner.op.dist_params(observed.owner)), law(observed)
    if family in ("gaussian", "student-t"):
        return [given[1 if name == "StudentT" else 0]], lambda mu: mu
    if family in ("poisson", "negative-binomial", "gamma"):
        if name == "Gamma":
            return given, lambda shape, scale: np.log(shape) + np.log(scale)
        if name == "WeibullBeta":  # of the mean of y^alpha, which is exponential
            return given, lambda alpha, beta: alpha * np.log(beta)
        return (given, _log_mean_of_counts) if name == "NegBinomial" else (given[:1], lambda mean: np.log(mean))
    if family == "cloglog":
        inner = outer_exponential(given[-1])
        return None if inner is None else ([inner], lambda v: np.log(-v))
    return ([given[-1]], _logit) if family in ("logistic", "binomial") else None


def outer_exponential(p: Any) -> Any:
    """The argument of the last exponential that a probability is made by; None if there is none or several."""
    random = [v for v in ancestors([p]) if hasattr(getattr(v.owner, "op", None), "dist_params")]
    made = [u for u in ancestors([p], random) if u not in random
            and isinstance(getattr(getattr(u.owner, "op", None), "scalar_op", None), Exp | Expm1)]
    outer = [u for u in made if not any(u in set(ancestors(w.owner.inputs, random)) for w in made)]
    return outer[0].owner.inputs[0] if len(outer) == 1 else None


def predictor_in(graphs: Any, family: str) -> Sum | None:
    """The predictor of a family as a sum of what rows see of a model with one observed variable.

    None if it is none, or the family is probit, whose predictor is read where it is.

    Raises
    ------
    ValueError
        If it is not finite in some rows, wherever the parameters are.
    """
    if family not in graphs.predictors_by_link:
        link = None if graphs.design is None or graphs.cut is not None else _link(graphs.observed[0], family)
        graphs.predictors_by_link[family] = None if link is None else _found(graphs, family, *link)
    found: Sum | None = graphs.predictors_by_link[family]
    return found


def _found(graphs: Any, family: str, nodes: list[Any], make: Callable[..., Array]) -> Sum | None:
    """The same of nodes of the distribution, of which a function makes the predictor."""
    if any(v.ndim > 1 for v in nodes):
        return None  # a row is several outcomes
    ask = graphs.quick([*graphs.model.replace_rvs_by_values(nodes), *graphs.predictors.seen])
    design, n = graphs.design, graphs.n_rows
    start = np.concatenate([np.ravel(np.asarray(x, dtype=np.float64)) for x in graphs.starts.values()])
    moves = np.random.default_rng(26).uniform(-1.0, 1.0, (3 + len(design.blocks) + len(graphs.scalars), len(start)))
    some = np.unique(np.linspace(0, n - 1, min(n, _ASKED)).astype(np.intp))
    for reach in _REACHES:
        bad, largest, asked = np.zeros(n, dtype=bool), 0.0, []
        for k, move in enumerate(moves):
            with np.errstate(all="ignore"):
                eta, leaves, scalars = _numbers(ask(start + reach * move), len(nodes), make, design)
            bad |= ~np.isfinite(eta)
            largest = max(largest, float(np.abs(eta).max()))
            asked.append((eta, leaves, scalars) if k == 0 else (eta[some], leaves[:, some], scalars))
        if not bad.any() and largest < _MOST:
            break
    if bad.any():
        if family in ("poisson", "negative-binomial", "gamma"):
            raise ValueError(f"the factor beside the exponential in the mean of {graphs.observed[0].name!r} is 0, "
                             f"negative or not finite in {counted(int(bad.sum()), 'row')}; a positive one, whose "
                             f"logarithm is an offset, is needed")
        return None
    return _fitted(asked, some)


def _numbers(given: list[Any], n_nodes: int, make: Callable[..., Array], design: Any) -> tuple[Array, Array, Array]:
    """The predictor of each row, linear predictors of the graph, scalars."""
    numbers = [np.asarray(part, dtype=np.float64) for part in given]  # 2.0 in a graph has single precision
    psi = np.concatenate(numbers[n_nodes:])
    eta = np.broadcast_to(np.asarray(make(*numbers[:n_nodes])), (design.n_rows,))
    leaves = np.reshape(design.predictors(psi[: design.n_coefficients], slice(None)), (-1, design.n_rows))
    return eta, leaves, psi[design.n_coefficients :]


def _fitted(asked: list[tuple[Array, Array, Array]], rows: NDArray[np.intp]) -> Sum | None:
    """Multiples of linear predictors and scalars by which the predictor moves in some rows, and its offset in all.

    The first of what was asked has all rows, the others have these.
    """
    first, seen, scalars = asked[0]
    moved = np.concatenate([eta - first[rows] for eta, _, _ in asked[1:]])
    by = np.concatenate([np.column_stack([*(there - seen[:, rows]), *(
        np.full(len(rows), s) for s in there_scalars - scalars)]) for _, there, there_scalars in asked[1:]])
    multiples = np.linalg.lstsq(by, moved, rcond=None)[0]
    round_ones = np.round(_FRACTION * multiples) / _FRACTION
    multiples = np.where(np.abs(multiples - round_ones) < 1e-7, round_ones, multiples)
    size = 1.0 + max(float(np.abs(eta).max()) for eta, _, _ in asked)
    if not (np.abs(by @ multiples - moved) <= _EXACT * size).all() or not multiples.any():
        return None
    slopes, weights = multiples[: len(seen)], multiples[len(seen) :]
    offset = first - slopes @ seen - float(weights @ scalars)
    return Sum(offset if np.abs(offset).max() > _NOTHING * size else None, slopes, weights)
