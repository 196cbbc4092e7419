"""Taylor polynomials of third order with intervals for coefficients: what a function can do within a box.

A jet holds, for each row and entry, an interval around each coefficient of the Taylor polynomial at every point of a
box of some variables, 1 to 3 of them. Sums, products and functions of jets hold the coefficients of those, wherever in
the box the polynomial is taken: interval arithmetic, Moore (1966). Bounds are rigorous but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["ORDER", "Jet", "UNARY", "binary", "indices", "logaddexp", "power"]

Array = NDArray[np.float64]
Interval = tuple[Array, Array]
Index = tuple[int, ...]

ORDER = 3
_WHOLE = -np.inf, np.inf


def indices(count: int) -> list[Index]:
    """Exponents of the terms of a polynomial of third order in so many variables, the constant first."""
    return sorted((i for i in product(range(ORDER + 1), repeat=count) if sum(i) <= ORDER), key=lambda i: (sum(i), i))


def _hull(low: Array, high: Array) -> Interval:
    """Without nan, which is infinity less infinity, or 0 times infinity: anything."""
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def _times(a: Interval, b: Interval) -> Interval:
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = a[0] * b[0], a[1] * b[1]
        least, most = np.minimum(low, high), np.maximum(low, high)
        for other in (a[0] * b[1], a[1] * b[0]):
            np.minimum(least, other, out=least)
            np.maximum(most, other, out=most)
        return _hull(least, most)


@lru_cache(maxsize=256)
def _pairs(count: int, first: bytes, second: bytes) -> tuple[Any, Any, Any, Any]:
    """Coefficients whose products make up those of a product, in their order; where each of these begins, and which.

    `first` and `second` say which coefficients of the factors are not 0 everywhere.
    """
    listed = indices(count)
    place = {index: k for k, index in enumerate(listed)}
    sums = [(place.get(tuple(x + y for x, y in zip(listed[i], listed[j], strict=True)), -1), i, j)
            for i in range(len(listed)) for j in range(len(listed)) if first[i] and second[j]]
    made, i, j = np.array(sorted(pair for pair in sums if pair[0] >= 0), dtype=np.intp).reshape(-1, 3).T
    which, begins = np.unique(made, return_index=True)
    return i, j, begins, which


def _plus(a: Interval, b: Interval) -> Interval:
    with np.errstate(invalid="ignore", over="ignore"):
        return _hull(a[0] + b[0], a[1] + b[1])


class Jet:
    """Arrays `low` and `high` of shape (number of coefficients, rows, *entries)."""

    def __init__(self, low: Array, high: Array, count: int) -> None:
        self.low, self.high, self.count = low, high, count

    @classmethod
    def constant(cls, low: Array, high: Array, count: int) -> Jet:
        """Of what does not depend on the variables, or is held to be within an interval and taken as if it did not."""
        more = np.zeros((len(indices(count)) - 1, *np.shape(low)))
        return cls(np.concatenate([low[None], more]), np.concatenate([high[None], more]), count)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the entries of a row."""
        return self.low.shape[2:]

    def at(self, k: int) -> Interval:
        """Coefficient k."""
        return self.low[k], self.high[k]

    def __neg__(self) -> Jet:
        return Jet(-self.high, -self.low, self.count)

    def __add__(self, other: Jet) -> Jet:
        a, b = _aligned(self, other)
        return Jet(*_plus((a.low, a.high), (b.low, b.high)), self.count)

    def __mul__(self, other: Jet) -> Jet:
        a, b = _aligned(self, other)
        if a is b:
            return _composed(a, [_power(a.at(0), 2), _scaled(a.at(0), 2.0), _number(a, 1.0), _number(a, 0.0)])
        i, j, begins, which = _pairs(a.count, a.varies(), b.varies())
        shape = np.broadcast_shapes(a.low.shape, b.low.shape)
        out = Jet(np.zeros(shape), np.zeros(shape), a.count)
        if len(which):
            terms = _times((a.low[i], a.high[i]), (b.low[j], b.high[j]))
            with np.errstate(invalid="ignore", over="ignore"):
                out.low[which], out.high[which] = _hull(*(np.add.reduceat(end, begins, axis=0) for end in terms))
        return out

    def varies(self) -> bytes:
        """Of each coefficient, whether it is not 0 in every row."""
        rest = tuple(range(1, self.low.ndim))
        return np.asarray(self.low.any(axis=rest) | self.high.any(axis=rest)).tobytes()

    def where(self, bad: NDArray[np.bool_]) -> Jet:
        """The same, and anything where it is not known."""
        wrong = np.broadcast_to(bad, np.broadcast_shapes(bad.shape, self.low.shape[1:]))
        return Jet(np.where(wrong, -np.inf, self.low), np.where(wrong, np.inf, self.high), self.count)

    def third(self) -> Array:
        """Bound on the absolute third derivative along any direction of unit length, shape (rows, *entries)."""
        total = np.zeros(self.low.shape[1:])
        for k, index in enumerate(indices(self.count)):
            if sum(index) == ORDER:
                size = np.maximum(np.abs(self.low[k]), np.abs(self.high[k]))
                total += 6.0 * math.prod(map(math.factorial, index)) * np.square(size)
        return np.sqrt(total)


