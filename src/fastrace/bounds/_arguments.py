"""What the functions of `fastrace.bounds` share: checks of their arguments, and what their pages say alike."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastrace._base._checks import Support, counts, one, probabilities, reals, reals_where, shown
from fastrace._base._docs import filled
from fastrace._base._frames import require_same_rows

# What the pages say alike, where a line of them holds nothing but names in braces.
TEXTS = {
    "any n": """\
n : array_like of int
    Rewards read, at least 1.""",
    "n": """\
n : array_like of int
    Rows read, 1 to `n_rows`.""",
    "fixed n": """\
n : array_like of int
    Rows read, 1 to `n_rows`; fixed in advance.""",
    "n_rows": """\
n_rows : array_like of int
    Rows in the population (N), at most 2^62.""",
    "std": """\
std : array_like of float
    Standard deviation of what was read, divisor n, in reward units.""",
    "delta": """\
delta : array_like of float
    Probability of error of one side, in (0, 1).""",
    "support": """\
support : tuple of float or of array_like
    Interval (low, high) that holds every reward, in reward units; its width is C.""",
    "log_inv_delta": """\
log_inv_delta : array_like of float, optional
    log(1 / delta), with ``delta=None``.""",
    "factor": """\
Returns
-------
float or ndarray of float64""",
    "errors": """\
Raises
------
ValueError
    If an argument is out of range.""",
    "width and errors": """\
Returns
-------
float or ndarray of float64
    In reward units; 0 at ``n = n_rows``. Holds for every population.

Raises
------
ValueError
    If an argument is out of range.""",
}
# What numbers must be, and how an error says so.
RANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "growth": (lambda value: value > 1.0, "above 1 is needed: every look must read more rows"),
    "log_inv_delta": (
        lambda value: (value > 0.0) & (value < np.inf),
        "a positive finite number is needed, log(1 / delta) of a probability of error delta",
    ),
    "power": (lambda value: (value > 1.0) & (value < np.inf), "above 1 is needed, or the shares do not add up"),
    "quantile": (
        lambda value: (value >= 0.0) & (value < np.inf), "a finite number of standard errors, at least 0, is needed"
    ),
    "std": (lambda value: value >= 0.0, "a standard deviation of at least 0 is needed"),
}
Function = TypeVar("Function", bound=Callable[..., Any])


def documented(function: Function) -> Function:
    function.__doc__ = filled(function.__doc__, TEXTS)
    return function


def checked(**given: Any) -> list[Any]:
    """Arguments as arrays, in order. `delta` is the pair of delta and log_inv_delta, and becomes the latter."""
    found: dict[str, Any] = {}
    require_same_rows(**given)
    for name, value in given.items():
        if name in ("n", "n_rows", "first_look", "look"):
            found[name] = counts(value, name)
        elif name == "delta":
            found[name] = _log_inv(*value)
        elif name == "support":
            found[name] = _span(value)
        else:
            found[name] = reals_where(value, name, *RANGES[name])
    if "n_rows" in found and "n" in found and np.any(bad := found["n"] > found["n_rows"]):
        most, least = np.broadcast_arrays(found["n"], found["n_rows"])
        raise ValueError(
            f"n is {most[bad].flat[0]}, more than n_rows={least[bad].flat[0]}; "
            "without replacement no more rows can be read than there are"
        )
    return list(found.values())


def _log_inv(delta: Any, log_inv_delta: Any) -> NDArray[np.float64]:
    if (delta is None) == (log_inv_delta is None):
        raise ValueError("exactly one of delta and log_inv_delta is needed, the other None")
    if log_inv_delta is None:
        return -np.log(probabilities(delta, "delta"))
    return reals_where(log_inv_delta, "log_inv_delta", *RANGES["log_inv_delta"])


def _span(support: Support) -> NDArray[np.float64]:
    try:
        low, high = support
    except (TypeError, ValueError):
        raise ValueError(f"support is {shown(support)}; a pair (low, high) that holds every reward is needed") from None
    with np.errstate(over="ignore", invalid="ignore"):
        span: NDArray[np.float64] = reals(high, "support[1]") - reals(low, "support[0]")
    if not np.all((span >= 0.0) & (span < np.inf)):
        raise ValueError(f"support is {shown(support)}; finite ends with low <= high and a finite width are needed")
    return span


def single(**given: Any) -> list[Any]:
    """The same as plain numbers."""
    return [one(array, name) for name, array in zip(given, checked(**given), strict=True)]
