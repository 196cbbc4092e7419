"""What all rules that stop a stream share in Python: argument checks, and an answer with names."""

from __future__ import annotations

import math
from typing import Any

from fastrace._base import _checks
from fastrace.results import StopResult

OUTSIDE = ("raise", "clip")
TIE = "the mean is the threshold, as far as rounding can tell"


class StoppingRule:
    """Face of a stream that stops itself; subclass it together with a compiled ``Stream``."""

    def result(self: Any) -> StopResult:
        """Return what is known now: estimate, interval, samples used and why it ended, as a `StopResult`."""
        return StopResult(
            rule=type(self).__name__,
            estimate=self.estimate,
            interval=self.interval,
            n_samples=self.n_samples,
            status=self.status,
            criterion=self.criterion,
            epsilon=self.epsilon,
            delta=self.delta,
            support=self.support,
            n_clipped=self.n_clipped,
            note=self._note(),
        )

    def _note(self: Any) -> str:
        if self._stopped_by_floor():
            return f"|mean| <= {self.arguments['floor']:g}, the floor: zero is promised within it"
        if self.arguments.get("n_rows") == self.n_samples:
            return str(self._note_at_the_end())
        if self.status == "inconsistent":
            return "are the rewards independent, with one mean, and inside the support?"
        if self.status == "max_samples" and self.criterion == "relative" and self.interval[0] <= 0 <= self.interval[1]:
            return "zero is still a possible mean; at a mean of zero no relative accuracy is ever reached"
        return ""

    def _note_at_the_end(self: Any) -> str:
        """What a rule over a population says once it has seen every row."""
        if self.status == "inconsistent":
            return (
                "every row was seen: the interval is the mean of the population, and an earlier interval missed it; "
                "were the rows in random order?"
            )
        if self.criterion != "sign":
            return "every row was seen: the interval is the mean of the population"
        return "" if self.stopped else f"every row was seen: {TIE}"

    def __repr__(self: Any) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items() if value is not None)
        return f"<{type(self).__name__}({given}): {self.status}, n_samples={self.n_samples}>"


def shared(
    delta: float, support: tuple[float, float], max_samples: int | None, outside: str
) -> dict[str, Any]:
    """The arguments that every rule takes, checked; keys are those of ``Stream._configure``."""
    if max_samples is not None:
        max_samples = _checks.integer(max_samples, "max_samples", 1, "a rule needs a reward to go by")
        if max_samples >= 2**62:
            raise ValueError(f"max_samples is {max_samples}; less than 2**62 is needed: it is counted in 64 bits")
    return {
        "delta": _checks.probability(delta, "delta"),
        "support": _checks.interval(support),
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
