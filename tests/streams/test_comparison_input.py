"""What a comparison is told: labels, times, frames; and what it refuses, whereupon nothing is changed."""

import datetime as dt
import json
import math

import numpy as np
import pytest

import fastrace as fr
from comparisons import MAKERS, given, observe

# Labels

def test_labels_of_every_kind():
    arms, x, _ = given(300)
    codes = np.searchsorted(["a", "b", "c"], arms)
    answers = []
    for labels, told in ((["a", "b", "c"], arms), (["a", "b", "c"], arms.tolist()), (3, codes), (3, codes.tolist()),
                         ([0, 1, 2], codes.astype(np.uint8)), (("x", "y", 7), np.array(["x", "y", 7], object)[codes])):
        test = fr.Comparison(labels, support=(0, 1))
        test.observe_many(told, x)
        answers.append(test.result().difference_lower.tolist())
    assert all(answer == answers[0] for answer in answers)


def test_labels_may_be_tuples_beside_words():
    mixed = fr.Comparison(["a", ("b", 1), 7], support=(0, 1))
    for told in ([("b", 1), "a", 7, "a"], (("b", 1), "a", 7, "a")):
        mixed.observe_many(told, [0.5, 0.25, 1.0, 0.25])
    mixed.observe_many(("b", 1), [0.5, 0.5])
    assert mixed.result().pulls.tolist() == [4, 4, 2]


def test_more_pairs_than_can_be_compared_are_refused():
    with pytest.raises(ValueError, match="633 arms are 200,028 pairs, and all are compared without a reference"):
        fr.Comparison(633)
    assert len(fr.Comparison(632)._pairs) == 199_396
    assert fr.Comparison(100_000, reference=7).result().pairs[7].tolist() == [8, 7]


# Times

@pytest.mark.parametrize("words, order", [
    (["2026-03-01", "2026-02-10T08:00", "2026-02-10"], [2, 1, 0]), (["10", "9", "100"], [1, 0, 2]),
    (["2026-02-01T00:30+02:00", "2026-01-31T23:00Z", "2026-01-31T23:30Z"], [0, 1, 2]),
])
def test_times_in_words_are_sorted_by_time(words, order):
    events = {"arm": [0, 1] * 30, "x": np.arange(60.0), "when": words * 20}
    made = fr.Comparison.from_frame(events, arm="arm", reward="x", time="when")
    rows = [3 * k + place for place in order for k in range(20)]
    plain = fr.Comparison([0, 1])
    plain.observe_many(np.array(events["arm"])[rows], events["x"][rows])
    assert made.result().mean.tolist() == plain.result().mean.tolist()
    assert made.history["mean"].tolist() == plain.history["mean"].tolist()
    assert list(made.history["time"])[0] == words[order[0]]


@pytest.mark.parametrize("words, message", [
    (["01/02/2026", "02/01/2026"], "column 'when' holds '01/02/2026' in row 0; numbers, dates, or words as of ISO"),
    (["2026-01-01", "yesterday"], "holds 'yesterday' in row 1"), (["1", "nan"], "holds '1' in row 0"),
    (["2026-01-01T00:00Z", "2026-01-01T00:00"], "with a time zone and without"),
    (np.array([3, "2026-01-01"], dtype=object), "'2026-01-01' in row 1 and 3 in row 0; one kind of times is needed"),
])
def test_times_in_words_that_do_not_say_when_are_refused(words, message):
    events = {"arm": [0, 1], "x": [0.0, 1.0], "when": words}
    with pytest.raises(ValueError, match=message):
        fr.Comparison.from_frame(events, arm="arm", reward="x", time="when")


def test_times_stand_in_the_history():
    test = fr.Comparison(2)
    times = np.datetime64("2026-01-01") + np.arange(100)
    test.observe_many(np.arange(100) % 2, np.arange(100.0), times=times)
    assert test.history["time"][0] == times[19] and test.history["time"][-1] == times[test.history["n_read"][-1] - 1]
    assert json.loads(json.dumps(test.result().to_dict()))["history"]["time"][0] == "2026-01-20"
    pytest.importorskip("matplotlib")
    assert len(test.plot()) == 3 and test.plot("history").get_xlabel() == "time"


UTC, EAST = dt.UTC, dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(2026, 1, 1, 12)


@pytest.mark.parametrize("kind", ["objects", "pandas", "words"])
def test_times_of_several_time_zones_sort_as_they_came(kind):
    times = [NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=EAST), NOON.replace(hour=11, tzinfo=UTC)]
    if kind == "pandas":
        pd = pytest.importorskip("pandas")
        times = pd.Series([pd.Timestamp(time) for time in times], dtype=object)
    elif kind == "words":
        times = [time.isoformat() for time in times]
    made = fr.Comparison.from_frame({"arm": ["a", "b", "b"], "reward": [0.0, 1.0, 0.5], "when": times}, arm="arm",
                                    reward="reward", time="when", support=(0, 1))
    wanted = fr.Comparison(["a", "b"], support=(0, 1))
    for arm, reward in (("b", 1.0), ("b", 0.5), ("a", 0.0)):
        wanted.observe(arm, reward)
    assert made._time == list(times)[0]
    assert made.result().mean.tolist() == wanted.result().mean.tolist()
    assert made.result().lower.tolist() == wanted.result().lower.tolist()