def _aligned(a: Jet, b: Jet) -> tuple[Jet, Jet]:
    """A single number beside an array of them gets as many axes."""
    if a is b or len(a.shape) == len(b.shape):
        return a, b
    more = len(a.shape) - len(b.shape)
    if more > 0:
        wide = (*b.low.shape[:2], *(1,) * more, *b.shape)
        return a, Jet(b.low.reshape(wide), b.high.reshape(wide), b.count)
    return tuple(reversed(_aligned(b, a)))  # type: ignore[return-value]


def _number(like: Jet, value: float) -> Interval:
    full = np.full(like.low.shape[1:], value)
    return full, full


def _scaled(a: Interval, by: float) -> Interval:
    return (a[0] * by, a[1] * by) if by >= 0.0 else (a[1] * by, a[0] * by)


def _composed(a: Jet, taylor: Sequence[Interval]) -> Jet:
    """A function of a jet, given its value and Taylor coefficients over the interval of the argument."""
    step = Jet(np.concatenate([np.zeros_like(a.low[:1]), a.low[1:]]),
               np.concatenate([np.zeros_like(a.high[:1]), a.high[1:]]), a.count)
    powers, out = step, Jet.constant(*taylor[0], a.count)
    for k, coefficient in enumerate(taylor[1:], 1):
        low, high = _times((powers.low, powers.high), (coefficient[0][None], coefficient[1][None]))
        out = out + Jet(low, high, a.count)
        if k < ORDER:
            powers = powers * (Jet(step.low, step.high, step.count) if powers is step else step)
    return out


def _range(function: Callable[[Array], Array], low: Array, high: Array, turns: Sequence[float] = ()) -> Interval:
    """What a function takes between two points; `turns` are all points where it stops rising or falling."""
    with np.errstate(all="ignore"):
        ends = [function(low), function(high)]
        least, most = np.minimum(*ends), np.maximum(*ends)
        for turn in turns:
            inside = (low < turn) & (turn < high)
            value = float(function(np.array(turn)))
            least = np.where(inside, np.minimum(least, value), least)
            most = np.where(inside, np.maximum(most, value), most)
    return _hull(least, most)


def _everywhere(*functions: tuple[Callable[[Array], Array], Sequence[float]]) -> Callable[[Jet], Jet]:
    """A function of one number, given by its Taylor coefficients and where each of them turns."""
    def apply(a: Jet) -> Jet:
        return _composed(a, [_range(function, *a.at(0), turns) for function, turns in functions])
    return apply


def _above_zero(function: Callable[[Jet], Jet], least: float = 0.0) -> Callable[[Jet], Jet]:
    """The same of a function that is defined above a number only."""
    def apply(a: Jet) -> Jet:
        bad = ~(a.low[0] > least)
        inside = Jet(a.low.copy(), a.high.copy(), a.count)
        inside.low[0], inside.high[0] = np.where(bad, least + 1.0, a.low[0]), np.where(bad, least + 1.0, a.high[0])
        return function(inside).where(bad)
    return apply


