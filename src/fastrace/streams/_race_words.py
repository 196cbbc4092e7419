"""Words of races on streams: what their pages say alike, and warnings of their results."""

SPENT = (
    "horizon was reached: best is the arm with the largest mean so far, and the promise is only that every best arm is "
    "among the {} that are still active"
)
STOPPED = (
    "{} was reached before the answer was safe: best is the arm with the largest mean so far, and every best "
    "arm is among the {} that are still active"
)
DOUBTED = (
    "few rounds carry a long tail of {} (skewness up to {:.3g}): no verdict is given while more of it could "
    "turn it, and intervals may miss more often than delta says; give a support, or race on"
)
EQUAL = (
    "rewards or differences of {} have been the same in all rounds: nothing is known of their spread, and a "
    "verdict about them takes 4800 rounds at least"
)
DROPPED_ROUNDS = "{} rounds were dropped, as a reward was missing: the answer is about the means over the rest"
INCONSISTENT = (
    "a bracket became empty: the rewards broke an assumption, or the event of probability delta came true; nothing is "
    "promised"
)

# What the pages of the races say alike, where a line of them holds nothing but names in braces.
PAGE = {
    "n_arms": """\
n_arms : int
    Number of arms, at least 1.""",
    "horizon": """\
horizon : int
    Largest number of rounds (N in the notes, where M is `n_arms`).""",
    "delta": """\
delta : float, default 0.05
    Probability that a best arm is lost, in (0, 1).""",
    "support": """\
support : tuple of float or of arrays of shape (n_arms,)
    Interval (low, high) that holds every reward, in reward units; needed.""",
    "epsilon": """\
epsilon : float, default 0.0
    If above 0, also stop as soon as the arm with the largest lower bound is certainly within `epsilon` of the
    best, in reward units.""",
    "n_best": """\
n_best : int, default 1
    Number of arms to find. With more than one, an arm is chosen when its lower bound surpasses the upper
    bounds of all but ``n_best - 1`` others, and leaves when `n_best` lower bounds surpass its upper bound. Each
    bracket is then intersected with all earlier ones of its arm (Heidrich-Meisner & Igel 2009); an empty one
    ends the race, with ``stopped_by`` ``"inconsistent"``. With one best arm the brackets are those of the last
    round.""",
    "names": """\
names : sequence of str, optional
    What to call the arms in the result; by default the columns of the table that `run` is given.""",
    "cost": """\
cost : float or array_like of shape (n_arms,), optional
    What one reward of an arm costs, in any unit; the result's `cost` adds up those used, and those
    held or asked for ahead by requests. It changes no decision, nor when a table is read to its end.""",
    "raises": """\
Raises
------
ValueError
    If a parameter is out of range, or a reward is nan or outside `support`.""",
}
