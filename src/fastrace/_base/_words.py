"""Words that every printed answer shares, and the list of ways in which a run can end."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

StoppedBy = Literal[
    "",                 # it is still running
    "bound",            # the bounds settled the question: arms are apart, or the side of a threshold is known
    "epsilon",          # the accuracy asked for was reached
    "delta",            # the bound on the probability of error reached delta
    "exact",            # every row that could matter was read
    "single",           # nothing was to be chosen: one arm, or all of them asked for
    "plan",             # a fixed plan of pulls was carried out
    "cap",              # every arm has had the pulls of a plan for the worst case
    "horizon", "budget", "max_pulls", "max_samples", "n_estimators",    # the argument of this name was used up
    "max_seconds",      # the time of the call was over
    "inconsistent",     # no mean fits the rewards: an assumption is broken, or the event of probability delta came true
    "complete",         # the learner that looks best has been trained on all rows
    "all dropped",      # every learner failed
    "callback",         # the caller's function said so
    "exhausted",        # the rewards or examples ended
    "no edge",          # no weak hypothesis is good enough
    "error",            # the error asked for was reached
]
STOPPED_BY: tuple[str, ...] = get_args(StoppedBy)


# What became of missing rewards, and of arms that give none.
WORST_REWARDS = "{} counted as the low end of the support"
SILENT_ROWS = (
    "{} gave no reward in the first {} rows, so that all of them were dropped and nothing is known of any arm yet: "
    "look at what these calls return, leave the arms out, or take missing='worst'"
)
NO_WHOLE_ROW = (
    "{} of the first {} rows, so that all of them were dropped: missing is 'drop', and nothing becomes known of any "
    "arm; mend what these calls return, leave the arms out, take missing='worst', or, if rows without a gap are rare, "
    "race on those alone. This look was not taken, and rows of earlier looks stay dropped"
)
SILENT_ROUNDS = (
    "a reward was missing in each of the first {} rounds, so that all of them were dropped and nothing is known yet; "
    "in the last one it was that of {}: look at what these calls return, leave the arm out, or take missing='worst'"
)
SILENT_PULLS = (
    "{} gave no reward in {} pulls, while other arms did: missing is 'drop', so that nothing becomes known of it; "
    "look at what these calls return, leave it out, or take missing='worst'"
)

NOTHING_HEARD = (
    "no arm gave a reward in the first {} pulls: missing is 'drop', so that nothing is known yet; look at what these "
    "calls return, or take missing='worst'"
)


def doubtful_after(n_arms: int, paid: bool = False) -> int:
    """Rewards after which a race that need not end says so; fewer by requests, which are `paid` for."""
    return max(20_000 if paid else 1_000_000, 1000 * n_arms)


def endless(timed: bool) -> str:
    """What becomes of a run whose question the rewards may never answer; `timed` by the seconds of its call."""
    return "only max_seconds ends this, with intervals that hold" if timed else "this never ends"


def undecided(
    made: str, arms: tuple[str, str], means: tuple[float, float], ends: Sequence[float], timed: bool = False
) -> str:
    """What to say where `made` rewards have not told two arms apart; `ends` are those of their difference."""
    return (
        f"{made} have not told arm {arms[0]} (mean {means[0]:.6g}) from arm {arms[1]} (mean {means[1]:.6g}); the "
        f"second less the first lies between {ends[0]:.3g} and {ends[1]:.3g}. If their means are equal, "
        f"{endless(timed)}, as epsilon is 0: give epsilon, the difference that does not matter, or max_pulls. Ctrl-C "
        f"ends it and keeps all that came"
    )


def missed(missing: str, count: int) -> str:
    """What became of missing rewards."""
    if missing == "worst":
        return WORST_REWARDS.format(counted(count, "missing reward"))
    return f"{counted(count, 'pull')} gave no reward: the answer is about the means of the rewards that came"


def arms_in_words(arms: list[int], names: Sequence[str] | None = None) -> str:
    """The arms, by number or name; ten of them at most."""
    shown = [str(arm) if names is None else names[arm] for arm in arms[:10]]
    more = f" and {len(arms) - 10} more" if len(arms) > 10 else ""
    return f"{'arm' if len(arms) == 1 else 'arms'} {', '.join(shown)}{more}"


def counted(number: float, noun: str, spec: str = "") -> str:
    """The number, formatted by `spec`, with its noun: in the plural unless it reads as 1."""
    text = f"{number:{spec}}"
    return f"{text} {noun}" if text == "1" else f"{text} {noun}{'es' if noun.endswith('s') else 's'}"


def number(value: float, spec: str) -> str:
    """The number, formatted by `spec`: never -0, and "-" where there is none."""
    return "-" if isinstance(value, float) and math.isnan(value) else format(value + 0, spec)


def short(name: str, most: int = 40) -> str:
    """The name, its middle left out where it is longer than `most`."""
    return name if len(name) <= most else f"{name[: most // 2]}...{name[len(name) - (most - most // 2 - 3) :]}"


def ending(stopped_by: str) -> str:
    """How a run ended, in words."""
    return f"stopped by {stopped_by}" if stopped_by else "still running"


def one_line(error: Exception) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())
