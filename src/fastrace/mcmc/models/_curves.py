"""Derivatives of users' terms, row by row, by JAX or PyTensor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks

__all__ = ["ORDERS", "JaxTerms", "curve_of"]

Array = NDArray[np.float64]
Curve = Callable[[int, Array, Sequence[NDArray[Any]]], list[Array]]

ORDERS = 4  # derivatives that are made


def curve_of(term: Any, backend: str) -> Curve:
    """A function of (order, predictors, columns) that returns the rows' terms and their derivatives up to `order`.

    `term` is a function, or with ``backend="numpy"`` a sequence of functions, the term's and its derivatives'.
    """
    if backend == "numpy":
        def curve(order: int, eta: Array, columns: Sequence[NDArray[Any]]) -> list[Array]:
            return [_checks.floats(f(eta, *columns), "what term returned") for f in term[: order + 1]]

        return curve
    return _by_jax(term) if backend == "jax" else _by_pytensor(term)


class JaxTerms:
    """Terms of all parameters in JAX, and what their expansions leave, without a table of their derivatives."""

    def __init__(self, terms: Callable[..., Any]) -> None:
        import jax
        import jax.numpy as jnp

        def total(theta: Any, rows: Any, count: Any) -> Any:
            return jnp.where(jnp.arange(len(rows)) < count, terms(theta, rows), 0.0).sum()

        def sums(theta: Any, rows: Any, count: Any) -> Any:
            return *jax.value_and_grad(total)(theta, rows, count), jax.hessian(total)(theta, rows, count)

        def left(theta: Any, hat: Any, rows: Any) -> Any:
            """Two derivatives of each row along the step, one number each."""
            def along(t: Any) -> Any:
                return terms(hat + t * (theta - hat), rows)

            def slope(t: Any) -> Any:
                return jax.jvp(along, (t,), (1.0,))

            (value, first), (_, second) = jax.jvp(slope, (0.0,), (1.0,))
            return terms(theta, rows) - value - first - 0.5 * second

        self._terms, self._left, self._sums = jax.jit(terms), jax.jit(left), jax.jit(sums)
        self._x64 = jax.enable_x64

    def terms(self, theta: Array, rows: NDArray[np.int64]) -> Array:
        with self._x64(True):
            return np.asarray(self._terms(theta, _padded(rows)), dtype=np.float64)[: len(rows)]

    def left(self, theta: Array, hat: Array, rows: NDArray[np.int64]) -> Array:
        """What the second-order expansion at `hat` leaves of the terms of some rows."""
        with self._x64(True):
            return np.asarray(self._left(theta, hat, _padded(rows)), dtype=np.float64)[: len(rows)]

    def sums(self, theta: Array, rows: NDArray[np.int64]) -> tuple[float, Array, Array]:
        """Sum of the terms of some rows, its gradient and Hessian."""
        with self._x64(True):
            value, gradient, hessian = self._sums(theta, _padded(rows), len(rows))
            return float(value), np.asarray(gradient), np.asarray(hessian)


def _padded(rows: NDArray[Any]) -> NDArray[Any]:
    """As many rows as the next power of two, the last one repeated: JAX compiles anew for each number of them."""
    return rows[np.minimum(np.arange(1 << max(4, (len(rows) - 1).bit_length())), len(rows) - 1)]


def _by_jax(term: Callable[..., Any]) -> Curve:
    import jax

    def slope_of(function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda eta, *columns: function(eta, *columns).sum())

    functions = [term]
    for _ in range(ORDERS):
        functions.append(slope_of(functions[-1]))
    compiled = [jax.jit(lambda eta, *columns, most=most: [f(eta, *columns) for f in functions[: most + 1]])
                for most in range(ORDERS + 1)]

    def curve(order: int, eta: Array, columns: Sequence[NDArray[Any]]) -> list[Array]:
        with jax.enable_x64(True):
            out = compiled[order](_padded(eta), *map(_padded, columns))
            parts = [np.asarray(part, dtype=np.float64) for part in out]
        return [part[: len(eta)] if part.ndim else part for part in parts]      # one number is refused where it is used

    return curve


def _by_pytensor(term: Callable[..., Any]) -> Curve:
    import pytensor
    import pytensor.tensor as pt
    from pytensor.compile.mode import get_mode

    from fastrace.mcmc.models._by_numpy import by_numpy

    functions: dict[tuple[int, tuple[Any, ...]], Any] = {}
    lock = threading.Lock()

    def compiled(order: int, columns: Sequence[NDArray[Any]]) -> Any:
        key = order, tuple(column.dtype for column in columns)
        if key not in functions:
            eta = pt.dvector("eta")
            inputs = [pt.vector(f"column_{j}", dtype=str(column.dtype)) for j, column in enumerate(columns)]
            outputs = [pt.as_tensor(term(eta, *inputs)).astype("float64")]
            for _ in range(order):
                outputs.append(pytensor.gradient.grad(outputs[-1].sum(), eta, disconnected_inputs="ignore"))
            outputs = [out + pt.zeros_like(eta) for out in outputs]
            functions[key] = pytensor.function([eta, *inputs], outputs, on_unused_input="ignore",
                                               mode=by_numpy(get_mode(None)))
        return functions[key]

    def curve(order: int, eta: Array, columns: Sequence[NDArray[Any]]) -> list[Array]:
        with lock:  # a compiled function keeps its inputs in memory of its own
            return [np.asarray(part) for part in compiled(order, columns)(eta, *columns)]

    return curve
