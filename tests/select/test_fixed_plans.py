"""Rules that plan their pulls beforehand, OCBA and the race of subsets: equal to their twins."""

import math

import numpy as np
import pytest
from scipy import stats

import fastrace as fr
from fastrace.pulls import BernoulliPulls, RecordedPulls
from guarantee import assert_rate_at_most
from reference import selection as twin
from selections import MEANS, RULES, drive

# Fixed plans.


def test_the_price_of_plans_is_known_beforehand():
    root = math.sqrt(12)
    for width, direct, halving, incremental, single in (
        (1.0, 58_100, 2_031_925, 166_692_244, 8_491_933),
        (root, 697_100, 24_382_550, None, 101_902_841),
        (1 + root, 1_157_700, 40_491_650, None, 169_228_367),
    ):
        support = (0.0, width)
        assert fr.Direct(50, 15, 0.1, 0.15, support).planned_pulls == direct
        assert fr.Halving(50, 15, 0.1, 0.15, support).planned_pulls == halving
        assert incremental in (None, fr.Incremental(50, 15, 0.1, 0.15, support).planned_pulls)
        assert fr.MedianElimination(50, 0.1, 0.15, support).planned_pulls == single


class Streams:
    """Uniform rewards of each arm from a generator of its own: one by one, or as a selection asks."""

    def __init__(self, n, seed):
        self.rngs = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(n)]

    def one(self, arm):
        return self.rngs[arm].random()

    def pull(self, arms, counts):
        return [self.rngs[arm].random(count) for arm, count in zip(arms, counts, strict=True)]


@pytest.mark.parametrize(("n", "m"), [(8, 2), (8, 1), (7, 3), (5, 4), (4, 4)])
def test_direct_and_incremental_equal_their_twins(n, m, seed):
    for cls, line in ((fr.Direct, twin.direct), (fr.Incremental, twin.incremental)):
        rule = cls(n, m, 0.9, 0.5)
        chosen, pulls = line(Streams(n, seed).one, n, m, 0.9, 0.5)
        if m == n:
            pulls = [0] * n             # there is nothing to find, so our rules pull nothing
        result = rule.run(Streams(n, seed).pull)
        assert set(np.ravel(result.best).tolist()) == chosen and result.pulls.tolist() == pulls
        assert rule.planned_pulls == sum(pulls)
    pulls = [0] * n
    chosen = twin.median_elimination(Streams(n, seed).one, range(n), 0.9, 0.5, pulls)
    result = fr.MedianElimination(n, 0.9, 0.5).run(Streams(n, seed).pull)
    assert (result.best, result.pulls.tolist()) == (chosen, pulls)


@pytest.mark.parametrize(("n", "m"), [(8, 2), (8, 1), (7, 3), (5, 4), (64, 4), (9, 9)])
def test_halving_equals_its_twin(n, m, seed):
    table = np.random.default_rng(seed).random((fr.Halving(n, m, 0.9, 0.5).planned_pulls, n))
    columns = [iter(column) for column in table.T.tolist()]
    wanted, pulls = twin.halving(lambda i: next(columns[i]), n, m, 0.9, 0.5)
    result = fr.Halving(n, m, 0.9, 0.5).run(table, order="given")
    assert set(np.ravel(result.best).tolist()) == wanted and result.pulls.tolist() == pulls
    assert fr.Halving(n, m, 0.9, 0.5).planned_pulls == sum(pulls)


def test_ties_go_to_the_lower_numbers_and_plans_end():
    for make in (RULES["direct"], RULES["halving"], RULES["incremental"], RULES["uniform"]):
        assert set(make(6, 2).run(lambda arms, counts: np.full(counts.sum(), 0.25)).best) == {0, 1}

# OCBA and the race.


@pytest.mark.parametrize(("n", "m", "batch"), [(6, 2, 1), (6, 1, 7), (5, 4, 20), (12, 5, 50)])
def test_every_batch_of_ocba_is_what_its_twin_lacks_rounded(n, m, batch, seed):
    # Of two arms next to the cutoff with as many pulls both lack the same: which one comes first is up to rounding.
    streams, rule = Streams(n, seed), fr.OCBA(n, m, 600, n0=10, batch=batch, draw="deficit")
    rewards = [[] for _ in range(n)]
    while not rule.done:
        arms, counts = rule.ask()
        if rewards[0]:
            lacks, given = np.array(twin.ocba_lacks(rewards, m, int(counts.sum()))), np.zeros(n, int)
            given[arms] = counts
            assert counts.sum() == min(batch, 600 - rule.n_pulls)
            assert (np.floor(lacks - 1e-9) <= given).all() and (given <= np.ceil(lacks + 1e-9)).all()
            rest, up = lacks - np.floor(lacks + 1e-9), given > lacks + 1e-9         # the largest remainders
            assert rest[up].min(initial=1.0) >= rest[~up].max(initial=0.0) - 1e-9
        for arm, part in zip(arms, streams.pull(arms, counts), strict=True):
            rewards[arm] += part.tolist()
        rule.tell([rewards[arm][-count:] for arm, count in zip(arms, counts, strict=True)])
    assert rule.result().pulls.tolist() == [len(part) for part in rewards]


