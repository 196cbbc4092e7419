"""Confidence sequences hold the mean as often as promised, also merged; how many samples the default rule saves."""

import copy
import math
import pickle

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_rate_at_most, few_or_many
from reference import sequences as twin
from sequence_laws import BOUNDS, LAWS, MEANS, RULES, TWINS

# Promises


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bound", BOUNDS)
@few_or_many("most", 100, 300)
def test_intervals_hold_the_mean_at_all_times(bound, law, most, seed):
    few = {"betting": 40, "universal": 60, "empirical-bernstein-mixture": 60}
    trials, n = (few[bound], 600) if bound in few else (most, 1500)
    trials, delta, missed = max(trials, most // 3), 0.1, 0
    for child in np.random.SeedSequence([seed, 1]).spawn(trials):
        sequence = fr.ConfidenceSequence(bound, delta=delta)
        sequence.update_many(LAWS[law](np.random.default_rng(child), n))
        low, high = sequence.interval
        missed += sequence.stopped_by == "inconsistent" or not low - 1e-9 <= MEANS[law] <= high + 1e-9
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.parametrize("law", [law for law in LAWS if law not in ("bernoulli 0.01", "constant 0")])
@pytest.mark.parametrize("name", RULES)
@few_or_many("most", 100, 300)
def test_estimates_are_as_accurate_as_promised(name, law, most, seed):
    trials, delta, missed = 60 if "Bet" in name else most, 0.1, 0
    for child in np.random.SeedSequence([seed, 2]).spawn(trials):
        rule = RULES[name](epsilon=0.25, delta=delta)
        rule.update_many(LAWS[law](np.random.default_rng(child), 20_000))
        assert rule.stopped
        missed += abs(rule.estimate - MEANS[law]) > 0.25 * MEANS[law]
    assert_rate_at_most(missed, trials, delta)


def test_sign_tests_are_right(seed):
    trials, delta, missed = 400, 0.1, 0
    for child in np.random.SeedSequence([seed, 3]).spawn(trials):
        test = fr.SignStop(0.0, delta, support=(-0.4, 0.6))
        test.update_many(np.random.default_rng(child).uniform(-0.35, 0.55, 20_000))
        assert test.stopped
        missed += test.estimate != 1.0
    assert_rate_at_most(missed, trials, delta)

# Merging


@pytest.mark.parametrize("bound", BOUNDS)
def test_merged_sequences_are_narrower_and_hold_the_mean(bound, seed):
    missed, delta, trials = 0, 0.1, 40 if bound == "betting" else 200
    for child in np.random.SeedSequence([seed, 4]).spawn(trials):
        z = np.random.default_rng(child).beta(1, 3, 900)
        parts = [fr.ConfidenceSequence(bound, delta=delta) for _ in range(3)]
        for part, xs in zip(parts, np.split(z, 3), strict=True):
            part.update_many(xs)
        if any(part.stopped_by for part in parts):          # a miss of a part, which another test counts
            continue
        others = [pickle.dumps(part) for part in parts[1:]]
        alone = parts[0].half_width
        for other in parts[1:]:
            parts[0].merge(other)
        assert [pickle.dumps(part) for part in parts[1:]] == others
        assert parts[0].n_samples == 900
        assert parts[0].estimate == pytest.approx(z.mean(), abs=1e-12)
        if parts[0].stopped_by == "inconsistent":
            missed += 1
            continue
        if bound == "universal":        # which may have come closest in the middle of the first part
            assert parts[0].half_width <= alone
        else:
            assert parts[0].half_width < alone
        missed += not parts[0].interval[0] <= 0.25 <= parts[0].interval[1]
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.parametrize("bound", ["hoeffding", "universal", "beta-binomial"])
def test_merging_equals_one_stream_whose_guesses_start_afresh(bound):
    z = np.random.default_rng(0).random(300)
    if bound == "beta-binomial":
        z = z.round()
    one, two = fr.ConfidenceSequence(bound), fr.ConfidenceSequence(bound)
    one.update_many(z[:100])
    two.update_many(z[100:])
    one.merge(two)
    whole = fr.ConfidenceSequence(bound)
    whole.update_many(z)
    if bound in TWINS or bound == "beta-binomial":
        low, high = (TWINS | {"beta-binomial": twin.beta_binomial})[bound](z, 0.05)[-1]
        assert one.interval[0] >= low - 1e-12 and one.interval[1] <= high + 1e-12
    assert one.interval[0] <= whole.interval[0] + 1e-12     # the interval at the end is the same, those between are not
    assert one.interval[1] >= whole.interval[1] - 1e-12
    one.update_many(z)
    assert one.n_samples == 600


def test_merging_what_does_not_fit():
    one = fr.ConfidenceSequence("plug-in")
    one.update(0.5)
    before = pickle.dumps(one)
    for other, error, match in [
        (fr.ConfidenceSequence("stitched"), ValueError, "bound"),
        (fr.ConfidenceSequence("plug-in", delta=0.1), ValueError, "delta"),
        (fr.ConfidenceSequence("plug-in", support=(0, 2)), ValueError, "support"),
        (one, ValueError, "itself"),
        (fr.TargetEBStop(), TypeError, "ConfidenceSequence"),
    ]:
        with pytest.raises(error, match=match):
            one.merge(other)
    population = fr.ConfidenceSequence("plug-in", n_rows=10)
    with pytest.raises(ValueError, match="without replacement"):
        population.merge(fr.ConfidenceSequence("plug-in", n_rows=10))
    assert pickle.dumps(one) == before

# Long streams


def test_a_sequence_after_2_to_the_40_rewards():
    """By doubling: a copy of a stream merged into it forty times."""
    for bound in ("plug-in", "stitched", "hoeffding", "empirical-bernstein-mixture", "universal"):
        sequence = fr.ConfidenceSequence(bound)
        sequence.update_many(np.tile([0.2, 0.4], 512))
        while sequence.n_samples < 2**40:
            sequence.merge(copy.copy(sequence))
        low, high = sequence.interval
        assert sequence.n_samples == 2**40
        assert low < 0.3 < high
        assert 0 < high - low < (0.02 if bound == "plug-in" else 1e-4)     # whose bets stay those of 1024 rewards
        assert sequence.estimate == pytest.approx(0.3, abs=1e-12)
        sequence.update_many(np.tile([0.2, 0.4], 100))
        assert sequence.stopped_by == ""

# Widths

WIDTHS_OF = {
    "beta(100, 300)": lambda rng, n: rng.beta(100, 300, n),
    "beta(10, 30)": lambda rng, n: rng.beta(10, 30, n),
    "uniform": LAWS["uniform"],
    "bernoulli 0.1": lambda rng, n: (rng.random(n) < 0.1).astype(float),
    "bernoulli 0.005": lambda rng, n: (rng.random(n) < 0.005).astype(float),
    "lognormal": LAWS["lognormal"],
}
POWERS = [10**k for k in range(1, 6)]


def streams_of(law, runs, n):
    return [WIDTHS_OF[law](np.random.default_rng(child), n) for child in np.random.SeedSequence(20080705).spawn(runs)]


def median_widths(bound, streams, times):
    found = []
    for x in streams:
        sequence, row = fr.ConfidenceSequence(bound), []
        for t in times:
            sequence.update_many(x[sequence.n_samples:t])
            row.append(np.ptp(sequence.interval))
        found.append(row)
    return np.median(found, axis=0)


@pytest.mark.parametrize("law", WIDTHS_OF)
@few_or_many("runs", 25, 100)
def test_the_default_kind_is_the_narrowest_or_within_3_percent_of_it(law, runs):
    streams = streams_of(law, runs, POWERS[-1])
    ours = median_widths("universal", streams, POWERS)
    for bound in BOUNDS:
        assert (ours <= 1.03 * median_widths(bound, streams, POWERS)).all(), bound
    if law.startswith("bernoulli"):     # of zeros and ones, whose own kind is the narrower in the first tens
        assert (ours <= 1.03 * median_widths("beta-binomial", streams, POWERS))[1:].all()


@pytest.mark.parametrize("law", WIDTHS_OF)
@few_or_many(("runs", "last"), (5, 4), (10, 5))
def test_from_10_rewards_on_the_default_kind_is_within_3_percent_of_a_portfolio_of_all_bets(law, runs, last):
    streams = streams_of(law, runs, 10**last)
    before, times = [1, 2, 3, 5, 7], np.geomspace(10, 10**last, 4 * last - 3).astype(int).tolist()
    exact = []
    for x in streams:
        low, high = np.transpose(twin.arcsine_portfolio(x, 0.05, before + times))
        exact.append((np.minimum.accumulate(high) - np.maximum.accumulate(low))[len(before) :])
    assert (median_widths("universal", streams, times) <= 1.03 * np.median(exact, axis=0)).all()


def test_a_portfolio_of_all_bets_is_the_evidence_of_zeros_and_ones(seed):
    z, times = (np.random.default_rng(seed).random(400) < 0.2).astype(float), [1, 2, 10, 50, 400]
    expected = twin.beta_binomial(z, 0.05)
    np.testing.assert_allclose(twin.arcsine_portfolio(z, 0.05, times), [expected[t - 1] for t in times], atol=1e-7)

# Samples beside the rule that the default one replaces


def ebgstop_star(x, epsilon, delta, beta=1.1, p=1.1):
    """Samples that EBGStop takes with the parameters its authors prefer, over arrays."""
    t = np.arange(1, x.size + 1)
    ends = np.floor(beta ** np.arange(math.ceil(math.log(x.size) / math.log(beta)) + 2))
    k = np.maximum(np.searchsorted(ends, t), 1)
    level = ends[k] / ends[k - 1] * np.log(3 * k**p * p / (delta * (p - 1)))
    mean = np.cumsum(x) / t
    half = np.sqrt(2 * np.maximum(np.cumsum(x * x) / t - mean**2, 0) * level / t) + 3 * level / t
    half[0] = np.inf
    low = np.maximum.accumulate(np.maximum(np.abs(mean) - half, 0))
    stops = (1 + epsilon) * low >= (1 - epsilon) * np.minimum.accumulate(np.abs(mean) + half)
    assert stops.any()
    return int(stops.argmax()) + 1


def uniforms(low, high, n, size):
    return lambda rng: low + (high - low) * rng.random((size, n)).mean(axis=1)


SETTINGS = {
    **{f"mean of {n} uniforms": uniforms(0, 1, n, 4000 if n < 50 else 1200) for n in (1, 5, 10, 50, 100)},
    **{f"uniforms about {mean}": uniforms(mean - 0.1, mean + 0.1, 10, int(700 / mean))
       for mean in (0.9, 0.7, 0.5, 0.3)},
    "uniforms about 0.1": uniforms(0, 0.2, 10, 6000),
    **{f"bernoulli {p}": lambda rng, p=p: (rng.random(int(5000 / p) + 2000) < p).astype(float)
       for p in (0.99, 0.9, 0.5, 0.1, 0.05)},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_default_rule_takes_a_sixth_of_the_samples_of_ebgstop(setting, seed):
    rng = np.random.default_rng([seed, 6])
    streams = [SETTINGS[setting](rng) for _ in range(20 if "bernoulli" in setting else 5)]
    before = np.array([ebgstop_star(x, 0.1, 0.1) for x in streams])
    ours = np.array([fr.TargetEBStop(0.1, 0.1).update_many(x) for x in streams])
    error = math.hypot(before.std() / before.mean(), ours.std() / ours.mean()) / math.sqrt(ours.size)
    assert before.mean() / ours.mean() > 6.0 * (1.0 - 3.0 * error)