def _power(a: Interval, exponent: float) -> Interval:
    """A power of an interval; anything where it holds 0 and the exponent is negative or no integer."""
    low, high = a
    whole = float(exponent).is_integer()
    with np.errstate(all="ignore"):
        ends = low**exponent, high**exponent
        least, most = np.minimum(*ends), np.maximum(*ends)
        across = (low <= 0.0) & (high >= 0.0)
        if whole and exponent > 0.0 and exponent % 2.0 == 0.0:
            least = np.where(across, 0.0, least)
        bad = (across & (exponent < 0.0)) | ((low <= 0.0) & (not whole) & (exponent != 0.0))
    return _hull(np.where(bad, -np.inf, least), np.where(bad, np.inf, most))


def power(a: Jet, exponent: float) -> Jet:
    """A jet to the power of a number."""
    taylor, factor = [], 1.0
    for k in range(ORDER + 1):
        taylor.append(_times(_number(a, factor), _power(a.at(0), exponent - k)) if factor else _number(a, 0.0))
        factor *= (exponent - k) / (k + 1)
    return _composed(a, taylor)


_CUBIC = (3.0 - math.sqrt(3.0)) / 6.0, (3.0 + math.sqrt(3.0)) / 6.0
_QUARTIC = (3.0 - math.sqrt(6.0)) / 6.0, 0.5, (3.0 + math.sqrt(6.0)) / 6.0


def _shares(a: Jet) -> list[Interval]:
    """The logistic function with three derivatives, and those of its integral."""
    low, high = special.expit(a.low[0]), special.expit(a.high[0])
    return [
        (low, high),
        _range(lambda p: p * (1.0 - p), low, high, (0.5,)),
        _range(lambda p: p * (1.0 - p) * (1.0 - 2.0 * p), low, high, _CUBIC),
        _range(lambda p: p * (1.0 - p) * (1.0 - 6.0 * p * (1.0 - p)), low, high, _QUARTIC),
    ]


def _logistic(a: Jet) -> Jet:
    value, first, second, third = _shares(a)
    return _composed(a, [value, first, _scaled(second, 0.5), _scaled(third, 1.0 / 6.0)])


def _softplus(a: Jet) -> Jet:
    value, first, second, _ = _shares(a)
    own = np.logaddexp(0.0, a.low[0]), np.logaddexp(0.0, a.high[0])
    return _composed(a, [own, value, _scaled(first, 0.5), _scaled(second, 1.0 / 6.0)])


def logaddexp(a: Jet, b: Jet) -> Jet:
    """Logarithm of the sum of two exponentials."""
    return b + _softplus(a + (-b))


def _tanh(a: Jet) -> Jet:
    two = Jet(2.0 * a.low, 2.0 * a.high, a.count)
    half = _logistic(two)
    out = Jet(2.0 * half.low, 2.0 * half.high, a.count)
    out.low[0] -= 1.0
    out.high[0] -= 1.0
    return out


def _wave(shift: int) -> Callable[[Jet], Jet]:
    """The sine, or with a shift of 1 the cosine."""
    def apply(a: Jet) -> Jet:
        taylor = []
        for k in range(ORDER + 1):
            phase = 0.5 * math.pi * (k + shift)
            low, high = a.low[0] + phase, a.high[0] + phase
            with np.errstate(invalid="ignore"):
                ends = np.sin(low), np.sin(high)
                top, end = (np.floor((high - at) / (2.0 * math.pi)) >= np.ceil((low - at) / (2.0 * math.pi))
                            for at in (0.5 * math.pi, -0.5 * math.pi))
            wide = ~np.isfinite(high - low)
            taylor.append(_scaled((np.where(end | wide, -1.0, np.minimum(*ends)), np.where(top | wide, 1.0,
                                  np.maximum(*ends))), 1.0 / math.factorial(k)))
        return _composed(a, taylor)
    return apply


