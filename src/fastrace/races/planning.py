"""What a race will cost: simulated before money is spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fastrace._base import _callers, _checks
from fastrace._base._progress import track
from fastrace.races.racing import FiniteRace
from fastrace.results import RacePlan

GRID = np.linspace(-8.0, 8.0, 4001)     # normal scores at which a law of rewards is tabulated
TERMS = 60                              # Hermite terms of a correlation
Quantiles = NDArray[np.float64]


def plan_race(
    gap: float | ArrayLike,
    sd: float,
    n_rows: int,
    n_arms: int = 2,
    correlation: float = 0.0,
    delta: float = 0.05,
    support: tuple[float, float] | None = None,
    *,
    mean: float | None = None,
    n_races: int = 200,
    rng: _checks.RngLike = None,
    progress: bool = False,
    **options: Any,
) -> RacePlan:
    """Simulate how many rewards a race will need, before money is spent.

    Parameters
    ----------
    gap : float or array_like of shape (n_arms - 1,)
        How far the means of the other arms are below the best one, in reward units: one number for all, or one each.
    sd : float
        Standard deviation of the rewards of an arm over the rows.
    n_rows : int
        Rows of the population.
    n_arms : int, default 2
        Number of arms.
    correlation : float, default 0.0
        Correlation of the rewards of two arms on the same row, in [0, 1). Questions that are hard for all models make
        it large, and races short.
    delta : float, default 0.05
        Probability that the answer is wrong.
    support : tuple of float, optional
        Interval (low, high) that holds every reward. Rewards then have a beta law, and the race bets. Without, rewards
        are normal, and so is the rule. For answers that are right or wrong give (0, 1) and an `sd` of 0.5: where that
        is more than a mean allows, rewards are at either end.
    mean : float, optional
        Mean of the best arm; with a support, by default such that the means are in its middle.
    n_races : int, default 200
        Races to simulate.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness.
    progress : bool, default False
        Show a bar on standard error.
    **options
        Of `FiniteRace`: `bound`, `first_look`, `max_pulls` and so on.

    Returns
    -------
    RacePlan
        The rewards that each race read, their mean and quantiles.

    Raises
    ------
    ValueError
        If an argument is out of range, or no law on the support has such means or such a standard deviation.

    Notes
    -----
    Each race is a `FiniteRace` driven by ``ask`` and ``tell``. Rewards are drawn when they are asked for, so memory
    does not grow with `n_rows`. Rewards of one row share a normal score, which makes their correlation; for beta laws
    it is found by expansion in Hermite polynomials. Requests in flight add what is asked for ahead: see `race_async`.

    Examples
    --------
    >>> import fastrace as fr
    >>> plan = fr.plan_race(0.05, 0.5, 10_000, n_arms=4, correlation=0.5, support=(0, 1), n_races=50, rng=1)
    >>> plan.law, plan.right >= 0.9
    ('0/1', True)
    >>> plan.quantile(0.9) < 0.8 * 40_000
    True
    """
    with _callers.options_of("plan_race"):
        if options.get("proxy") is not None:
            raise ValueError("proxy is given; scores say nothing of simulated rewards: leave it out, and give the sd "
                             "that they leave, sd * sqrt(1 - r**2)")
        spread = _checks.positive(sd, "sd", "equal rewards need no race")
        shared = _checks.real(correlation, "correlation")
        if not 0.0 <= shared < 1.0:
            raise ValueError(f"correlation is {correlation}; a number in [0, 1) is needed")
        races = _checks.integer(n_races, "n_races", 1, "it counts races")
        _checks.integer(n_arms, "n_arms", 2, "one arm alone needs no race")
        _checks.integer(n_rows, "n_rows", 1, "there must be something to read")
        first = FiniteRace(n_arms, n_rows, delta, support=support, **options)
        gaps = _gaps(gap, n_arms)
        law, draw = _law(gaps, spread, shared, support, mean)
    read, best = np.zeros(races, np.int64), []
    seeds = _checks.children(_checks.generator(rng), races)
    for k, seed in enumerate(track(seeds, _checks.flag(progress, "progress"), "races")):
        race = FiniteRace(n_arms, n_rows, delta, support=support, rng=seed, **options)
        while not race.done:
            arms, rows = race.ask()
            race.tell(draw(arms, rows.size, seed))
        result = race.result()
        read[k] = result.n_read
        best.append(result.best)
    settings = first._options
    return RacePlan(n_read=read, best=np.array(best, np.intp), n_rows=settings.n_rows, n_arms=settings.n_arms,
                    gap=float(gaps[1]) if np.ndim(gap) == 0 else gaps[1:], sd=spread,
                    correlation=shared, bound=settings.bound, delta=settings.delta, law=law, epsilon=settings.epsilon)


def _gaps(gap: float | ArrayLike, n_arms: int) -> NDArray[np.float64]:
    """How far each arm is below the best, arm 0."""
    others = _checks.arm_values(gap, "gap", n_arms - 1, "arm but the best")
    if not (np.isfinite(others) & (others >= 0.0)).all():
        raise ValueError(f"gap is {_checks.shown(gap)}; finite numbers of at least 0 are needed, how far arms are "
                         f"below the best")
    return np.concatenate([[0.0], others])


Draw = Callable[[NDArray[np.intp], int, np.random.Generator], NDArray[np.float64]]


def _law(
    gaps: NDArray[np.float64], sd: float, correlation: float, support: tuple[float, float] | None, mean: float | None
) -> tuple[str, Draw]:
    """The name of the law of rewards, and a function that draws those of some arms on so many rows."""
    centre = 0.0 if mean is None else _checks.real(mean, "mean")
    if support is None:
        return "normal", lambda arms, count, rng: centre - gaps[arms] + sd * _scores(correlation, arms, count, rng)
    low, high = _checks.interval(support)
    centre = (low + high + gaps.max()) / 2.0 if mean is None else centre
    means, width = (centre - gaps - low) / (high - low), high - low
    if not ((means > 0.0) & (means < 1.0)).all():
        raise ValueError(f"the means go from {centre - gaps.max():g} to {centre:g}, and support is {support}; smaller "
                         f"gaps or another mean are needed")
    if sd > 0.5 * width:
        raise ValueError(f"sd is {sd:g}, and rewards in support {support} have at most {0.5 * width:g}")
    tables = {value: _quantiles(value, sd / width) for value in set(means.tolist())}
    latent = _latent(tables[float(means[0])], correlation)

    def draw(arms: NDArray[np.intp], count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        rewards = _scores(latent, arms, count, rng)
        for j, arm in enumerate(arms):
            rewards[:, j] = low + width * np.interp(rewards[:, j], GRID, tables[float(means[arm])])
        return rewards

    return ("0/1" if _binary(float(means[0]), sd / width) else "beta"), draw


def _scores(correlation: float, arms: NDArray[np.intp], count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Normal scores, rows by arms; those of one row have this correlation."""
    found: NDArray[np.float64] = np.sqrt(1.0 - correlation) * rng.standard_normal((count, arms.size))
    found += np.sqrt(correlation) * rng.standard_normal((count, 1))
    return found


