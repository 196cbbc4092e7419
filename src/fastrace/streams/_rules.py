"""What all rules that stop a stream share in Python: argument checks, words of their pages, an answer with names."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from fastrace._base import _callers, _checks
from fastrace._base._docs import filled
from fastrace._base._words import ending
from fastrace.results import StopResult

OUTSIDE = ("raise", "clip")
SPENT = "{} was reached: estimate is the mean so far, without a promise; that of interval holds"
TIE = "the mean is the threshold, as far as rounding can tell"

# What the pages of rules say alike, where a line of them holds nothing but names in braces.
PAGE = {
    "epsilon": """\
epsilon : float
    Relative accuracy, in (0, 1).""",
    "default_epsilon": """\
epsilon : float, default 0.1
    Relative accuracy, in (0, 1).""",
    "delta": """\
delta : float, default 0.05
    Probability that the estimate misses the accuracy, in (0, 1).""",
    "support": """\
support : tuple of float, default (0, 1)
    Interval (low, high) that holds every reward, in reward units.""",
    "positive support": """\
support : tuple of float, default (0, 1)
    Interval (low, high) that holds every reward, in reward units, with ``low >= 0``. Only `high` is used.""",
    "n_rows": """\
n_rows : int, optional
    Size of the population if rewards are drawn from it without replacement, in uniformly random order. Once
    all have been seen, `interval` is their mean. If an earlier interval missed it, `stopped_by` is
    ``"inconsistent"``.""",
    "two_sided": """\
two_sided : bool, default True
    Count errors to both sides. False gives the rule as it was printed, which errs with probability at most
    ``2 * delta``.""",
    "use_support": """\
use_support : bool, default False
    Begin with what `support` says of the absolute mean instead of nothing. It costs nothing, and helps where
    the mean lies near an end; [1]_ begins with nothing.""",
    "floor": """\
floor : float, optional
    Stop with estimate 0 as soon as ``|mean| <= floor`` is certain at the same confidence. Without it, a mean of
    zero is never known to any relative accuracy.""",
    "max_samples": """\
max_samples : int, optional
    Rewards after which it gives up, with what it knows; `stopped` is then False.""",
    "outside": """\
outside : {"raise", "clip"}, default "raise"
    What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it. The
    answer is then about the mean of the clipped rewards.""",
    "cap": """\
cap : float, default 0.9
    Largest share of the wealth on one bet, in (0, 0.99].""",
    "raises": """\
