"""What was paid for is never lost: an exception takes with it the rule that it cut short, and going on is exact."""

import pickle

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_rate_at_most, few_or_many


class Broken(Exception):
    pass


def failing(function, at, error=Broken):
    """The function, which raises once at its `at`-th call, or gives nan if `error` is None."""
    calls = [0]

    def call(*args, **options):
        calls[0] += 1
        if calls[0] == at and error is not None:
            raise error("down")
        found = function(*args, **options)
        if calls[0] == at:
            found = np.array(found, dtype=float)
            found[len(found) // 2] = np.nan
        return found

    return call


def facts(result):
    return result.estimate, result.interval, result.n_samples, result.stopped_by


@pytest.mark.parametrize("batch", [None, 50])
@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, SystemExit])
def test_a_function_that_raises_leaves_the_rule_with_all_rewards(error, batch, seed):
    def rewards(rng):
        return lambda *k: rng.random(*k)

    whole = fr.estimate_mean(rewards(np.random.default_rng(seed)), 0.05, batch=batch)
    source = failing(rewards(np.random.default_rng(seed)), 4, error)
    with pytest.raises(error, match="down") as raised:
        fr.estimate_mean(source, 0.05, batch=batch)
    rule = raised.value.rule
    assert rule.n_samples == 3 * (batch or 1) and rule.result().n_samples == rule.n_samples
    (note,) = raised.value.__notes__
    call = f"estimate_mean(rewards, method=error.rule{', batch=50' if batch else ''}) goes on"
    assert "nothing paid for is lost" in note and call in note
    assert facts(fr.estimate_mean(source, method=rule, batch=batch)) == facts(whole)


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
def test_what_an_iterator_gave_before_it_raised_is_used(error, seed):
    numbers = np.random.default_rng(seed).random(5000)
    whole = fr.estimate_mean(iter(numbers), 0.05, batch=50)
    source = iter(failing(iter(numbers).__next__, 70, error), None)
    with pytest.raises(error, match="down") as raised:
        fr.estimate_mean(source, 0.05, batch=50)
    rule = raised.value.rule
    assert rule.n_samples == 69
    assert facts(fr.estimate_mean(source, method=rule, batch=50)) == facts(whole)


def test_rewards_before_a_bad_one_are_used_and_the_others_are_there():
    numbers = np.random.default_rng(1).random(100)
    numbers[70] = np.nan
    with pytest.raises(ValueError, match=r"xs\[20\] is nan") as raised:
        fr.estimate_mean(iter(numbers), 0.01, batch=50)
    rule, left = raised.value.rule, raised.value.rewards
    assert rule.n_samples == 70 and np.array_equal(left, numbers[70:], equal_nan=True)
    assert "error.rewards has the last 30 of the batch, the refused one first" in raised.value.__notes__[0]
    plain = fr.TargetOddsStop(0.01)
    plain.update_many(numbers[:70])
    assert facts(plain.result()) == facts(rule.result())


def test_a_rule_that_has_read_nothing_has_no_note():
    with pytest.raises(Broken) as raised:
        fr.estimate_mean(failing(lambda: 0.5, 1), 0.1)
    assert raised.value.rule.n_samples == 0 and not hasattr(raised.value, "__notes__")


N_ROWS = 2000


def population(rng):
    scores = rng.random(N_ROWS)
    return scores, np.clip(scores + rng.normal(0.0, 0.1, N_ROWS), 0.0, 1.0)