def _abs(a: Jet) -> Jet:
    """Where the sign is known; it has a kink at 0."""
    low, high = a.low[0], a.high[0]
    minus = -a
    up, down = (low >= 0.0), (high <= 0.0)
    out = Jet(np.where(up, a.low, minus.low), np.where(up, a.high, minus.high), a.count)
    return out.where(~(up | down))


def _sign(a: Jet) -> Jet:
    """Where it is known."""
    sign = np.sign(a.low[0])
    return Jet.constant(sign, sign, a.count).where(~((a.low[0] > 0.0) | (a.high[0] < 0.0)))


def binary(name: str, a: Jet, b: Jet) -> Jet:
    """The larger or the smaller of two, where it is known which: it has a kink where they are equal."""
    a, b = _aligned(a, b)
    first, second = (a, b) if name == "max" else (b, a)
    shape = np.broadcast_shapes(a.low.shape, b.low.shape)
    left = np.broadcast_to(first.low[0] >= second.high[0], shape[1:])
    right = np.broadcast_to(second.low[0] >= first.high[0], shape[1:])
    out = Jet(np.where(left, a.low, b.low), np.where(left, a.high, b.high), a.count)
    return out.where(~(left | right))


_GAUSS = 2.0 / math.sqrt(math.pi)
_TURN = 1.4616321449683622  # of the logarithm of the gamma function

_EXP: tuple[tuple[Callable[[Array], Array], Sequence[float]], ...] = tuple(
    (lambda x, k=k: np.exp(x) / math.factorial(k), ()) for k in range(ORDER + 1))  # type: ignore[misc]
_LOG: tuple[tuple[Callable[[Array], Array], Sequence[float]], ...] = (
    (np.log, ()), (lambda x: 1.0 / x, ()), (lambda x: -0.5 / x**2, ()), (lambda x: x**-3.0 / 3.0, ()))
_ERF: tuple[tuple[Callable[[Array], Array], Sequence[float]], ...] = (
    (special.erf, ()),
    (lambda x: _GAUSS * np.exp(-np.square(x)), (0.0,)),
    (lambda x: -_GAUSS * x * np.exp(-np.square(x)), (-math.sqrt(0.5), math.sqrt(0.5))),
    (lambda x: _GAUSS * (4.0 * np.square(x) - 2.0) * np.exp(-np.square(x)) / 6.0,
     (-math.sqrt(1.5), 0.0, math.sqrt(1.5))))
_LGAMMA: tuple[tuple[Callable[[Array], Array], Sequence[float]], ...] = (
    (special.gammaln, (_TURN,)), (special.digamma, ()), (lambda x: 0.5 * special.polygamma(1, x), ()),
    (lambda x: special.polygamma(2, x) / 6.0, ()))


def _log1p(a: Jet) -> Jet:
    low, high = (np.concatenate([1.0 + end[:1], end[1:]]) for end in (a.low, a.high))
    return UNARY["log"](Jet(low, high, a.count))


def _expm1(a: Jet) -> Jet:
    out = UNARY["exp"](a)
    out.low[0] -= 1.0
    out.high[0] -= 1.0
    return out


def _erfc(a: Jet) -> Jet:
    out = -UNARY["erf"](a)
    out.low[0] += 1.0
    out.high[0] += 1.0
    return out


UNARY: dict[str, Callable[[Jet], Jet]] = {
    "abs": _abs,
    "cos": _wave(1),
    "erf": _everywhere(*_ERF),
    "erfc": _erfc,
    "exp": _everywhere(*_EXP),
    "expm1": _expm1,
    "lgamma": _above_zero(_everywhere(*_LGAMMA)),
    "log": _above_zero(_everywhere(*_LOG)),
    "log1p": _log1p,
    "logistic": _logistic,
    "neg": lambda a: -a,
    "rsqrt": lambda a: power(a, -0.5),
    "sign": _sign,
    "sin": _wave(0),
    "sqrt": lambda a: power(a, 0.5),
    "square": lambda a: power(a, 2.0),
    "tanh": _tanh,
}
