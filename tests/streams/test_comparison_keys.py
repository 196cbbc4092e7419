"""Keys of clusters and labels of arms: one for all, dates of any unit, and what is refused."""

import copy
import datetime
import pickle
import sys
import tracemalloc

import numpy as np
import pytest

import fastrace as fr
from fastrace.streams._observed import _Clusters

DAY = datetime.date(2020, 1, 3)


def made(**options):
    return fr.Comparison(["a", "b"], clusters=True, first_look=2, **options)


def n_clusters(test):
    return test.result().n_clusters.tolist()


# One key for all rewards of a call

@pytest.mark.parametrize("key", [
    "a word", b"bytes", 7, 2.5, np.int64(7), np.str_("word"), np.array(7), np.array("word"), True, DAY,
    datetime.datetime(2020, 1, 3, 4), np.datetime64("2020-01-03", "ns"), np.timedelta64(3, "h"),
], ids=repr)
def test_one_key_goes_for_all(key):
    one, each = made(), made()
    one.observe_many("b", [1.0, 2.0, 4.0], clusters=key)
    plain = key[()] if isinstance(key, np.ndarray) else key
    each.observe_many("b", [1.0, 2.0, 4.0], clusters=[plain] * 3)
    one.observe("b", 3.0, cluster=plain)
    each.observe("b", 3.0, cluster=plain)
    assert n_clusters(one) == [0, 1] and one.result() == each.result()


def test_users_of_one_call_each_are_clusters_of_their_own():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(600, 3)) + np.repeat([0.0, 1.0], 300)[:, None]
    calls, whole = made(), made()
    for user in range(600):
        calls.observe_many("ab"[user // 300], x[user], clusters=f"{user:03d}")
    users = np.repeat([f"{user:03d}" for user in range(600)], 3)
    whole.observe_many(np.repeat(["a", "b"], 900), x.ravel(), clusters=users)
    assert n_clusters(calls) == [300, 300] and np.isfinite(calls.result().difference_lower).all()
    assert calls.result() == whole.result()


@pytest.mark.parametrize("missing", [float("nan"), np.datetime64("NaT"), "pandas.NA", "pandas.NaT"], ids=str)
@pytest.mark.parametrize("where", ["one", "each", "observe"])
def test_a_missing_key_is_refused(missing, where):
    if isinstance(missing, str):
        missing = getattr(pytest.importorskip("pandas"), missing.split(".")[1])
    test = made()
    with pytest.raises(ValueError, match=r"clusters(\[[01]\])? is .*; a key is needed"):
        if where == "observe":
            test.observe("a", 1.0, cluster=missing)
        else:
            test.observe_many("a", [1.0, 2.0], clusters=missing if where == "one" else ["x", missing])
    assert test.n_read == 0 and n_clusters(test) == [0, 0]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "dict", "set", "frozenset"])
def test_frames_dicts_and_sets_are_refused(library):
    columns = {"user": [1, 2], "day": [3, 4]}
    if library in ("set", "frozenset"):
        clusters, match = (set if library == "set" else frozenset)(columns), "a set has no order"
    elif library == "dict":
        clusters, match = columns, "one column"
    else:
        package = pytest.importorskip(library)
        clusters, match = package.table(columns) if library == "pyarrow" else package.DataFrame(columns), "one column"
    test = made()
    with pytest.raises(TypeError, match=f"clusters is .*one key for all is needed: .*{match}"):
        test.observe_many("a", [1.0, 2.0], clusters=clusters)
    assert test.n_read == 0


def test_a_tuple_is_one_key_per_reward():
    test = made()
    test.observe_many("a", [1.0, 2.0], clusters=("x", "y"))
    assert n_clusters(test) == [2, 0]
    with pytest.raises(ValueError, match="clusters has 2 keys and rewards 3"):
        test.observe_many("a", [1.0, 2.0, 3.0], clusters=("x", "y"))