@pytest.mark.parametrize(("times", "said"), [
    ([NOON, NOON.replace(tzinfo=UTC)], "column 'when' holds times with a time zone and without"),
    ([1, NOON], "column 'when' holds times that cannot be compared"),
    ([NOON.date(), NOON], "column 'when' holds times that cannot be compared"),
    ([1j, 2j], "column 'when' has dtype complex128; numbers, dates or words are needed"),
])
def test_times_that_do_not_sort_are_refused(times, said):
    with pytest.raises(ValueError, match=said):
        fr.Comparison.from_frame({"arm": ["a", "b"], "reward": [0.0, 1.0], "when": times}, arm="arm", reward="reward",
                                 time="when", support=(0, 1))


def test_comparisons_whose_times_cannot_be_compared_are_not_merged():
    mine, theirs = fr.Comparison(2, support=(0, 1)), fr.Comparison(2, support=(0, 1))
    mine.observe(0, 0.5, time=NOON)
    theirs.observe(0, 0.5, time=NOON.replace(tzinfo=UTC))
    with pytest.raises(ValueError, match="the last time is .* which cannot be compared"):
        mine.merge(theirs)
    assert mine.n_read == 1
    theirs._time = NOON.replace(hour=13)
    mine.merge(theirs)
    assert mine.n_read == 2 and mine._time.hour == 13


# Frames

@pytest.mark.parametrize(("change", "said"), [
    ({"x": [0.0, 0.5, 7.0, 1.0]}, r"rewards\[2\]{} is 7.0"),
    ({"x": [0.0, 0.5, math.nan, 1.0]}, r"column 'x' has 1 missing entries, the first in row 2{}, counted"),
    ({"x": [0.0, 0.5, "u", 1.0]}, r"real numbers, and x\[2\]{} is 'u'"),
    ({"when": ["4", "3", 2, "1"]}, r"column 'when' holds '4' in row 0 and 2 in row 2{};"),
])
def test_errors_of_a_frame_name_the_row_as_it_came(change, said):
    """And not by its place in the order of time; as the index of pandas calls it, too."""
    pandas = pytest.importorskip("pandas")
    events = {"arm": ["a", "b", "a", "b"], "x": [0.0, 0.5, 1.0, 1.0], "when": [4, 3, 2, 1]}
    events = {name: np.array(change.get(name, held), object) for name, held in events.items()}
    for frame, label in ((events, ""), (pandas.DataFrame(events), ""),
                         (pandas.DataFrame(events, index=list("wxyz")), r" \(row 'y'\)")):
        for time in ("when", None)[:2 - ("when" in change)]:
            with pytest.raises(ValueError, match=said.format(label)):
                fr.Comparison.from_frame(frame, arm="arm", reward="x", time=time, support=(0, 1))


@pytest.mark.parametrize("library", ["pandas", "polars", "dict"])
def test_from_frame(library):
    arms, x, keys = given(300)
    times = np.datetime64("2026-01-01T00:00", "ms") + np.random.default_rng(1).permutation(300)
    columns = {"variant": arms, "converted": x, "user": keys, "when": times}
    frame = columns if library == "dict" else pytest.importorskip(library).DataFrame(columns)
    made = fr.Comparison.from_frame(
        frame, arm="variant", reward="converted", time="when", support=(0, 1), reference="b")
    order = np.argsort(times)
    plain = fr.Comparison(["a", "b", "c"], support=(0, 1), reference="b")
    plain.observe_many(arms[order], x[order], times=times[order])
    assert made.names == ("a", "b", "c") and made.history["n_read"].tolist() == plain.history["n_read"].tolist()
    assert np.array_equal(made.history["difference_lower"], plain.history["difference_lower"])
    clustered = fr.Comparison.from_frame(frame, arm="variant", reward="converted", cluster="user")
    assert clustered.clusters and clustered.kind == "asymptotic"
    with pytest.raises(ValueError, match="no such column; there are variant, converted"):
        fr.Comparison.from_frame(frame, arm="arm", reward="converted")
    with pytest.raises(TypeError, match="clusters is 'user'; the column that holds the keys goes by cluster="):
        fr.Comparison.from_frame(frame, arm="variant", reward="converted", clusters="user")
    with pytest.raises(ValueError, match="must be real numbers"):
        fr.Comparison.from_frame(frame, arm="user", reward="variant")


