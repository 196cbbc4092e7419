"""A smaller delta, and an arm that is worse than all others at all times, change no answer in the wrong direction."""

import numpy as np
import pytest

import fastrace as fr
from fastrace.pulls import RecordedPulls, ResampledPulls

DELTAS = (0.4, 0.1, 0.01, 1e-4, 1e-9)


def table(seed, n=3000, gap=0.12):
    """Rewards in [0.05, 1] of four arms, with something in common in each row; the third is the best."""
    rng = np.random.default_rng(seed)
    common = rng.choice([-0.1, 0.1], size=(n, 1))
    return 0.4 + common + rng.uniform(-0.19, 0.19, size=(n, 4)) + np.array([0.0, gap / 2, gap, -0.05])


def lucb(values, delta, n_best, **options):
    rule = fr.LUCB(values.shape[1], n_best, 0.0, delta, **options)
    return rule.run(ResampledPulls(values, paired=True, rng=1) if options.get("paired") else RecordedPulls(values))


def betting(values, delta, n_best, **options):
    return fr.BettingRace(values.shape[1], delta=delta, n_best=n_best, **{"support": (0, 1), **options}).run(
        values, order="given")


RACES = {
    "LUCB by pairs": lambda *given: lucb(*given, batch=1),
    "LUCB in common rounds": lambda *given: lucb(*given, batch=1, paired=True),
    "LUCB without a support": lambda *given: lucb(*given, support=None, first_look=50),
    "BettingRace": betting,
    "BettingRace without a support": lambda *given: betting(*given, support=None),
}


@pytest.mark.parametrize("n_best", [1, 2])
@pytest.mark.parametrize("race", RACES)
def test_a_smaller_delta_never_stops_a_race_earlier(race, n_best, seed):
    for k in range(4):
        # Without a support a race on streams starts at 200 rounds.
        values = table([seed, k], gap=0.1 if race == "BettingRace without a support" else 0.3)
        found = [RACES[race](values, delta, n_best) for delta in DELTAS]
        assert all(result.stopped_by == "bound" for result in found)
        read = [int(np.max(result.pulls)) for result in found]
        assert read == sorted(read) and read[0] < read[-1]
        assert all(result.error_bound <= delta for result, delta in zip(found, DELTAS, strict=True))
        last = set(np.ravel(found[-1].best).tolist())
        assert last == ({2} if n_best == 1 else {1, 2})


@pytest.mark.parametrize("n_best", [1, 2])
@pytest.mark.parametrize("race", RACES)
def test_a_dominated_arm_changes_no_winner_of_a_race(race, n_best, seed):
    for k in range(4):
        values = table([seed, k], gap=0.3)
        more = np.column_stack([values, values.min(axis=1) - 0.05])
        one, other = RACES[race](values, 1e-6, n_best), RACES[race](more, 1e-6, n_best)
        assert set(np.ravel(one.best).tolist()) == set(np.ravel(other.best).tolist())
        assert other.verdict[4] == "worse"
        assert other.pulls[4] <= other.pulls.max()


COMPARISONS = {"exact": {"support": (0, 1)}, "asymptotic": {"first_look": 30},
               "clusters": {"clusters": True, "first_look": 30}}


def compared(kind, values, arms, delta, n_arms):
    test = fr.Comparison(n_arms, delta, **COMPARISONS[kind])
    keys = np.arange(arms.size) // 3 if kind == "clusters" else None
    test.observe_many(arms, values, clusters=keys)
    return test


def holds_within(inner, outer, pairs):
    """Whether all intervals of one comparison, at all looks, lie in those of the other; of these pairs."""
    for low, high, chosen in (("lower", "upper", slice(4)), ("difference_lower", "difference_upper", pairs)):
        if not (np.all(outer[low][:, chosen] <= inner[low][:, chosen] + 1e-9)
                and np.all(inner[high][:, chosen] <= outer[high][:, chosen] + 1e-9)):
            return False
    return True


@pytest.mark.parametrize("kind", COMPARISONS)
def test_a_smaller_delta_never_makes_an_interval_of_a_comparison_narrower(kind, seed):
    rng = np.random.default_rng(seed)
    arms = rng.choice(4, size=3000, p=[0.5, 0.3, 0.15, 0.05])
    x = table([seed, 9])[np.arange(3000), arms]
    found = [compared(kind, x, arms, delta, 4) for delta in DELTAS]
    for wide, narrow in zip(found[1:], found, strict=False):
        assert holds_within(narrow.history, wide.history, slice(None))
        for was, now in zip(narrow.result().verdict, wide.result().verdict, strict=True):
            assert now in (was, "not known yet")
    verdicts = [test.result().verdict.count("not known yet") for test in found]
    assert verdicts[0] < verdicts[-1]


@pytest.mark.parametrize("kind", COMPARISONS)
def test_a_dominated_arm_turns_no_verdict_of_a_comparison(kind, seed):
    """Of the same events of the others, each pair has a smaller share of delta."""
    rng = np.random.default_rng(seed)
    arms = rng.choice(4, size=3000, p=[0.5, 0.3, 0.15, 0.05])
    values = table([seed, 9])
    x = values[np.arange(3000), arms]
    few = fr.Comparison(4, **COMPARISONS[kind])
    many = fr.Comparison(5, **COMPARISONS[kind])
    for start in range(0, 3000, 100):
        part = slice(start, start + 100)
        keys = np.arange(start, start + 100) // 3 if kind == "clusters" else None
        worst = {"clusters": -1 - np.arange(start, start + 100) // 3} if kind == "clusters" else {}
        for test in (few, many):
            test.observe_many(arms[part], x[part], clusters=keys)
        many.observe_many(4, values[part].min(axis=1) - 0.05, **worst)
        one, other = few.result(), many.result()
        pairs = (other.pairs != 4).all(axis=1)
        assert other.pairs[pairs].tolist() == one.pairs.tolist()
        assert (other.difference_lower[pairs] <= one.difference_lower + 1e-9).all()
        assert (one.difference_upper <= other.difference_upper[pairs] + 1e-9).all()
        assert (other.error_bound[pairs] >= one.error_bound * (1 - 1e-9)).all()
        for was, now in zip(one.verdict, np.array(other.verdict)[pairs].tolist(), strict=True):
            assert now in (was, "not known yet")
        assert "better" not in np.array(other.verdict)[~pairs].tolist()
    assert "not known yet" not in np.array(other.verdict)[~pairs].tolist()[:3]