@pytest.mark.parametrize("chunked", [False, True])
def test_keys_of_arrow_are_those_of_python(chunked):
    arrow = pytest.importorskip("pyarrow")
    test = made()
    test.observe_many("a", [1.0, 2.0], clusters=arrow.chunked_array([["x"], ["y"]]) if chunked else arrow.array("xy"))
    test.observe_many("a", [1.0, 2.0], clusters=["x", "y"])
    assert n_clusters(test) == [2, 0]


# Dates

def doors(unit):
    """The same instant as an array of one, in several libraries."""
    array = np.array(["2020-01-03"], f"M8[{unit}]")
    pandas, polars = (pytest.importorskip(name) for name in ("pandas", "polars"))
    kept = {"array": array, "list": list(array), "series": pandas.Series(array), "index": pandas.DatetimeIndex(array),
            "stamps": [pandas.Timestamp(array[0])]}
    if unit in ("D", "ms", "us", "ns"):
        kept["polars"] = polars.Series(array)
    return kept


@pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us", "ns"])
def test_an_instant_is_one_key_through_every_door(unit):
    test = made()
    test.observe("b", 1, cluster=DAY)
    test.observe("b", 1, cluster=datetime.datetime(2020, 1, 3))
    test.observe("b", 1, cluster=np.datetime64(DAY, unit))
    for keys in doors(unit).values():
        test.observe_many(["b"], [1.0], clusters=keys)
    test.observe_many(["b"], [1.0], clusters=np.array([DAY], f"M8[{unit}]"))
    frame = {"arm": ["a", "b"], "reward": [1.0, 2.0], "day": np.array([DAY, DAY], f"M8[{unit}]")}
    test.merge(fr.Comparison.from_frame(frame, arm="arm", reward="reward", cluster="day", first_look=2))
    assert n_clusters(test) == [1, 1]
    assert n_clusters(pickle.loads(pickle.dumps(test))) == [1, 1]


def test_instants_that_differ_are_clusters_of_their_own():
    pandas, polars = (pytest.importorskip(name) for name in ("pandas", "polars"))
    times = np.datetime64("1970-01-03", "ns") + np.arange(3)
    test = made()
    for keys in (times, list(times), times.astype("M8[ps]"), pandas.Series(times), list(pandas.Series(times)),
                 polars.Series(times)):
        test.observe_many("b", np.ones(3), clusters=keys)
    assert n_clusters(test) == [0, 3]
    test.observe_many("b", [1.0, 1.0], clusters=np.array(["300000-01-01", "-9000-01-01"], "M8[D]"))
    test.observe_many("b", [1.0, 1.0], clusters=np.array(["300000-01-01", "-9000-01-01"], "M8[s]"))
    test.observe("b", 1.0, cluster=np.datetime64("-9000-01-01", "h"))
    assert n_clusters(test) == [0, 5]
    test.observe("b", 1.0, cluster=int(times.view("i8")[0]))        # a number is no date
    assert n_clusters(test) == [0, 6]


def test_times_of_a_zone_are_one_instant():
    pandas = pytest.importorskip("pandas")
    zone = datetime.timezone(datetime.timedelta(hours=2))
    test = made()
    test.observe("a", 1.0, cluster=datetime.datetime(2020, 1, 3, 2, tzinfo=zone))
    test.observe("a", 1.0, cluster=datetime.datetime(2020, 1, 3, tzinfo=datetime.UTC))
    for name in ("UTC", "Asia/Tokyo"):
        stamp = pandas.Timestamp("2020-01-03", tz="UTC").tz_convert(name)
        test.observe_many("a", [1.0, 1.0], clusters=pandas.Series([stamp, stamp]))
        test.observe("a", 1.0, cluster=stamp)
    assert n_clusters(test) == [1, 0]
    test.observe("a", 1.0, cluster=stamp + pandas.Timedelta(1, "ns"))
    test.observe("a", 1.0, cluster=DAY)                             # of no zone
    assert n_clusters(test) == [3, 0]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_times_of_a_zone_are_one_instant_by_frame_and_by_hand(library, unit):
    pandas = pytest.importorskip("pandas")
    made_of = pytest.importorskip(library)
    times = pandas.Series(pandas.date_range("2020-01-03", periods=20, freq="h", tz="Europe/Berlin").as_unit(unit))
    events = pandas.DataFrame({"arm": ["a", "b"] * 10, "reward": np.linspace(0.0, 1.0, 20), "at": times})
    if library == "polars":
        events = made_of.from_pandas(events).with_columns(made_of.col("at").dt.cast_time_unit(unit))
    test = fr.Comparison.from_frame(events, arm="arm", reward="reward", cluster="at")
    test.observe_many(list(events["arm"]), np.asarray(events["reward"]), clusters=events["at"])
    test.observe_many(list(events["arm"]), np.asarray(events["reward"]), clusters=list(events["at"]))
    assert n_clusters(test) == [10, 10]