@pytest.mark.parametrize("batch", [None, 40])
@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, None])
def test_with_a_proxy_going_on_asks_for_the_rows_that_did_not_come(error, batch, seed):
    scores, rewards = population(np.random.default_rng(seed))
    asked = []

    def paid(rows):
        asked.append(rows.copy())
        return rewards[rows]

    source = failing(paid, 9, error)
    options = {"accuracy": "absolute", "batch": batch, "rng": seed}
    with pytest.raises(error or ValueError) as raised:
        fr.estimate_mean(source, 0.005, proxy=scores, **options)
    rule, proxy = raised.value.rule, raised.value.proxy
    used = sum(rows.size for rows in asked[:8]) + (len(asked[8]) // 2 if error is None else 0)
    assert rule.n_samples == proxy.n_rewards == used
    again = "" if batch is None else f", batch={batch}"
    assert f"method=error.rule, proxy=error.proxy{again}) goes on" in raised.value.__notes__[0]
    rule, proxy = pickle.loads(pickle.dumps((rule, proxy)))
    failed = asked[8] if error is None else None
    before = np.concatenate(asked[:9])[:used]
    del asked[:]
    result = fr.estimate_mean(source, method=rule, proxy=proxy, **options)
    if failed is not None:
        assert asked[0].tolist() == failed[len(failed) // 2 :].tolist()[: asked[0].size]
    read = np.concatenate([before, *asked])
    assert np.unique(read).size == read.size and abs(result.estimate - rewards.mean()) < 0.03
    assert 0.0 <= result.interval[0] <= result.estimate <= result.interval[1] <= 1.0 and result.support == (0.0, 1.0)


@pytest.mark.parametrize("part", [0, 13, 40])
def test_ctrl_c_within_a_batch_leaves_rule_and_proxy_with_the_same_rewards(part, seed):
    class Cut(fr.AbsoluteStop):
        cut = False

        def update_many(self, xs):
            if self.n_samples < 80 or self.cut:
                return super().update_many(xs)
            self.cut = True
            super().update_many(xs[:part])
            raise KeyboardInterrupt

    scores, rewards = population(np.random.default_rng(seed))
    proxy = fr.Proxy(scores)
    rule = Cut(0.005, support=proxy.support, n_rows=N_ROWS)
    with pytest.raises(KeyboardInterrupt) as raised:
        fr.estimate_mean(rewards, method=rule, proxy=proxy, batch=40, rng=seed)
    assert raised.value.rule is rule and rule.n_samples == proxy.n_rewards == 120
    assert fr.estimate_mean(rewards, method=rule, proxy=proxy, batch=40, rng=seed).n_samples > 120


@few_or_many("trials", 60, 600)
def test_a_mean_that_was_cut_short_again_and_again_is_as_good_as_promised(trials, seed):
    """Rows whose rewards are large fail at first: if going on did not begin with them, the mean would be too low."""
    wrong, epsilon, delta = 0, 0.05, 0.1
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        scores, rewards = rng.random(200), (rng.random(200) < 0.5).astype(float)
        method, proxy, refused = "auto", scores, set()
        for _ in range(1000):
            def source(rows, refused=refused, rewards=rewards):
                new = {row for row in rows.tolist() if rewards[row] > 0.5} - refused
                refused |= new
                return np.where(np.isin(rows, list(new)), np.nan, rewards[rows])

            try:
                result = fr.estimate_mean(source, epsilon, delta, accuracy="absolute", method=method, proxy=proxy,
                                          rng=rng)
                break
            except ValueError as error:
                method, proxy = error.rule, error.proxy
        wrong += abs(result.estimate - rewards.mean()) > epsilon
    assert_rate_at_most(wrong, trials, delta)


def test_a_rule_and_a_proxy_that_do_not_belong_together_are_refused():
    scores, rewards = population(np.random.default_rng(1))
    with pytest.raises(Broken) as raised:
        fr.estimate_mean(failing(lambda rows: rewards[rows], 5), 0.02, accuracy="absolute", proxy=scores, rng=1)
    rule, proxy = raised.value.rule, raised.value.proxy
    with pytest.raises(TypeError, match="goes on with the rule that has its rewards"):
        fr.estimate_mean(rewards, 0.02, accuracy="absolute", proxy=proxy)
    with pytest.raises(ValueError, match="is a rule of 4 rewards and proxy one of 0 rewards"):
        fr.estimate_mean(rewards, method=rule, proxy=fr.Proxy(scores))
    with pytest.raises(ValueError, match="another support or population"):
        other = fr.AbsoluteStop(0.02)
        other.update_many(rewards[:4])
        fr.estimate_mean(rewards, method=other, proxy=proxy)


# Permutation tests.


def difference(x, y, axis):
    return x.mean(axis=axis) - y.mean(axis=axis)


def outcome(result):
    return (result.rejected.tolist(), result.pvalue.tolist(), result.lower.tolist(), result.upper.tolist(),
            result.n_read)


def samples(seed, size=40):
    x, y = np.random.default_rng(seed).normal(size=(2, size, 6))
    x[:, :2] += [1.0, 0.45]
    return x, y


@pytest.mark.parametrize("size", [40, 5])           # of 5 and 5 all permutations are listed
@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, None])
@pytest.mark.parametrize("at", [2, 3, 5])
def test_a_permutation_test_that_was_cut_short_ends_as_the_whole_one(at, error, size, seed):
    x, y = samples(seed, size)
    options = {"n_resamples": 9999, "batch": 4, "rng": seed}
    whole = fr.permutation_test((x, y), difference, **options)
    calls = [0]

    def statistic(x, y, axis):
        calls[0] += 1
        found = difference(x, y, axis)
        if calls[0] == at:
            if error is not None:
                raise error("down")
            found[len(found) // 2, 0] = np.nan
        return found

    with pytest.raises(error or ValueError) as raised:
        fr.permutation_test((x, y), statistic, **options)
    rule = raised.value.rule
    assert isinstance(rule, fr.PermutationTest) and rule.result().n_read == 6 * rule.n_read
    assert bool(getattr(raised.value, "__notes__", ())) == (rule.n_read > 0)
    assert outcome(rule.run(raised.value.resample).result()) == outcome(whole)


def test_an_own_null_that_raises_goes_on():
    rng = np.random.default_rng(1)
    null = failing(lambda k, rng: rng.normal(size=k), 4)
    with pytest.raises(Broken) as raised:
        fr.permutation_test((np.array([2.2, 2.4]),), np.mean, resample=null, alternative="greater", rng=rng)
    rule = raised.value.rule
    assert rule.n_read > 0 and "goes on with other resamples" in raised.value.__notes__[0]
    assert rule.run(raised.value.resample).done and rule.result().rejected


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
@pytest.mark.parametrize("make", [
    lambda: fr.BettingRace(3, support=(0, 1)), lambda: fr.HoeffdingRace(3, 2000, support=(0, 1)),
    lambda: fr.BernsteinRace(3, 2000, support=(0, 1)), lambda: fr.LUCB(3, 1, rng=1)],
    ids=["bets", "hoeffding", "bernstein", "lucb"])
def test_the_exception_of_a_race_on_a_stream_has_the_race_which_goes_on(make, error, seed):
    values = np.random.default_rng(seed).random((2000, 3)) * [0.5, 0.6, 1.0]
    asked, pulls = [], isinstance(make(), fr.LUCB)

    def rewards(arms, numbers):
        if pulls:               # `numbers` are counts
            begin = [sum(1 for arm, _ in asked if arm == a) for a in arms.tolist()]
            cells = [(arm, first + k) for arm, first, n in zip(arms.tolist(), begin, numbers.tolist(), strict=True)
                     for k in range(n)]
            asked.extend(cells)
            return [values[row, arm] for arm, row in cells]
        asked.extend((arm, row) for row in numbers.tolist() for arm in arms.tolist())
        return values[np.ix_(numbers, arms)]

    expected = make().run(rewards)
    paid, race = len(asked), make()
    asked.clear()
    source = failing(rewards, 4, error)
    with pytest.raises(error, match="down") as raised:
        race.run(source)
    kept = raised.value.rule if pulls else raised.value.race
    assert kept is race and kept.result().n_read == len(asked) > 0
    (note,) = raised.value.__notes__
    assert "nothing paid for is lost" in note and ".run(" in note
    result = kept.run(source)
    assert result == expected and len(asked) == len(set(asked)) == paid


def test_the_last_batch_may_be_longer_than_what_is_left_of_a_population(seed):
    z = np.random.default_rng(seed).random(60)
    for rewards in (lambda k: z[:k], lambda k: z[:k].tolist(), iter(z)):
        found = fr.estimate_mean(rewards, 1e-4, method=fr.TargetEBStop(1e-4, n_rows=50), batch=20)
        assert found.stopped_by == "exact" and found.n_samples == 50
