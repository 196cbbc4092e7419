"""Doors that pair rows of several pandas objects refuse those whose indexes differ, and take them once they agree."""

import numpy as np
import pytest

import fastrace as fr
from fastrace.model_selection import race_predictions

pd = pytest.importorskip("pandas")

ARMS = pd.Series(np.tile(["a", "b"], 100))
REWARDS = (ARMS == "b").astype(float)


def observed(rewards, **more):
    comparison = fr.Comparison(["a", "b"], support=(0, 1), clusters="clusters" in more)
    comparison.observe_many(ARMS, rewards, **more)
    return comparison.result().mean.tolist()


def read(rewards):
    events = {"arm": ARMS, "reward": rewards}
    return fr.Comparison.from_frame(events, arm="arm", reward="reward", support=(0, 1)).result().mean.tolist()


def paired(rewards, of="samples"):
    return fr.permutation_test((REWARDS, rewards), lambda a, b, axis: (a * b).mean(axis=axis), permutation_type=of,
                               n_resamples=99, rng=1).statistic


def scored(predicted, **more):
    return race_predictions(REWARDS, predicted, scoring="neg_mean_squared_error", support=(-1, 0), rng=1, **more).best


DOORS = {
    "observe_many": observed,
    "clusters": lambda keys: observed(REWARDS, clusters=keys),
    "times": lambda times: observed(REWARDS, times=times),
    "from_frame": read,
    "race_predictions": lambda predicted: scored(pd.DataFrame({"p": predicted, "q": 1 - predicted})),
    "sample_weight": lambda weights: scored(np.c_[REWARDS, 1 - REWARDS], sample_weight=weights + 1.0),
    "proxy": lambda scores: fr.estimate_mean(REWARDS, 0.2, accuracy="absolute", support=(0, 1), proxy=scores,
                                             rng=1).estimate,
    "samples": paired,
    "pairings": lambda rewards: paired(rewards, "pairings"),
}


@pytest.mark.parametrize("door", DOORS)
def test_rows_in_another_order_are_refused(door):
    shuffled = REWARDS.sample(frac=1.0, random_state=1)
    with pytest.raises(ValueError, match="the pandas indexes of .* differ: row 0 is 0 in the one and"):
        DOORS[door](shuffled)
    assert DOORS[door](shuffled.loc[ARMS.index]) == DOORS[door](REWARDS.to_numpy())


def test_independent_samples_have_no_rows_in_common():
    assert paired(REWARDS.sample(frac=1.0, random_state=1), "independent") <= 1.0


GENES, PEOPLE = ["g1", "g2", "g3"], ["p1", "p2", "p3", "p4", "p5", "p6"]
TABLE = pd.DataFrame(np.random.default_rng(0).normal(size=(3, 6)), index=GENES, columns=PEOPLE)


def along(frames, of, axis=1):
    return fr.permutation_test(frames, lambda a, b, axis: a.mean(axis) - b.mean(axis), permutation_type=of, axis=axis,
                               n_resamples=99, rng=1).statistic


@pytest.mark.parametrize("axis", [0, 1])
def test_samples_along_columns_are_matched_by_columns_and_hypotheses_by_rows(axis):
    def turned(frame):
        return frame if axis == 1 else frame.T

    other = TABLE + 1.0
    genes, people = other.loc[GENES[::-1]], other[PEOPLE[::-1]]
    for of in ("samples", "independent"):
        wanted = along((turned(TABLE), turned(other)), of, axis)
        with pytest.raises(ValueError, match=r"data\[0\] and data\[1\] have the same .* in another order"):
            along((turned(TABLE), turned(genes)), of, axis)
        assert (along((turned(TABLE), turned(genes).to_numpy()), of, axis) != wanted).any()
        renamed = other.set_axis(["h1", "h2", "h3"])        # other names than these say nothing of the order
        assert (along((turned(TABLE), turned(renamed)), of, axis) == wanted).all()
    assert along((turned(TABLE), turned(people)), "independent", axis) == pytest.approx(wanted)
    with pytest.raises(ValueError, match="same columns in another" if axis == 1 else "the pandas indexes of .* differ"):
        along((turned(TABLE), turned(people)), "samples", axis)


def test_a_pandas_index_is_a_column_of_values():
    when = pd.to_datetime("2026-01-01") + pd.to_timedelta(np.arange(200), "D")
    observed(REWARDS, times=when)
    observed(REWARDS, clusters=pd.Index(np.arange(200)[::-1]))
    assert observed(pd.Index(REWARDS)) == observed(REWARDS)


@pytest.mark.parametrize("count", [2, 150])
def test_rows_of_many_candidates_are_compared_too(count):
    shuffled = REWARDS.sample(frac=1.0, random_state=1)
    with pytest.raises(ValueError, match="the pandas indexes of y_true and y_pred differ"):
        scored([REWARDS] * (count - 1) + [shuffled])
    assert scored([1.0 - REWARDS] * (count - 1) + [REWARDS]) == count - 1