def test_times_of_polars_that_differ_by_a_nanosecond_are_two():
    polars = pytest.importorskip("polars")
    times = polars.Series("at", [0, 1, 1000], dtype=polars.Int64).cast(polars.Datetime("ns", "UTC"))
    test = made()
    test.observe_many("a", [1.0, 1.0, 1.0], clusters=times)
    assert n_clusters(test) == [3, 0]


def test_a_duration_is_one_key_through_every_door():
    pandas = pytest.importorskip("pandas")
    test = made()
    test.observe("a", 1.0, cluster=datetime.timedelta(hours=3))
    for unit in ("h", "s", "us", "ns"):
        length = np.timedelta64(3, "h").astype(f"m8[{unit}]")
        test.observe("a", 1.0, cluster=length)
        test.observe_many("a", [1.0], clusters=np.array([length]))
        test.observe_many("a", [1.0], clusters=pandas.Series([length]))
    assert n_clusters(test) == [1, 0]


def test_a_saved_state_of_keys_by_unit_is_read_as_one_of_instants():
    test = made()
    test.observe_many("a", [1.0, 2.0, 4.0], clusters=["x", "y", DAY])
    older = _Clusters()
    for value, key in zip([1.0, 2.0, 3.0, 1.0], ["x", "y", DAY, np.datetime64(DAY, "s")], strict=True):
        older.add([key], 1.0, np.array([value]))
    older_test = made()
    older_test._arms[0], older_test._counts[0] = older, 4
    again = pickle.loads(pickle.dumps(older_test))
    assert n_clusters(again) == [3, 0]
    assert again.result().mean[0] == pytest.approx(7 / 4)


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
def test_arms_that_are_dates_are_called_by_date(unit):
    days = np.array(["2026-01-01", "2026-01-02"], f"M8[{unit}]")
    names = ("2026-01-01", "2026-01-02") if unit == "D" else ("2026-01-01 00:00:00", "2026-01-02 00:00:00")
    frame = {"day": np.tile(days, 20), "reward": np.arange(40.0) % 3}
    test = fr.Comparison.from_frame(frame, arm="day", reward="reward")
    assert test.names == names and fr.Comparison(days).names == names
    for label in (days[0], np.datetime64("2026-01-01", "ns"), datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1)):
        test.observe(label, 1.0)
        test.observe_many(label, [1.0])
        test.observe_many([label], [1.0])
    test.observe_many(np.array(["2026-01-01"], "M8[ns]"), [1.0])
    assert test.result().pulls.tolist() == [33, 20]
    assert fr.Comparison(days, reference=days[1]).result().pairs.tolist() == [[0, 1]]
    with pytest.raises(ValueError, match=r"arms\[1\] is .*; one of the arms"):
        test.observe_many([days[0], np.datetime64("2026-01-03", unit)], [1.0, 1.0])


# What a call costs, and what it leaves if it is broken off