def test_ocba_follows_its_shares(seed):
    table = np.random.default_rng(seed).random((3000, 6)) * [0.3, 1, 0.5, 0.9, 0.6, 0.4]
    rule = fr.OCBA(6, 2, 1500, n0=10, batch=1, draw="deficit", rng=1)
    source = RecordedPulls(table)
    rule.tell(source.read(*rule.ask()))
    for _ in range(300):
        state = rule._core.get_state()
        u = state["pulls"]
        share, c = twin.ocba_shares(state["mean"], np.sqrt(state["m2"] / (u - 1)), u, 2)
        assert rule.result().cutoff == pytest.approx(c, rel=1e-9)
        lacking = np.array(share) * (u.sum() + 1) - u
        arms, counts = rule.ask()
        assert counts.tolist() == [1] and lacking[arms[0]] == pytest.approx(lacking.max())
        rule.tell(source.read(arms, counts))
    rule = fr.OCBA(6, 2, 1500, n0=10, batch=40, rng=1)
    source = RecordedPulls(table)
    rule.tell(source.read(*rule.ask()))
    state = rule._core.get_state()
    share, _ = twin.ocba_shares(state["mean"], np.sqrt(state["m2"] / 9), state["pulls"], 2)
    lacking = np.array(share) * 100 - 10
    assert set(rule.ask()[0].tolist()) <= set(np.flatnonzero(lacking > 0)) and rule.ask()[1].sum() == 40
    assert drive(rule, source).n_read == 1500


@pytest.mark.parametrize(("plan", "epsilon", "shorter"), [
    (fr.Direct, 0.1, 7), (fr.Direct, 0.5, 9), (fr.Halving, 0.1, 150), (fr.Incremental, 0.1, 300),
    (fr.MedianElimination, 0.1, 300)])
def test_the_true_error_of_a_plan_of_two_arms_is_within_delta(plan, epsilon, shorter):
    """Of two arms of zeros and ones, one 0 whenever the other is 1, a little more than epsilon apart, the worse wins.

    The plans are far longer than two arms need: only plans 1/7 as long of Direct, 1/150 of halving, and 1/300 of the
    others break the promise here. What holds them beyond is that they are those of the papers, tested above.
    """
    delta, rate = 0.2, 0.5 + 0.5 * epsilon + 1e-9
    rule = plan(2, epsilon, delta) if plan is fr.MedianElimination else plan(2, 1, epsilon, delta)
    pulls = rule.planned_pulls // 2

    def error(n):
        """Of n pulls of each: a tie goes to the worse arm, which comes first."""
        return stats.binom.cdf(n // 2, n, rate)

    for ones in (pulls // 2, pulls // 2 + 1):       # it goes by the sums alone
        x = np.repeat([1.0, 0.0], [ones, pulls - ones])
        rule = plan(2, epsilon, delta) if plan is fr.MedianElimination else plan(2, 1, epsilon, delta)
        result = rule.run(np.column_stack([1.0 - x, x]), order="given")
        assert result.n_read == 2 * pulls and result.best == (2 * ones > pulls)
    assert error(pulls) <= delta < error(pulls // shorter)


def test_ocba_survives_ties_and_constants():
    for draw in ("proportional", "deficit"):
        result = fr.OCBA(4, 2, 500, draw=draw, rng=1).run(lambda arms, counts: np.full(counts.sum(), 0.5))
        assert result.n_read == 500 and np.ravel(result.best).tolist() == [0, 1]


@pytest.mark.parametrize("horizon", [1, 40, 300])
def test_the_race_equals_counting_pairs(horizon, seed):
    for k in range(5):
        table = np.random.default_rng([seed, k]).random((horizon, 9)) * np.linspace(0.2, 1.0, 9)
        selected, discarded, pulls = twin.race(table, 3, horizon, 0.2, 1.0)
        rule = fr.SubsetRace(9, 3, horizon, 0.2)
        result = rule.run(table, order="given")
        state = rule._core.decided()[0]
        assert set(np.flatnonzero(state == 1)) == selected and set(np.flatnonzero(state == -1)) == discarded
        assert result.pulls.tolist() == pulls
        over = len(selected) == 3 or len(discarded) == 6
        assert result.stopped_by == ("bound" if over else "horizon")
        assert over or "not decided" in str(result)


def test_the_race_keeps_its_promise_and_may_go_beyond(seed):
    """Refutes what is wrong by much alone; its true chance of an error is in `contracts/test_true_errors.py`."""
    wrong = 0
    for k in range(150):
        result = fr.SubsetRace(5, 2, 1000, 0.1, bound="bernstein").run(BernoulliPulls(MEANS[:5], rng=[seed, k]))
        wrong += result.stopped_by == "bound" and set(np.ravel(result.best).tolist()) != {1, 3}
    assert_rate_at_most(wrong, 150, 0.1)
    beyond = fr.SubsetRace(5, 2, 1, 0.1, beyond=True).run(BernoulliPulls(MEANS[:5], rng=seed), max_pulls=10**6)
    assert beyond.stopped_by == "bound" and "beyond its horizon" in str(beyond)
    assert math.isnan(beyond.error_bound)
