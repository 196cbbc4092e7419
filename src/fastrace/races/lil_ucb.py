"""The lil'UCB race over a finite population: pull one arm at a time, the most promising one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace.races._lil as _lil
from fastrace._base import _callers, _checks, _frames
from fastrace.races import _options
from fastrace.results import RaceResult
from fastrace.results.columns import named, naming
from fastrace.sources import Source, _source_of, column_names

SETTINGS = ("heuristic", "theory")
NO_LIMIT = 2**63 - 1


def parameters(setting: str, delta: float, n_arms: int) -> tuple[float, float, float, float]:
    """Return beta, epsilon, lambda and log(delta_0) of Jamieson et al. (2014) for a probability of error `delta`."""
    if setting == "heuristic":
        return 0.5, 0.0, 1.0 + 10.0 / n_arms, math.log(delta / 5.0)
    beta, epsilon = 1.0, 0.01
    factor = (2.0 + epsilon) / epsilon * math.log1p(epsilon) ** -(1.0 + epsilon)
    root = math.expm1(0.5 * math.log1p(delta))
    return beta, epsilon, ((2.0 + beta) / beta) ** 2, 2.0 * math.log(root) - math.log(4.0 * factor)


class LilUCB:
    r"""Find the arm with the largest mean over a finite population, one pull at a time.

    Always pulls the arm whose upper bound is the largest, reading its rows without replacement in an order of its own.
    It stops when one arm has been pulled far more often than all others together, or when the arm with the largest
    bound has been read in full. It reads less than a race by looks where a few arms are clearly better, and pays for
    single rows: a race by looks is several times faster per row.

    Parameters
    ----------
    n_arms : int
        Number of arms, at least 1 (D in [1]_).
    n_rows : int
        Rows of the population (N).
    delta : float, default 0.05
        Probability that the answer is not the best arm, in (0, 1).
    support : tuple of float or of arrays of shape (n_arms,)
        Interval (low, high) that holds every reward, offsets not included. Needed: half the largest width is the scale
        of the bounds.
    setting : {"heuristic", "theory"}, default "heuristic"
        Constants of the bound. The heuristic ones of [2]_ read far fewer rows and have **no proof**; [1]_ saw them
        exceed `delta` with 100 arms.
    offset : array_like, shape (n_arms,), optional
        Constant of each arm on the scale of sums over all rows; -inf takes the arm out of the race.
    outside : {"raise", "warn"}, default "raise"
        What to do with a reward outside `support`: refuse it, or take it as it is and say so in the result.
    names : sequence of str, optional
        What to call the arms in the result; by default the columns of the table that `run` is given.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness: one keyed order of the rows per arm is drawn from it here, nothing later.

    Raises
    ------
    ValueError
        If a parameter is out of range, `support` is missing, or a reward is nan, +inf or outside `support`; the race is
        then as it was before that reward.

    Notes
    -----
    With the theory setting and independent rewards, `best` is :math:`\arg\max_i \mu_i` with probability at least
    ``1 - delta``, where :math:`\mu_i = (c_i + \sum_n r_{n,i}) / N` and :math:`c_i` is the offset. [1]_ (Prop. 2)
    carries this over to rewards without replacement by comparing bounds at a fixed number of pulls, while the proof
    for independent rewards also needs one over all numbers of pulls at once; that step is not proven. An arm that
    wins because it was read in full beats the *bounds* of the others.

    `lower` and `upper` of the result are the mean less and plus the width of the bound that picks the next arm, cut to
    what the support leaves possible. They are no confidence intervals. With the theory setting the upper ends
    are the bounds of the proof, which all hold with probability at least ``1 - delta`` only for independent rewards,
    and nothing is proved of the lower ends. With the heuristic setting nothing is proved of either. `race` gives
    intervals that hold.

    The orders of rows are pseudo-random (see ``_keyed_order.pxd``), so memory is O(n_arms), whatever N is. A pull costs
    O(log n_arms); there are at most N n_arms of them. Driven by hand or by `run`, the same seed gives the same pulls.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, section 3.2.
    .. [2] Jamieson, Malloy, Nowak, Bubeck, "lil' UCB: An Optimal Exploration Algorithm for Multi-Armed Bandits",
       COLT 2014.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> values = np.random.default_rng(0).random((100_000, 4)) + [0.0, 0.0, 0.5, 0.0]
    >>> race = fr.LilUCB(4, 100_000, support=(0, 1.5), rng=1)
    >>> while not race.done:
    ...     arms, rows = race.ask()
    ...     race.tell(values[np.ix_(rows, arms)])
    >>> race.result().best
    2
    """

    @_callers.names_caller
    def __init__(
        self,
        n_arms: int,
        n_rows: int,
        delta: float = 0.05,
        support: _checks.Support | None = None,
        setting: str = "heuristic",
        *,
        offset: ArrayLike | None = None,
        outside: str = "raise",
        names: Sequence[str] | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        n_arms, n_rows = _options.population(n_arms, n_rows)
        self._delta = _checks.probability(delta, "delta")
        self._setting = _checks.choice(setting, "setting", SETTINGS)
        if support is None:
            raise ValueError(
                "support is None; lil'UCB needs support=(low, high), an interval that holds every reward, because its "
                "bounds are as wide as half of it"
            )
        self._names = _frames.arms_called(names, n_arms, support=support, offset=offset)
        low, high = _checks.support_bounds(_frames.support_of_arms(support, self._names), n_arms)
        constants = _options.constants(offset, "offset", n_arms, self._names)
        running = constants > -np.inf
        beta, epsilon, patience, log_share = parameters(self._setting, self._delta, int(running.sum()))
        sigma = 0.5 * float((high - low)[running].max())
        self._options: dict[str, Any] = {
            "width": (1.0 + beta) * (1.0 + math.sqrt(epsilon)) * sigma * math.sqrt(2.0 * (1.0 + epsilon)),
            "growth": 1.0 + epsilon,
            "log_share": log_share,
            "patience": patience,
            "low": low,
            "high": high,
            "offset": constants,
            "strict": _options.strict(outside),
        }
        self._race = _lil.LilRace(n_arms, n_rows, **self._options)
        self._race.seed(_checks.generator(rng))

    def __reduce__(self) -> tuple[Any, ...]:
        known = (self._race.n_arms, self._race.n_rows, self._delta, self._setting, self._options)
        return _rebuild.saved(type(self), known, self._race._get_state(), self._names)

    def __repr__(self) -> str:
        state = "over" if self.done else "running"
        return (
            f"LilUCB(n_arms={self._race.n_arms}, n_rows={self._race.n_rows}, delta={self._delta:g}, "
            f"setting={self._setting!r}): {state}"
        )

    @property
    def done(self) -> bool:
        """Whether the race is over."""
        return self._race.done

    def ask(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return the arm and the row wanted next, each as a vector of length 1; the same until `tell`."""
        return self._race.ask()

    def tell(self, rewards: ArrayLike) -> None:
        """Take the reward that `ask` wanted: one number, or an array that holds one."""
        reward = _checks.numbers_of(rewards, "rewards")
        if reward.size != 1 or reward.dtype.kind not in "fiub":
            raise ValueError(
                f"rewards has shape {reward.shape} and dtype {reward.dtype}; one real number is needed, as "
                f"lil'UCB pulls one arm at a time"
            )
        with _checks.named_arms(self._names, self._race):
            self._race.tell(float(reward.reshape(())))

    def run(self, source: Source | ArrayLike, max_pulls: int | None = None) -> RaceResult:
        """Race to the end, in compiled code without the GIL.

        Parameters
        ----------
        source : Source, array_like of shape (n_rows, n_arms), callable or LowLevelCallable
            Where the rewards come from.
        max_pulls : int, optional
            Pulls after which to stop with the arm pulled most, without a promise. They count from the beginning of the
            race, and a later call may go on.

        Returns
        -------
        RaceResult
            With ``stopped_by`` "bound", "exact" (the best bound was of an arm read in full), "single" or "max_pulls",
            and each arm's width of the upper bound as its `half_width`. Its `lower` and `upper` are no confidence
            intervals: see the notes of the class.
        """
        limit = NO_LIMIT if max_pulls is None else _checks.integer(max_pulls, "max_pulls", 0, "it counts pulls")
        race = self._race
        rewards = _source_of(source, "source", n_arms=race.n_arms, n_rows=race.n_rows)
        columns = column_names(source)
        with naming(self, columns, race):
            race.run(rewards, min(limit, NO_LIMIT))
        return named(self.result(), columns, rewards)

    def result(self) -> RaceResult:
        """Return what is known so far; ``stopped_by`` is empty while the race is running."""
        race = self._race
        known = race.answer()
        size = race.n_arms * race.n_rows
        told = []
        if race.outside:
            told.append("a reward lay outside support: the promise does not hold")
        if known["stopped_by"] == "max_pulls":
            told.append("max_pulls was reached: best is the arm pulled most so far, and nothing is promised of it")
        return RaceResult(
            n_rows=race.n_rows,
            fraction_read=race.total / size if size else 0.0,
            bound=f"lil'UCB {self._setting}",
            delta=self._delta,
            skewness=math.nan,
            kurtosis=math.nan,
            warnings=tuple(told),
            names=self._names,
            **known,
        )


@_checks.rebuilds(1, LilUCB, subclasses=True)
def _rebuild(
    cls: type[LilUCB], known: tuple[Any, ...], state: dict[str, Any], names: tuple[str, ...] | None = None
) -> Any:
    """Rebuild a pickled `LilUCB`."""
    n_arms, n_rows, delta, setting, options = known
    if len(state["pulls"]) != n_arms:           # before memory is taken for so many
        raise ValueError(f"{n_arms} arms cannot have {len(state['pulls'])} counts of pulls")
    race = cls.__new__(cls)
    race._delta, race._setting, race._options = delta, setting, options
    race._names = _checks.arm_names(names, n_arms)
    race._race = _lil.LilRace(n_arms, n_rows, **options)
    race._race._set_state(state)
    return race