@pytest.mark.parametrize("key", [17, 10**6], ids=["known", "new"])
def test_a_call_of_one_reward_copies_no_other_cluster(key):
    test = made()
    for users in (range(10_000), range(10_000, 20_001)):            # the sums have room from the second on
        test.observe_many("a", np.arange(float(len(users))) % 7, clusters=users)
    test.observe_many("a", np.ones(test._next - test.n_read), clusters=5)
    assert test._next > test.n_read + 1 and test._arms[0].sums.shape[1] > 20_001       # it neither looks nor grows
    tracemalloc.start()
    try:
        test.observe_many(["a"], [1.0], clusters=[key])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000        # bytes; the sums of the clusters alone are 320,000


def state(test):
    arms = [(list(arm.place.items()), arm.sums[:, :len(arm.place)].tolist(), arm.origin) for arm in test._arms]
    assert not any(arm.sums[:, len(arm.place):].any() for arm in test._arms)
    return arms, test._counts.tolist(), test._next, test._time, test.history["n_read"].tolist()


@pytest.mark.parametrize("seen", [0, 16])
def test_an_interrupt_at_any_line_leaves_all_as_it_was(seen):
    n = seen + 30               # looks are after 20 rewards, then 24, and sums have room for 16 clusters at first
    rng = np.random.default_rng(4)
    arms, x, keys = rng.choice(["a", "b"], n, p=[0.2, 0.8]), rng.normal(5.0, size=n), rng.integers(0, 60, size=n)
    start, whole = made(), made()
    start.observe_many(arms[:seen], x[:seen], clusters=keys[:seen])
    before, rest = state(start), slice(seen, None)
    whole.observe_many(arms, x, clusters=keys)
    tracer, lines, broken = sys.gettrace(), 0, True
    while broken:
        test, left = copy.deepcopy(start), lines

        def trace(frame, event, arg):
            nonlocal left
            code = frame.f_code         # the wrapper that locks has a line after the call is over
            if code.co_name == "called" or not code.co_filename.endswith(("comparison.py", "_observed.py")):
                return None
            left -= event == "line"
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        try:
            sys.settrace(trace)
            test.observe_many(arms[rest], x[rest], clusters=keys[rest])
            broken = False
        except KeyboardInterrupt:
            assert state(test) == before
            test.observe_many(arms[rest], x[rest], clusters=keys[rest])
        finally:
            sys.settrace(tracer)
        assert state(test) == state(whole)
        lines += 1
    assert lines > 200          # of which some are within each of the looks, and of the arms


# Frames of Arrow

def test_a_table_of_arrow_is_a_frame():
    arrow = pytest.importorskip("pyarrow")
    events = {"arm": ["a", "b"] * 20, "reward": np.linspace(0.0, 1.0, 40), "user": np.repeat(np.arange(20), 2)}
    for options in ({"support": (0, 1)}, {"cluster": "user"}, {"time": "user", "support": (0, 1)}):
        made = [fr.Comparison.from_frame(frame, arm="arm", reward="reward", **options).result()
                for frame in (events, arrow.table(events))]
        np.testing.assert_array_equal(made[0].mean, made[1].mean)
    with pytest.raises(ValueError, match="no such column; there are arm, reward, user$"):
        fr.Comparison.from_frame(arrow.table(events), arm="variant", reward="reward")
    with pytest.raises(ValueError, match="frame, a str, has no columns"):
        fr.Comparison.from_frame("events.csv", arm="arm", reward="reward")


# Times that one axis cannot show

@pytest.mark.parametrize("second", ["words", 2.0, datetime.datetime(2020, 1, 3, tzinfo=datetime.UTC)])
@pytest.mark.parametrize("first", [1.0, datetime.datetime(2020, 1, 1), np.datetime64("2020-01-01")])
def test_a_history_of_mixed_times_is_drawn_by_rewards(first, second):
    plt = pytest.importorskip("matplotlib.pyplot")
    test = fr.Comparison(["a", "b"], support=(0, 1))
    for k in range(60):
        test.observe("ab"[k % 2], 0.5, time=second if k > 30 else first)
    one_kind = isinstance(first, float) and isinstance(second, float)
    assert test.plot("history").get_xlabel() == ("time" if one_kind else "rewards")
    plt.close("all")
