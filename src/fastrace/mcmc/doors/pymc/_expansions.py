"""Second-order expansions of PyMC models, and the normal densities that follow them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base._blas import one_blas_thread
from fastrace._base._progress import patient
from fastrace.mcmc.models._modes import NoModeError, ascent, find_mode, normal_density
from fastrace.mcmc.models._row_bounds import weights_of
from fastrace.mcmc.models.base import LogPrior, Model, Reference

__all__ = ["ExpandedReference", "Expansion", "Expansions", "JointReference", "hat_of"]

Expansion = tuple[float, NDArray[np.float64], NDArray[np.float64]]  # value, gradient, Hessian

FEW_ROWS = 20_000  # of which a pass costs little
_CHUNK = 8192  # rows that are differentiated at once, and fewer where each is in many directions:
_AT_ONCE, _MOST = 100_000, 64  # rows times directions, and directions, of which there are at most so many at once
_PILOT = 16384  # rows of the first search for the mode
_MOST_CHORDS, _ARRIVED = 20, 1e-10  # steps of the second; squared gradient per standard deviation at which they end
_CALLS = 600  # of PyTensor in a search for other modes, at most
_FEW = 8  # parameters, up to which there is one


class Expansions(Model):
    """How a `PyMCModel` expands its terms and its prior; what it asks of the model is listed first."""

    pymc_model: Any
    others: dict[str, NDArray[Any]]
    around: NDArray[np.float64]
    progress: bool
    _graphs: Any
    _glm: Any
    _seen_glm: Any
    _normal: bool
    _finds_bounds: bool
    _derivable: bool
    _beside: list[Any]
    _read: int
    _show: Any
    _asked: int
    _tell: Any

    def pack(self, point: Mapping[str, Any]) -> NDArray[np.float64]:
        raise NotImplementedError

    def rest(self, theta: NDArray[np.float64]) -> float:
        raise NotImplementedError

    def _whole(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        raise NotImplementedError

    def _fixed_values(self) -> list[NDArray[Any]]:
        raise NotImplementedError

    def _rest_expanded(self, at: NDArray[np.float64]) -> Expansion:
        """All of the log-density that is no term, with its gradient and Hessian in all continuous variables."""
        return self._graphs.expansion("rest_expansion", at, *self._fixed_values())

    def _expand(
        self, at: NDArray[np.float64], rows: NDArray[np.int64] | None = None, rest: Expansion | None = None
    ) -> Expansion:
        """Log-posterior and its derivatives; from some rows, as many times as there are more of them.

        `rest` is the part that is no term, if it is known.
        """
        value, gradient, hessian = self._rest_expanded(at) if rest is None else rest
        part = self._expand_terms(at, rows)
        scale = 1.0 if rows is None else self.n_rows / len(rows)
        # Not in place: the rest's is kept.
        return value + part[0] * scale, gradient + part[1] * scale, hessian + part[2] * scale

    def _expand_terms(self, at: NDArray[np.float64], rows: NDArray[np.int64] | None) -> Expansion:
        """Sums of the terms of all rows, or of some, with gradient and Hessian in the parameters.

        Where the terms are functions of linear predictors the passes over the rows give derivatives in these, and
        derivatives of what the rows see by the parameters bring them to the parameters, without a row. Elsewhere each
        row is differentiated along each parameter.
        """
        if self._glm is not None and rows is None:
            return self._glm._expand(at)
        n = self.n_rows if rows is None else len(rows)
        parts: Iterator[Expansion]
        if self._graphs.design is None:
            spans = _spans(n, len(at))
            parts = (self._graphs.expansion("expansion", at, np.arange(*span) if rows is None else rows[slice(*span)],
                                            *self._fixed_values()) for span in spans)
            return self._summed(parts, spans)
        if rows is None or self._seen_glm is not None:
            seen = self._graphs.call("seen", at, *self._fixed_values())
            whole = self._expand_seen(seen) if rows is None else self._seen_glm._expand_some(seen, rows)
            return self._graphs.pulled(at, whole, *self._fixed_values())
        spans = _spans(n)
        parts = (self._graphs.slopes(at, rows[slice(*span)], *self._fixed_values()) for span in spans)
        return self._graphs.pulled(at, self._summed(parts, spans), *self._fixed_values())

    def _expand_seen(self, seen: NDArray[np.float64]) -> Expansion:
        """Sums of all terms, with gradient and Hessian, at a point of what the rows see.

        Up to a constant where compiled code makes them.
        """
        if self._seen_glm is not None:
            whole: Expansion = self._seen_glm._expand(seen)
            self._read += self.n_rows
            self._show(self._read)
            return whole
        if self._graphs.design is None:
            spans = _spans(self.n_rows, len(seen))
            return self._summed((self._graphs.expansion("seen_expansion", seen, np.arange(*span), *self._fixed_values())
                                 for span in spans), spans)
        spans = _spans(self.n_rows)
        parts = (self._graphs.slopes_seen(seen, slice(*span), *self._fixed_values()) for span in spans)
        return self._summed(parts, spans)

    def _summed(self, parts: Iterator[Expansion], spans: list[tuple[int, int]]) -> Expansion:
        total: Any = (0.0, 0.0, 0.0)
        for (first, last), part in zip(spans, parts, strict=True):
            total = tuple(a + b for a, b in zip(total, part, strict=True))
            self._read += last - first
            self._show(self._read)
        return total[0], total[1], total[2]

    @property
    def _concave(self) -> bool:  # type: ignore[override]
        """Whether the posterior has one mode at most, or is not searched for others: with other variables beside it."""
        return bool(self.others) or (self._glm is not None and self._glm._concave and self._normal)

    @property
    def _most_expansions(self) -> int:  # type: ignore[override]
        """Fewer than other models': PyTensor makes each, along each parameter."""
        return min(super()._most_expansions, _CALLS // (2 * self.dim))

    def _some_log_posterior(self, at: NDArray[np.float64], rows: NDArray[np.int64]) -> Expansion | None:
        """Estimated from some rows; of a model with so many parameters that a search for modes takes long, None."""
        return self._expand(at, rows) if self.dim <= _FEW else None

    @one_blas_thread()
    def reference(self, theta_hat: ArrayLike | Mapping[str, Any] | None = None) -> Reference:
        """Expand the log-posterior at a point, an array or a point of PyMC, by default at its mode.

        With other continuous variables the expansion is in all of them, and the normal density is the conditional one.
        """
        if not self._derivable:
            return super().reference()
        with self._shown():
            return self._reference(theta_hat)

    def _seen_of(self, points: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
        """The form of the model that expands the log-likelihood, and what its rows see at points of shape (k, dim).

        None in its place where the terms have no derivatives.
        """
        form: Any = self._surrogate_form()
        if form is self:
            return None, points
        if hasattr(form, "seen"):
            return form, np.array([form.seen(theta) for theta in points])
        return form, np.ascontiguousarray(form.unconstrain(points)[:, : form.n_seen])

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        """Show how many rows are differentiated meanwhile."""
        with patient("rows differentiated", self.progress) as self._show:
            try:
                yield
            finally:
                self._read, self._show = 0, int

    def _reference(self, theta_hat: ArrayLike | Mapping[str, Any] | None) -> Reference:
        known: Expansion | None = None
        if theta_hat is None:
            hat, known = self._mode()
        elif isinstance(theta_hat, Mapping):
            hat = self.pack(theta_hat)
            parts = [np.ravel(np.asarray(theta_hat.get(v.name, self.others[v.name]))) for v in self._beside]
            hat = np.concatenate([hat, *parts])
        else:
            hat = np.array(theta_hat, dtype=np.float64)
            if hat.shape != (self.dim,):
                raise ValueError(f"theta_hat has shape {hat.shape}; ({self.dim},) is needed")
            hat = self._whole(hat)
        rest = self._rest_expanded(hat)
        _, gradient, hessian = known or self._expand(hat, rest=rest)
        center, factor = normal_density(hat, gradient, hessian, self._moved, False)
        d = self.dim
        if len(hat) == d:
            weights, radius, rounding, *shells = self._bounds(hat, factor)
            return ExpandedReference(hat, center, factor, weights, radius, rest, rounding=rounding,
                                     shells=tuple(shells))
        own = np.linalg.inv(-hessian[:d, :d])
        gain = own @ hessian[:d, d:]
        factor = np.asarray(np.linalg.cholesky((own + own.T) / 2.0), dtype=np.float64)
        at = center[:d] + gain @ (self.around - center[d:])
        return JointReference(hat[:d], at, factor, None, math.inf, rest, hat, center, gain)

    def _bounds(self, hat: NDArray[np.float64], factor: NDArray[np.float64]) -> tuple[Any, ...]:
        if self._glm is not None:
            return self._glm._bounds(hat, factor)
        if not self._finds_bounds:
            return None, math.inf, 0.0
        weights, radius, *shells = weights_of(self._graphs.in_jax(), hat, factor, self.n_rows)
        return weights, radius, self._rounding(hat), *shells

    def _mode(self) -> tuple[NDArray[np.float64], Expansion | None]:
        """Of the log-posterior: from the initial point over some rows, from there over all; with the expansion there.

        None in its place where the last point at which all rows were expanded is another one.
        """
        at = self._whole(self.pack(self.pymc_model.initial_point()))
        if self.n_rows > 2 * _PILOT:
            some = np.sort(np.random.default_rng(0).permutation(self.n_rows)[:_PILOT]).astype(np.int64)
            with contextlib.suppress(NoModeError):  # it is all rows that must have one
                at = find_mode(lambda x: self._expand(x, some), at)
                if self._graphs.design is None and self._glm is None:
                    at = self._nearer(at, self._expand(at, some)[2])
        last: list[Any] = [at, None]

        def expand(x: NDArray[np.float64]) -> Expansion:
            last[:] = x, self._expand(x)
            return last[1]

        mode = find_mode(expand, at)
        return mode, last[1] if np.array_equal(last[0], mode) else None

    def _nearer(self, at: NDArray[np.float64], hessian: NDArray[np.float64]) -> NDArray[np.float64]:
        """A point nearer the mode over all rows, by steps with a Hessian that is about right: each takes a gradient.

        A Hessian over all rows takes as many passes as there are parameters. It is for `find_mode` to say whether this
        is a mode.
        """
        with np.errstate(all="ignore"):
            value, gradient = self._sloped(at)
            promised = math.inf
            for _ in range(_MOST_CHORDS):
                step = ascent(hessian, gradient)
                promised, before = float(gradient @ step), promised
                if not _ARRIVED < promised < 0.5 * before:
                    break
                there, slope = self._sloped(at + step)
                if not (there > value and np.isfinite(slope).all()):
                    break
                at, value, gradient = at + step, there, slope
        return at

    def _sloped(self, at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """The log-posterior and its gradient, where PyTensor differentiates each row."""
        value, gradient, _ = self._rest_expanded(at)
        for first, last in _spans(self.n_rows):
            part = self._graphs.call("slope", at, np.arange(first, last), *self._fixed_values())
            value, gradient = value + float(part[0]), gradient + part[1]
            self._read += last - first
            self._show(self._read)
        return value, gradient

    def log_prior_beside(self, reference: Reference | None) -> LogPrior | None:
        hat = hat_of(reference)
        if hat is None:
            return self.log_prior
        if self._normal:
            return None
        if isinstance(reference, ExpandedReference):
            return partial(self._rest_left, hat, reference.rest)
        if self.others:
            raise ValueError(
                f"the reference does not say how it expands the prior, which may depend on {', '.join(self.others)}; "
                f"one that this model's reference() made is needed"
            )
        return partial(self._rest_left, hat, self._rest_expanded(hat))

    def _rest_left(self, hat: NDArray[np.float64], expansion: Expansion, theta: NDArray[np.float64]) -> float:
        """What its second-order expansion leaves of the log prior."""
        value, gradient, hessian = expansion
        step = self._whole(theta) - hat
        return self.rest(theta) - value - float(gradient @ step + 0.5 * (step @ hessian @ step))


@dataclass(frozen=True, eq=False)
class ExpandedReference(Reference):
    """A normal density with the expansion of the prior that went into it.

    Attributes
    ----------
    rest : tuple of float, ndarray, ndarray
        Value, gradient and Hessian at the point of expansion of all that is not a term, in all continuous variables,
        with the discrete ones as they were then. What the expansion leaves must be taken from the same one for as long
        as the density is used, wherever the discrete variables go.
    """

    rest: Expansion


@dataclass(frozen=True, eq=False)
class JointReference(ExpandedReference):
    """A normal density that follows the conditional posterior of some variables given the other continuous ones.

    Attributes
    ----------
    whole_hat, whole_center : ndarray of shape (dim + n_others,)
        Point of expansion and mean, in all continuous variables.
    gain : ndarray of shape (dim, n_others)
        How far the conditional mean moves with the others.
    """

    whole_hat: NDArray[np.float64]
    whole_center: NDArray[np.float64]
    gain: NDArray[np.float64]

    def center_at(self, others: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean of the conditional density."""
        d = len(self.center)
        return np.asarray(self.whole_center[:d] + self.gain @ (others - self.whole_center[d:]))


def _spans(n: int, directions: int = 1) -> list[tuple[int, int]]:
    """Rows that are differentiated at once."""
    chunk = min(_CHUNK, _AT_ONCE // min(directions, _MOST))
    return [(first, min(first + chunk, n)) for first in range(0, n, chunk)]


def hat_of(reference: Reference | None) -> NDArray[np.float64] | None:
    """Where a reference expands, other variables included."""
    if reference is None:
        return None
    return np.array(reference.whole_hat if isinstance(reference, JointReference) else reference.theta_hat)
