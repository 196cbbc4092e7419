"""Rules that are followed pull by pull, in their own loop and beside a plain twin."""

import pickle

import numpy as np
import pytest

from fastrace.pulls import RecordedPulls


def reader(values):
    """A function that gives the next rewards of an arm, for a twin."""
    used = np.zeros(values.shape[1], int)

    def pull(i, count):
        used[i] += count
        given = values[used[i] - count : used[i], i]
        return given[~np.isnan(given)]

    return pull


def assert_follows(make, values, twin):
    """The rule asks for what its twin asked for, looked at and pickled on the way, and ends as it does; run() too."""
    chosen, made, why, means, pulls = twin
    rule, source, asked = make(), RecordedPulls(values), []
    while not rule.done and rule.n_pulls < sum(pulls):
        arms, counts = rule.ask()
        asked += list(zip(arms.tolist(), counts.tolist(), strict=True))
        rule.tell(source.read(arms, counts))
        if rule.n_pulls % 7 == 0:
            rule.result()                                           # to look changes nothing
            rule = pickle.loads(pickle.dumps(rule))
    assert asked == made
    result = rule.result()
    assert result.stopped_by == ("" if why == "max_pulls" else why)
    assert set(np.ravel(result.best).tolist()) == chosen
    assert np.allclose(result.mean, means, rtol=1e-12, atol=1e-12)
    by_run = make()
    by_run._core.run(RecordedPulls(values), rule.n_pulls)           # cut short there, which it cannot know before
    assert by_run.result().pulls.tolist() == list(pulls)
    assert by_run.result().error_bound == result.error_bound


def assert_follows_within(make, values, max_pulls, twin):
    """In a run that knows its budget the rule asks for what its twin asked for, saved and loaded between as well."""
    chosen, made, why, _, pulls = twin
    assert why == "max_pulls" and sum(pulls) <= max_pulls
    for stop in (max_pulls, max_pulls // 2):
        rule, source, asked = make(), RecordedPulls(values), []

        def pull(arms, counts, source=source, asked=asked, stop=stop):
            if sum(count for _, count in asked) >= stop:
                raise ConnectionError
            asked.extend(zip(arms.tolist(), counts.tolist(), strict=True))
            return source.read(arms, counts)

        if stop < max_pulls:
            with pytest.raises(ConnectionError):
                rule.run(pull, max_pulls)
            rule, stop = pickle.loads(pickle.dumps(rule)), max_pulls
            pull.__defaults__ = source, asked, max_pulls
        rule.run(pull, max_pulls)
        assert asked[: len(made)] == made
        if sum(pulls) == max_pulls:
            assert set(np.ravel(rule.result().best).tolist()) == chosen