@pytest.mark.parametrize("kind", ["float64", "Int64", "boolean"])
@pytest.mark.parametrize("column", ["variant", "converted"])
def test_missing_entries_of_a_frame_are_refused(column, kind):
    pandas = pytest.importorskip("pandas")
    arms, x, _ = given(10)
    frame = pandas.DataFrame({"variant": arms, "converted": pandas.Series(x.astype(int)).astype(kind)})
    assert fr.Comparison.from_frame(frame, arm="variant", reward="converted", support=(0, 1)).n_read == 10
    frame[column] = frame[column].where(np.arange(10) != 4)
    with pytest.raises(ValueError, match=f"'{column}' has 1 missing entries, the first in row 4"):
        fr.Comparison.from_frame(frame, arm="variant", reward="converted")


# Bad input

@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("arms", "rewards", "match"), [
    ("abz", [0.1, 0.2, 0.3], r"arms\[2\] is 'z'; one of the arms 'a', 'b', 'c' is needed"),
    ("abc", [0.1, math.nan, 0.3], r"rewards\[1\] is nan"), ("ab", [0.1, 0.2, 0.3], "each reward needs its arm"),
    ("abc", [0.1, 0.2, math.inf], r"rewards\[2\] is inf"), ("abc", [[0.1, 0.2, 0.3]], "shape"),
])
def test_bad_input_changes_nothing(name, arms, rewards, match):
    test = MAKERS[name]()
    observe(test, *given(50))
    before = test.result()
    with pytest.raises(ValueError, match=match):
        observe(test, list(arms), rewards, [1, 2, 3])
    with pytest.raises((ValueError, TypeError)):
        test.observe("a", math.nan, cluster=1 if test.clusters else None)
    with pytest.raises(ValueError, match="arms 'a'"):
        test.observe("z", 0.5, cluster=1 if test.clusters else None)
    assert test.result() == before


def test_a_reward_outside_the_support_is_refused():
    test = MAKERS["exact"]()
    with pytest.raises(ValueError, match=r"rewards\[1\] is 1.5; outside support"):
        test.observe_many("a", [0.5, 1.5])
    with pytest.raises(ValueError, match="outside support"):
        test.observe("a", 1.5)
    assert test.n_read == 0


@pytest.mark.parametrize("name", MAKERS)
def test_an_interrupt_leaves_all_as_it_was(monkeypatch, name):
    test, other = MAKERS[name](), MAKERS[name]()
    arms, x, keys = given(300)
    parts = [(arms[k:k + 100], x[k:k + 100], keys[k:k + 100] + 1000 * (k == 100)) for k in (0, 100, 200)]
    observe(test, *parts[0])
    before, real = test.result(), test._take

    def take(codes, values, keys, calls=[0]):      # noqa: B006
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        real(codes, values, keys)

    monkeypatch.setattr(test, "_take", take)
    with pytest.raises(KeyboardInterrupt):
        observe(test, *parts[1])
    assert test.result() == before
    observe(test, *parts[2])                # nothing of the clusters between is remembered
    observe(other, *parts[0])
    observe(other, *parts[2])
    assert test.result() == other.result()


@pytest.mark.parametrize(("make", "error", "match"), [
    (lambda: fr.Comparison("ab"), TypeError, "sequence of labels"), (lambda: fr.Comparison([]), ValueError, "empty"),
    (lambda: fr.Comparison(["a", "a"]), ValueError, "twice"), (lambda: fr.Comparison(0), ValueError, "at least 1"),
    (lambda: fr.Comparison(2, reference=2), ValueError, "reference is 2"),
    (lambda: fr.Comparison(2, epsilon=-1.0), ValueError, "at least 0"),
    (lambda: fr.Comparison(2, support=(0, 1), first_look=9), ValueError, "leave it out"),
    (lambda: fr.Comparison(2).observe(0, 1.0, cluster=3), ValueError, "no clusters"),
    (lambda: fr.Comparison(2, clusters=True).observe(0, 1.0), ValueError, "clusters is missing"),
    (lambda: fr.Comparison(2, clusters=True).observe_many(0, [1.0], clusters=[None]), ValueError, "a key is needed"),
    (lambda: fr.Comparison([None, 1]), ValueError, "no label"),
])
def test_bad_arguments(make, error, match):
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize("labels", [[1, True], [0, False], [1, 1.0], [("a", 1), ("a", True)]])
def test_labels_that_are_one_key_are_refused(labels):
    with pytest.raises(ValueError, match="labels that are equal"):
        fr.Comparison(labels)


def test_what_cannot_be_a_reward_is_shown():
    test = fr.Comparison(["a", "b"], support=(0, 1))
    with pytest.raises(ValueError, match=r"^reward is 1.5; outside support") as raised:
        test.observe("a", 1.5)
    assert "clip" not in str(raised.value) and test.n_read == 0
    with pytest.raises(TypeError, match=r"real numbers are needed, and rewards\[1\] is 'oops'"):
        test.observe_many("a", ["0", "oops", "1"])
    with pytest.raises(TypeError, match="these are words: convert them"):
        test.observe_many("a", ["0", "1"])