def _binary(mean: float, sd: float) -> bool:
    return mean * (1.0 - mean) <= sd * sd * (1.0 + 1e-3)


def _quantiles(mean: float, sd: float) -> Quantiles:
    """Quantiles of the law on [0, 1] with this mean and standard deviation at the normal scores of the grid."""
    if _binary(mean, sd):
        return (GRID > -special.ndtri(mean)).astype(np.float64)
    weight = mean * (1.0 - mean) / (sd * sd) - 1.0
    return np.asarray(special.betaincinv(mean * weight, (1.0 - mean) * weight, special.ndtr(GRID)))


def _latent(quantiles: Quantiles, correlation: float) -> float:
    """The correlation of normal scores that gives rewards this one.

    With rewards g(Z) = sum of c_k He_k(Z) / sqrt(k!), scores of correlation r give sum of c_k^2 r^k over sum of c_k^2.
    """
    if correlation == 0.0:
        return 0.0
    weights = np.exp(-0.5 * GRID**2)
    weights /= weights.sum()
    before, term, squares = np.zeros_like(GRID), np.ones_like(GRID), np.zeros(TERMS + 1)
    for k in range(TERMS):          # orthonormal Hermite polynomials by their three-term recursion
        before, term = term, (GRID * term - np.sqrt(k) * before) / np.sqrt(k + 1.0)
        squares[k + 1] = (weights @ (term * quantiles)) ** 2
    total = max(float(weights @ quantiles**2 - (weights @ quantiles) ** 2), float(squares.sum()))
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        rest = (total - squares.sum()) * middle ** (TERMS + 1)
        if np.polynomial.polynomial.polyval(middle, squares) + rest < correlation * total:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