Raises
------
ValueError
    If a parameter is out of range, or a reward is nan or outside `support`; nothing is changed then.""",
}


class StoppingRule:
    """Face of a stream that stops itself; subclass it together with a compiled ``Stream``.

    Each rule says in `_holds_once` whether its promise, proven for independent rewards, also holds for rewards drawn
    without replacement by a rule that does not know the size of the population. It does if the bounds rest on sums of
    a fixed number of rewards (Hoeffding 1963, Theorem 4). `estimate_mean` then reads each row of an array at most once;
    for the other rules it draws rows with replacement.
    """

    _holds_once: ClassVar[bool]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_") and not hasattr(cls, "_holds_once"):
            raise TypeError(f"{cls.__name__} does not set _holds_once: say if its promise holds without replacement")
        cls.__doc__ = filled(cls.__doc__, PAGE)
        _callers.own_init(cls)

    def result(self: Any) -> StopResult:
        """Return what is known now: estimate, interval, samples used and why it ended, as a `StopResult`."""
        return StopResult(
            rule=type(self).__name__,
            estimate=self.estimate,
            interval=self.interval,
            n_samples=self.n_samples,
            stopped_by=self.stopped_by,
            criterion=self.criterion,
            epsilon=self.epsilon,
            delta=self.delta,
            support=self.support,
            n_clipped=self.n_clipped,
            note=self._note(),
            warnings=self._spent() + self._doubts(),
        )

    def _relative(
        self: Any, epsilon: float, delta: float, support: tuple[float, float], max_samples: int | None, outside: str,
        floor: float | None = None, **own: Any,
    ) -> None:
        """Check and set what a rule of relative accuracy takes; `own` are arguments of its own, checked."""
        checked = relative(epsilon, floor) | shared(delta, support, max_samples, outside)
        self._configure(arguments(checked, **own), **checked)

    def _spent(self: Any) -> tuple[str, ...]:
        """What a rule says that ran out of rewards and still owes an answer: no sequence does, nor an exact tie."""
        owes = self.criterion != "never" and self.arguments.get("n_rows") != self.n_samples
        return (SPENT.format("max_samples"),) if owes and self.stopped_by == "max_samples" else ()

    def _note(self: Any) -> str:
        if self.support is None:
            first_look = self.arguments["first_look"]
            return f"asymptotic: nearly right from {first_look} rewards on, as their mean is nearly normal"
        if self._stopped_by_floor():
            return f"|mean| <= {self.arguments['floor']:g}, the floor: zero is promised within it"
        if self.arguments.get("n_rows") == self.n_samples:
            return str(self._note_at_the_end())
        if self.stopped_by == "inconsistent":
            return "are the rewards independent, with one mean, and inside the support?"
        low, high = self.interval
        if self.stopped_by == "max_samples" and self.criterion == "relative" and low <= 0.0 <= high:
            return "zero is still a possible mean; at a mean of zero no relative accuracy is ever reached"
        return ""

    def _note_at_the_end(self: Any) -> str:
        """What a rule over a population says once it has seen every row."""
        if self.stopped_by == "inconsistent":
            return (
                "every row was seen: the interval is the mean of the population, and an earlier interval missed it; "
                "were the rows in random order?"
            )
        if self.criterion != "sign":
            return "every row was seen: the interval is the mean of the population"
        return "" if self.stopped else f"every row was seen: {TIE}"

    def __repr__(self: Any) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items() if value is not None)
        return f"<{type(self).__name__}({given}): {ending(self.stopped_by)}, n_samples={self.n_samples}>"


def without_support(
    bound: str, default: str, first_look: int | None, outside: str, **unfit: Any
) -> dict[str, Any]:
    """The arguments of a rule without a support, checked; `unfit` are arguments that only other kinds take."""
    if bound not in (default, "asymptotic"):
        raise ValueError(f"support is None and bound is {bound!r}; without a support the only bound is 'asymptotic': "
                         f"give a support, or leave bound out")
    for name, value in unfit.items():
        if value is not None:
            raise ValueError(f"support is None and {name} is {value!r}; the asymptotic kind has no {name}: leave it "
                             f"out")
    if outside != "raise":
        raise ValueError(f"support is None and outside is {outside!r}; nothing is outside: leave it out")
    return {"bound": "asymptotic", "first_look": start(first_look)}


def with_support(first_look: int | None, bound: str) -> None:
    """Refuse what only the asymptotic kind takes."""
    if isinstance(bound, str) and bound == "asymptotic":
        raise ValueError("bound is 'asymptotic', which is for an unknown support: say support=None too")
    if first_look is not None:
        raise ValueError(f"first_look is {first_look} and a support is given; only the asymptotic kind, with "
                         f"support=None, has a first look: leave it out")


def start(first_look: int | None) -> int:
    """Rewards before an asymptotic interval, checked."""
    return _checks.first_look(first_look)


def best_at(first_look: int) -> float:
    """Rewards at which an asymptotic interval is narrowest, compared with what is possible: a little after its start
    (Waudby-Smith et al. 2024, section 2.5, which has m log m for a start at m).
    """
    return first_look * math.log(max(first_look, 3))


def shared(
    delta: float, support: tuple[float, float] | None, max_samples: int | None, outside: str, bounded: bool = True
) -> dict[str, Any]:
    """The arguments that every rule takes, checked; keys are those of ``Stream._configure``."""
    if max_samples is not None:
        max_samples = _checks.integer(max_samples, "max_samples", 1, "a rule needs a reward to go by")
        if max_samples >= 2**62:
            raise ValueError(f"max_samples is {max_samples}; less than 2**62 is needed: it is counted in 64 bits")
    return {
        "delta": _checks.probability(delta, "delta"),
        "support": _checks.interval(support) if bounded or support is not None else None,  # type: ignore[arg-type]
        "max_samples": max_samples,
        "outside": _checks.choice(outside, "outside", OUTSIDE),
    }


def relative(epsilon: float, floor: float | None) -> dict[str, Any]:
    """The arguments of a rule of relative accuracy, checked."""
    number = _checks.real(epsilon, "epsilon")
    if not 0.0 < number < 1.0:
        raise ValueError(f"epsilon is {epsilon!r}; a relative accuracy strictly between 0 and 1 is needed")
    if floor is not None:
        floor = _checks.positive(floor, "floor", "a mean of smaller absolute value is reported as 0")
    return {"criterion": "relative", "epsilon": number, "floor": floor}


def absolute(epsilon: float) -> dict[str, Any]:
    """The arguments of a rule of absolute accuracy, checked."""
    why = "it is the largest error wanted, in reward units"
    return {"criterion": "absolute", "epsilon": _checks.positive(epsilon, "epsilon", why)}


def sign(threshold: float) -> dict[str, Any]:
    """The arguments of a rule that finds the side of a threshold, checked."""
    number = _checks.real(threshold, "threshold")
    if not math.isfinite(number):
        raise ValueError(f"threshold is {threshold!r}; a finite number is needed")
    return {"criterion": "sign", "threshold": number}


def arguments(checked: dict[str, Any], **own: Any) -> dict[str, Any]:
    """What makes the same rule again: the arguments that rules share, then the rule's own."""
    names = ("epsilon", "threshold", "delta", "support")
    first = {name: checked[name] for name in names if name in checked}
    last = {name: checked[name] for name in ("floor", "max_samples", "outside") if checked.get(name) is not None}
    return first | own | last
