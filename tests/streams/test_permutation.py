"""Permutation tests that stop early."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from scipy import special, stats

import fastrace as fr
from fastrace.streams._counts import at_least, fewer, log_wealth
from guarantee import assert_fits, assert_rate_at_most, few_or_many
from reference import permutation as twin


def difference(x, y, axis):
    return x.mean(axis=axis) - y.mean(axis=axis)


def told(rule, rows):
    """The rule, told these statistics of all hypotheses."""
    while not rule.done:
        k, active = rule.ask()
        rule.tell(rows[rule.n_read : rule.n_read + k][:, active])
    return rule


def rows_with(counts, total, rng):
    """0/1 statistics of so many ones in each column, in random order."""
    return np.stack([rng.permutation(np.arange(total) < count) for count in counts], axis=1).astype(float)


# The formulas.

@pytest.mark.parametrize(("count", "read", "total"), [(0, 0, 5), (0, 7, 20), (3, 7, 20), (20, 20, 20), (5, 40, 60)])
def test_the_wealth_is_the_ratio_of_mixture_and_likelihood(count, read, total):
    for k in range(total + 1):
        p, found = twin.likelihood(count, read, total, k), float(log_wealth(count, read, total, k))
        if p:
            assert found == pytest.approx(twin.log(twin.mixture(count, read) / p), abs=1e-9)
        else:
            assert found == math.inf


@pytest.mark.parametrize(("total", "risk"), [(19, 0.02), (60, 0.001), (60, 0.3)])
def test_what_is_sure_is_what_no_candidate_contradicts(total, risk):
    bar = -math.log(risk)
    for read in range(0, total + 1, 4):
        for count in range(0, read + 1, 3):
            kept = twin.candidates(count, read, total, twin.Fraction(str(risk)))
            cuts = np.arange(-1, total + 3)
            assert fewer(count, read, total, cuts, bar).tolist() == [cut > kept[-1] for cut in cuts]
            assert at_least(count, read, total, cuts, bar).tolist() == [cut <= kept[0] for cut in cuts]


@pytest.mark.parametrize("correction", ["bh", "bonferroni", None])
@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
def test_it_decides_as_its_twin(alternative, correction):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        observed = np.array([0.0, 0.5, -0.3, -1.5, 0.1])
        rows = np.round(rng.normal(size=(120, 5)) + [2.0, 0.3, 0.0, 2.5, 0.0], 1)
        rule = fr.PermutationTest(-observed, 0.2, alternative=alternative, n_resamples=120, correction=correction,
                                  risk=0.01)
        told(rule, rows)
        seen = {"greater": [rows >= -observed], "less": [rows <= -observed]}
        seen["two-sided"] = seen["greater"] + seen["less"]
        lists = [side.astype(int).tolist() for side in seen[alternative]]
        words, used, read = twin.decide(lists, 120, 0.2, 0.01, correction)
        assert rule.decisions.tolist() == words
        assert rule.result().n_permutations.tolist() == used
        assert rule.n_read == read


# The promises, exactly and by trials.

def chances(total, cut, bar, accepts):
    """Probability of a rejection for each number of ones among all: exact, by every count at every look."""
    log_comb = np.array([[special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1) if k <= n
                          else -np.inf for k in range(total + 1)] for n in range(total + 1)])
    looks = [min(16, total)]
    while looks[-1] < total:
        looks.append(min(total, looks[-1] + max(16, looks[-1] // 8)))
    found, counts = np.zeros(total + 1), np.arange(total + 1)
    for ones in range(total + 1):
        alive, read = np.eye(1, total + 1)[0], 0
        for look in looks:
            after = np.zeros(total + 1)
            for count in np.flatnonzero(alive):
                more = np.arange(min(look - read, ones - count) + 1)
                more = more[total - read - (ones - count) >= look - read - more]
                chance = np.exp(log_comb[ones - count, more] + log_comb[total - read - ones + count, look - read - more]
                                - log_comb[total - read, look - read])
                after[count + more] += alive[count] * chance
            rejects = fewer(counts, look, total, cut, bar) & (counts <= look)
            found[ones] += after[rejects].sum()
            gone = rejects | (at_least(counts, look, total, cut, bar) if accepts else False) | (counts > look)
            alive, read = np.where(gone, 0.0, after), look
    return found


@pytest.mark.parametrize(("total", "alpha", "risk"), [(99, 0.1, 0.01), (60, 0.3, 0.1), (19, 0.05, 0.0)])
def test_exact_probabilities_of_errors_keep_both_promises(total, alpha, risk):
    cut = math.floor((alpha - risk) * (total + 1) + 1e-9)
    bar = -math.log(risk) if risk else math.inf
    by_count = chances(total, cut, bar, accepts=True)
    assert (by_count[:cut] >= 1.0 - risk - 1e-9).all()           # what all resamples reject is rejected
    assert (by_count[cut:] <= risk + 1e-9).all()
    assert by_count.mean() <= alpha                             # under the null each count is equally probable
    assert chances(total, cut, bar, accepts=False).mean() <= alpha       # and so is the p-value valid at any time
    if not risk:
        assert (by_count == (np.arange(total + 1) < cut)).all()


@few_or_many("trials", 100, 4000)
def test_decisions_are_those_of_all_resamples(trials, seed=20160619):
    """Counts next to the cut, where errors are most likely, at a risk that trials can see."""
    total, alpha, risk, missed = 999, 0.1, 0.05, 0
    cut = math.floor((alpha - risk) * (total + 1) + 1e-9)
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        count = cut - int(rng.integers(2))
        rule = fr.PermutationTest(1.0, alpha, alternative="greater", n_resamples=total, risk=risk)
        missed += told(rule, rows_with([count], total, rng)).decisions[0] != (1 if count < cut else -1)
    assert_rate_at_most(missed, trials, risk)


@few_or_many("trials", 200, 2000)
@pytest.mark.parametrize("correction", ["bh", "bonferroni"])
def test_decisions_of_many_are_those_of_all_resamples(trials, correction, seed=20160619):
    missed, total, risk = 0, 199, 0.05
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        counts = np.where(rng.random(8) < 0.4, rng.integers(0, 30, 8), rng.integers(0, total, 8))
        rows = rows_with(counts, total, rng)
        rule = fr.PermutationTest(np.ones(8), 0.25, alternative="greater", n_resamples=total, risk=risk,
                                  correction=correction)
        wanted = twin.reference([rows.astype(int).tolist()], 0.25, risk, correction)
        missed += told(rule, rows).decisions.tolist() != wanted
    assert_rate_at_most(missed, trials, risk)


@few_or_many("trials", 60, 4000)
@pytest.mark.parametrize("law", ["normal", "ties", "rare"])
def test_a_true_null_hypothesis_is_rejected_with_probability_at_most_alpha(law, trials, seed=20160619):
    draw = {"normal": lambda rng: rng.normal(size=25), "ties": lambda rng: rng.integers(0, 3, 25),
            "rare": lambda rng: (rng.random(25) < 0.1) * 100.0}[law]
    wrong = below = 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        x = draw(rng)
        result = fr.permutation_test((x[:12], x[12:]), difference, n_resamples=999, alpha=0.2, risk=0.02, rng=rng)
        wrong += result.rejected
        below += result.pvalue <= 0.2
    assert_rate_at_most(wrong, trials, 0.2)
    assert_rate_at_most(below, trials, 0.2)


@few_or_many("trials", 100, 1000)
def test_the_false_discovery_rate_is_at_most_alpha(trials, seed=20160619):
    """The mean share of false discoveries, as a rate: each trial counts a success drawn with its share."""
    false = 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        x, y = rng.normal(size=(2, 12, 10))
        x[:, :2] += 2.0
        result = fr.permutation_test((x, y), difference, alpha=0.2, n_resamples=499, rng=rng)
        found = np.flatnonzero(result.rejected)
        false += rng.random() < (found >= 2).mean() if found.size else 0
    assert_rate_at_most(int(false), trials, 0.2)


def test_away_from_the_level_it_needs_less_than_a_twentieth_of_the_permutations():
    for count, most in ((0, 300), (2_000, 4_000), (10_000, 1_000), (50_000, 64)):
        rule = fr.PermutationTest(1.0, alternative="greater")
        assert told(rule, rows_with([count], 99_999, np.random.default_rng(1))).n_read <= most


# The same by every road.

def test_calls_of_tell_of_any_size_give_the_same():
    rng = np.random.default_rng(2)
    rows = rows_with([0, 4, 15, 60, 200], 400, rng)
    wanted = told(fr.PermutationTest(np.ones(5), 0.1, alternative="greater", n_resamples=400), rows)
    for sizes in (itertools.repeat(1), itertools.cycle([7, 50, 1]), itertools.repeat(400)):
        rule, sized = fr.PermutationTest(np.ones(5), 0.1, alternative="greater", n_resamples=400), iter(sizes)
        while not rule.done:
            k = min(next(sized), 400 - rule.n_read)
            rule.tell(rows[rule.n_read : rule.n_read + k][:, rule.ask()[1]])
            rule = pickle.loads(pickle.dumps(copy.deepcopy(rule)))
        assert rule.result() == wanted.result()


@pytest.mark.parametrize("kind", ["independent", "samples", "pairings"])
def test_the_answer_does_not_depend_on_the_batch(kind):
    x, y = np.random.default_rng(3).normal(size=(2, 15, 4)) + np.arange(2)[:, None, None] * 0.7

    def correlation(x, y, axis):
        return (x * y * y).sum(axis=axis)

    answers = [fr.permutation_test((x, y), correlation, permutation_type=kind, n_resamples=2000, batch=batch, rng=5)
               for batch in (None, 1, 7)]
    answers.append(fr.permutation_test((x, y), lambda x, y: (x * y * y).sum(), permutation_type=kind,
                                       n_resamples=2000, rng=5))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].n_permutations.tolist() == answers[3].n_permutations.tolist()


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
@pytest.mark.parametrize(("kind", "sizes"), [
    ("independent", (4, 3)), ("independent", (2, 3, 2)), ("samples", (6, 6)), ("samples", (7,)), ("samples", (3, 3, 3)),
    ("pairings", (5, 5)), ("pairings", (5,)),
])
def test_few_permutations_are_enumerated_as_by_scipy(kind, sizes, alternative):
    rng = np.random.default_rng(4)
    data = [np.round(rng.normal(size=size) + 0.8 * i, 1) for i, size in enumerate(sizes)]

    def statistic(*samples, axis):
        if kind == "pairings":
            return (samples[0] * (samples[-1] if len(samples) > 1 else np.arange(5.0))).sum(axis=axis)
        return samples[0].mean(axis=axis) - 0.5 * (samples[-1].mean(axis=axis) if len(samples) > 1 else 0.0)

    wanted = stats.permutation_test(data, statistic, permutation_type=kind, alternative=alternative, n_resamples=np.inf)
    found = fr.permutation_test(data, statistic, permutation_type=kind, alternative=alternative, rng=1, risk=0.0)
    assert found.statistic == pytest.approx(wanted.statistic)
    assert found.lower - 1e-12 <= wanted.pvalue <= found.upper + 1e-12
    assert found.rejected == (wanted.pvalue <= 0.05 + 1e-12)
    if found.stopped_by == "exact":
        assert found.pvalue == pytest.approx(wanted.pvalue)


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
def test_decisions_are_those_of_scipy_on_its_null_distribution(alternative):
    for seed, shift in enumerate((-1.0, -0.5, 0.0, 0.4, 0.6, 1.0)):
        x, y = np.random.default_rng(seed).normal(size=(2, 30))
        full = stats.permutation_test((x + shift, y), difference, alternative=alternative, n_resamples=1999,
                                      random_state=np.random.default_rng(seed))
        rule = fr.PermutationTest(full.statistic, alternative=alternative, n_resamples=1999)
        result = told(rule, full.null_distribution[:, None]).result()
        assert result.rejected == (full.pvalue <= 0.05 - rule.risk)
        assert result.lower <= full.pvalue + 1e-12 and full.pvalue <= result.upper + 1e-12


def test_permutations_are_uniform():
    seen = []

    def statistic(x, y, axis):
        if x.ndim == 3:
            seen.extend(map(tuple, np.sort(x[:, 0], axis=-1).astype(int)))
        return np.zeros(x.shape[:-1])

    fr.permutation_test((range(12), range(12, 24)), statistic, n_resamples=3000, risk=0.0, alpha=0.999, rng=1)
    counts = np.bincount(np.ravel(seen), minlength=24)
    assert_fits(counts.tolist(), [1 / 24] * 24)
    assert len(set(seen)) > 0.99 * len(seen) > 100


def test_shapes_are_those_of_scipy():
    x, y = np.random.default_rng(6).normal(size=(2, 3, 20, 2))
    found = fr.permutation_test((x, y), difference, axis=1, rng=1, n_resamples=500)
    wanted = stats.permutation_test((x, y), difference, axis=1, n_resamples=50)
    assert found.pvalue.shape == found.rejected.shape == wanted.pvalue.shape == (3, 2)
    np.testing.assert_allclose(found.statistic, wanted.statistic)
    assert isinstance(fr.permutation_test((x[0, :, 0], y[0, :, 0]), difference, rng=1, n_resamples=500).pvalue, float)


def test_a_null_distribution_of_your_own():
    data = np.random.default_rng(7).normal(size=(30, 2)) + [1.0, 0.0]

    def resample(k, rng):
        return rng.normal(size=(k, 30, 2)).mean(axis=1)

    result = fr.permutation_test((data,), lambda x: x.mean(axis=0), resample=resample, alternative="greater", rng=1,
                                 names=["shifted", "not"])
    assert result.decision == ("rejected", "accepted")
    assert "shifted" in str(result) and result.to_frame()["hypothesis"].tolist() == ["shifted", "not"]
    with pytest.raises(ValueError, match=r"resample\(16, rng\) returned shape \(16,\); \(16, 2\) is needed"):
        fr.permutation_test((data,), lambda x: x.mean(axis=0), resample=lambda k, rng: np.zeros(k))


def test_a_long_list_of_permutations_is_not_made():
    x = np.arange(450.0)
    drawn = fr.permutation_test((x[:2], x[2:]), difference, rng=1)
    listed = fr.permutation_test((x[:2], x[2:100]), difference, rng=1)
    assert (drawn.n_resamples, listed.n_resamples) == (99_999, 4949)
    assert listed.lower <= 2 / 4950 <= listed.upper and drawn.rejected and listed.rejected


def test_progress_goes_to_standard_error(capsys):
    pytest.importorskip("rich")
    x = np.arange(30.0)
    fr.permutation_test((x[:15], x[15:]), difference, rng=1, progress=True)
    said = capsys.readouterr()
    assert "resamples" in said.err and not said.out


# Mistakes.

@pytest.mark.parametrize(("given", "said"), [
    ({"alpha": 1.0}, "alpha is 1.0"), ({"risk": 0.05}, "risk is 0.05; at least 0 and less than alpha"),
    ({"risk": -0.1}, "risk is -0.1"), ({"alternative": "both"}, "alternative is 'both'; one of two-sided, greater"),
    ({"n_resamples": 0}, "n_resamples is 0; at least 1"), ({"n_resamples": 1 << 31}, "less than 2\\*\\*31"),
    ({"correction": "fdr"}, "correction is 'fdr'; one of bh, bonferroni"), ({"names": ["a"]}, "names has 1 entries"),
    ({"observed": []}, "observed has shape \\(0,\\)"),
    ({"observed": np.nan}, "observed, the statistic of the data, is nan; nothing"),
    ({"observed": [1.0, np.nan]}, r"observed\[1\], the statistic of the data, is nan; .* take missing values out"),
])
def test_bad_arguments_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        fr.PermutationTest(**({"observed": [1.0, 2.0]} | given))


@pytest.mark.parametrize(("rows", "said"), [
    (np.zeros((3, 3)), r"shape \(3, 3\); \(k, 2\) is needed"), (np.zeros((101, 2)), "k is at most 100"),
    (np.zeros(3), r"shape \(3,\)"), ([[0.0, np.nan]], r"statistics\[0, 1\], of hypothesis b, is nan"),
])
def test_bad_statistics_change_nothing(rows, said):
    rule = fr.PermutationTest([1.0, 2.0], n_resamples=100, names=["a", "b"])
    before = rule.result()
    with pytest.raises(ValueError, match=said):
        rule.tell(rows)
    assert rule.result() == before and rule.n_read == 0
    told(rule, np.zeros((100, 2)))
    with pytest.raises(ValueError, match="every hypothesis is decided"):
        rule.tell(np.zeros((1, 0)))


@pytest.mark.parametrize(("data", "options", "error", "said"), [
    (([1.0, 2.0],), {}, ValueError, "data has 1 sample; two or more"),
    (([1.0, 2.0, 3.0], [1.0, 2.0]), {"permutation_type": "samples"}, ValueError, "samples of 3, 2 observations"),
    (([1.0], [1.0, 2.0]), {}, ValueError, r"data\[0\] has 1 observations"),
    (np.arange(3.0), {}, TypeError, "data is not a sequence of samples"),
    (([1.0, np.nan, 2.0], [1.0, 2.0]), {}, ValueError, "nan"),
    (([1.0, 2.0], [1.0, 2.0]), {"permutation_type": "all"}, ValueError, "permutation_type is 'all'"),
    (([1.0, 2.0], [1.0, 2.0]), {"batch": 0}, ValueError, "batch is 0"),
    (([1.0, 2.0], [1.0, 2.0]), {"axis": 1}, ValueError, "axis is 1 and data"),
])
def test_bad_data_are_refused(data, options, error, said):
    with pytest.raises(error, match=said):
        fr.permutation_test(data, difference, **options)


def test_an_interrupt_leaves_all_as_it_was(monkeypatch):
    rule, rows = fr.PermutationTest([0.5, 0.9], 0.1), np.random.default_rng(1).random((40, 2))
    rule.tell(rows[:10])
    before = rule.result()

    def look():
        raise KeyboardInterrupt

    monkeypatch.setattr(rule, "_look", look)
    with pytest.raises(KeyboardInterrupt):
        rule.tell(rows[10:])
    assert rule.result() == before
    monkeypatch.undo()
    rule.tell(rows[10:])
    whole = fr.PermutationTest([0.5, 0.9], 0.1)
    whole.tell(rows)
    assert rule.result() == whole.result()


@pytest.mark.parametrize("own", [False, True])
def test_permutations_before_an_error_are_kept(own):
    rng, calls = np.random.default_rng(1), []

    def statistic(x, y, axis):
        calls.append(np.shape(x))
        if len(calls) > 4:
            raise RuntimeError("no more")
        return x.mean(axis) - y.mean(axis)

    def resample(k, rng):
        calls.append(k)
        if len(calls) > 4:
            raise RuntimeError("no more")
        return rng.random(k) - 0.5

    data = rng.normal(size=(2, 50))
    given = {"resample": resample, "statistic": lambda x, y: 0.45} if own else {"statistic": statistic}
    with pytest.raises(RuntimeError, match="no more") as caught:
        fr.permutation_test(tuple(data), **given, risk=0.0, rng=1)
    rule = caught.value.rule
    assert rule.n_read == rule.result().n_permutations > 0
    assert "error.rule.result() is what is known" in caught.value.__notes__[0]
    rule.run(lambda k, active: np.zeros((k, 1)))
    assert rule.done


def test_a_statistic_of_the_wrong_shape_is_refused():
    x = np.zeros((5, 3))
    with pytest.raises(ValueError, match="one number for each row"):
        fr.permutation_test((x, x), lambda x, y, axis: 1.0)


def test_results_print_and_draw():
    plt = pytest.importorskip("matplotlib.pyplot")
    rng = np.random.default_rng(8)
    result = fr.permutation_test(tuple(rng.normal(size=(2, 30, 40))), difference, n_resamples=999, rng=1)
    assert "40 hypotheses" in str(result) and "... 30 more" in str(result) and "decided as 999" in result._repr_html_()
    assert result.to_dict()["n_read"] == result.n_read == result.n_permutations.sum()
    assert len(result.plot()) == 2
    fresh = fr.PermutationTest(1.0).result()
    assert fresh.decision == "not decided" and fresh.pvalue == 1.0 and fresh.stopped_by == "" and str(fresh)
    fresh.plot("pvalues")
    plt.close("all")


def test_samples_whose_hypotheses_differ_are_refused_by_their_shapes():
    with pytest.raises(ValueError, match=r"samples of shapes \(5, 2\), \(4, 3\); they must agree but for axis 0"):
        fr.permutation_test((np.zeros((5, 2)), np.zeros((4, 3))), lambda x, y, axis: x.mean(axis) - y.mean(axis))
