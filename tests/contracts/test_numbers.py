"""What is no plain number in an array is converted, or refused in words, and never read as what NumPy makes of it.

Durations and dates have a unit, Decimals and NA are objects, and large integers lose digits as floats.
"""

import asyncio
import decimal

import nonsense
import numpy as np
import pytest

import fastrace as fr
from fastrace._base import _checks

TWO = 2**53
PLAIN = np.random.default_rng(0).random(400).round(3)
TABLE = np.random.default_rng(1).random((400, 3)).round(3)
DECIMALS = [decimal.Decimal(str(value)) for value in PLAIN.tolist()]
ROWS = [[decimal.Decimal(str(value)) for value in row] for row in TABLE.tolist()]


def watched(values):
    rule = fr.ConfidenceSequence(support=(0, 1))
    rule.update_many(values)
    return rule.interval


def compared(values):
    events = {"arm": np.tile(["x", "y"], 200), "reward": values}
    return fr.Comparison.from_frame(events, arm="arm", reward="reward", support=(0, 1)).result().mean.tolist()


def observed(values):
    comparison = fr.Comparison(["x", "y"], support=(0, 1))
    comparison.observe_many(np.tile(["x", "y"], 200), values)
    return comparison.result().mean.tolist()


def moments(values):
    found = fr.RunningMoments()
    found.update_many(values)
    return float(found.mean)


def told(values):
    race = fr.FiniteRace(2, 200, support=(0, 1), rng=1)
    arms, rows = race.ask()
    race.tell([[values[row + 200 * arm] for arm in arms] for row in rows])
    return race.result().mean.tolist()


def unequal(values):
    return fr.race_sums([values, PLAIN], rng=1).total.tolist()


STREAMS = {
    "estimate_mean": lambda values: fr.estimate_mean(values, 0.2, rng=1).estimate,
    "proxy": lambda values: fr.estimate_mean(PLAIN, 0.2, accuracy="absolute", support=(0, 1), proxy=values,
                                             rng=1).estimate,
    "ConfidenceSequence": watched, "from_frame": compared, "observe_many": observed, "RunningMoments": moments,
    "FiniteRace.tell": told, "race_sums": unequal,
    "permutation_test": lambda values: float(fr.permutation_test(
        (values, PLAIN[::-1]), lambda x, y, axis: x.mean(axis) - y.mean(axis), rng=1, n_resamples=99).statistic),
}
TABLES = {
    "race": lambda table: fr.race(table, rng=1).mean.tolist(),
    "ArraySource": lambda table: fr.sources.ArraySource(table).totals().tolist(),
    "function": lambda table: fr.race(lambda arms, rows: [[table[row][arm] for arm in arms] for row in rows], n_arms=3,
                                      n_rows=400, rng=1).mean.tolist(),
    "select_best": lambda table: fr.select_best(table, epsilon=0.1, rng=1).mean.tolist(),
    "BettingRace": lambda table: fr.BettingRace(3, support=(0, 1), epsilon=0.1).run(table, rng=1).mean.tolist(),
    "columns": lambda table: fr.race(dict(zip("abc", zip(*table, strict=True), strict=True)), rng=1).mean.tolist(),
}


@pytest.mark.parametrize("door", STREAMS)
def test_decimals_are_their_numbers_and_durations_and_words_none(door):
    assert STREAMS[door](DECIMALS) == STREAMS[door](PLAIN)
    whole = (PLAIN > 0.5).astype(int)
    for odd in (whole.astype("timedelta64[s]"), whole.astype("datetime64[s]"), whole.astype(str),
                np.array([np.timedelta64(value, "s") for value in whole.tolist()], object)):
        with pytest.raises((TypeError, ValueError), match=r"dtype|words"):
            STREAMS[door](odd)


@pytest.mark.parametrize("door", TABLES)
def test_tables_of_decimals_are_their_numbers_and_those_of_durations_none(door):
    assert TABLES[door](ROWS) == TABLES[door](TABLE)
    whole = (TABLE > 0.5).astype(int)
    for odd in (whole.astype("timedelta64[s]"), whole.astype("datetime64[s]"), whole.astype(str)):
        with pytest.raises((TypeError, ValueError), match=r"dtype|not numbers"):
            TABLES[door](odd)


@pytest.mark.parametrize("door", [*STREAMS, *TABLES])
def test_large_integers_are_refused_where_a_float_would_lose_their_last_digits(door):
    call, bits = (STREAMS | TABLES)[door], ((PLAIN if door in STREAMS else TABLE) > 0.5).astype(np.int64)
    if door == "RunningMoments":            # bounded doors refuse such numbers as they are
        assert call(2 * bits + TWO) == pytest.approx(TWO + 2 * bits.mean(), rel=1e-15)
    for odd in (bits + TWO, bits.astype(np.uint64) + np.uint64(TWO), (bits + TWO).astype(object), bits - TWO - 1,
                bits * 10**3 + np.int64(2**63 - 1001), *beside_floats(bits + TWO)):
        with pytest.raises(ValueError, match="which no float64 holds: beyond 2\\*\\*53 it would lose its last digits"):
            call(odd)


def beside_floats(whole):
    """Lists of these integers, and one float: NumPy reads them all as floats."""
    for kind in (int, np.int64, decimal.Decimal):
        mixed = [kind(value) for value in whole.ravel().tolist()[:-1]] + [0.5]
        yield mixed if whole.ndim == 1 else list(zip(*[iter(mixed)] * whole.shape[1], strict=True))


def counted(counts, lost):
    return [lost] + [0.5] * (int(np.sum(counts)) - 1)


async def paid(lost):
    async def evaluate(arm, row):
        return lost

    return await fr.race_async(evaluate, 2, 60, rng=1)


ANSWERS = {
    "FiniteRace.tell": lambda lost: (race := fr.FiniteRace(2, 9, rng=1)).tell(
        [[lost, 0.5]] + [[0.5, 0.5]] * (len(race.ask()[1]) - 1)),
    "BettingRace.tell": lambda lost: (race := fr.BettingRace(2, support=(0, 1e17))).tell(
        [[lost, 0.5]] * len(race.ask()[1])),
    "BettingRace.run": lambda lost: fr.BettingRace(2, support=(0, 1e17)).run(
        lambda arms, rows: [[lost, 0.5]] * len(rows), max_pulls=100),
    "UnequalRace.tell": lambda lost: (race := fr.UnequalRace([9, 9], rng=1)).tell(counted(len(race.ask()[1]), lost)),
    "race_sums": lambda lost: fr.race_sums(lambda arm, rows: counted(len(rows), lost), [60, 60], rng=1),
    "LUCB.tell": lambda lost: (rule := fr.LUCB(2, 1, 0.1, rng=1)).tell(counted(rule.ask()[1], lost)),
    "LUCB.run": lambda lost: fr.LUCB(2, 1, 0.1, rng=1).run(lambda arms, counts: [
        counted(count, lost) for count in counts], max_pulls=100),
    "select_best": lambda lost: fr.select_best(lambda arms, counts: counted(counts, lost), 2, epsilon=0.1, rng=1),
    "estimate_mean": lambda lost: fr.estimate_mean(lambda count: counted(count, lost), support=(0, 1e17), batch=9),
    "PermutationTest.tell": lambda lost: fr.PermutationTest([1.0, 1.0]).tell([[lost, 0.5]] * 9),
    "race_async": lambda lost: asyncio.run(paid(lost)),
    "Comparison.observe": lambda lost: fr.Comparison(2).observe(0, lost),
    "EBGStop.update": lambda lost: fr.EBGStop(0.1, support=(0, 1e17)).update(lost),
    "RunningMoments.update": lambda lost: fr.RunningMoments().update(lost),
    "RunningMoments.update_many": lambda lost: fr.RunningMoments(2).update_many([[lost, 0.5]]),
}


@pytest.mark.parametrize("door", ANSWERS)
@pytest.mark.parametrize("kind", [int, np.int64, np.uint64, decimal.Decimal])
def test_an_answer_that_floats_round_is_refused(door, kind):
    """Among floats, where NumPy would round it without a word; one that a float holds is not refused for its digits."""
    with pytest.raises((TypeError, ValueError), match="which no float64 holds"):
        ANSWERS[door](kind(TWO + 1))
    try:
        ANSWERS[door](kind(TWO))
    except (TypeError, ValueError) as error:        # such as the range of the rewards
        assert "no float64" not in str(error)


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("library", ["pandas", "pandas of Arrow", "polars", "pyarrow", "dict", "tuples"])
def test_tables_of_any_library_whose_integers_would_be_rounded_are_refused(library, missing):
    """Whole numbers beside floats, or beside missing entries."""
    columns = {"a": [None if missing else 1, 2] * 30 + [TWO + 1], "b": [2 if missing else 0.5] * 61}
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip(library.split()[0]) if library in (
        "polars", "pyarrow") else None
    made = {"pandas": lambda: pandas.DataFrame(columns, dtype="Int64") if missing else pandas.DataFrame(columns),
            "pandas of Arrow": lambda: pandas.DataFrame({"a": pandas.array(columns["a"], "int64[pyarrow]"),
                                                         "b": columns["b"]}),
            "polars": lambda: frames.DataFrame(columns), "pyarrow": lambda: frames.table(columns),
            "dict": lambda: columns, "tuples": lambda: tuple(zip(*columns.values(), strict=True))}[library]()
    for call in (fr.race, fr.DiscreteSampler, fr.LilUCB(2, 61, support=(0, 1e17)).run, fr.select_best):
        with pytest.raises(ValueError, match="holds 9007199254740993, which no float64 holds"):
            call(made)


@pytest.mark.parametrize("kind", ["float64", "float32", "Float64", "float64[pyarrow]", "Int64", "polars", "pyarrow",
                                  "dict", "list"])
def test_floats_of_a_table_are_not_looked_at_one_by_one(kind, monkeypatch):
    """A million entries as objects take seconds. One entry is large, so that the table is searched for integers."""
    pandas, looks = pytest.importorskip("pandas"), []
    columns = {"a": PLAIN * 2.0**60, "b": PLAIN, "c": np.arange(400)}
    frame = pandas.DataFrame(columns)
    if kind in ("polars", "pyarrow"):
        library = pytest.importorskip(kind)
        table = (library.DataFrame if kind == "polars" else library.table)({name: columns[name] for name in "ab"})
    elif kind.endswith("[pyarrow]"):
        pytest.importorskip("pyarrow")
    if kind not in ("polars", "pyarrow"):
        table = {"dict": columns, "list": list(np.stack(list(columns.values())).T)}.get(kind)
    if table is None:
        table = frame.astype(dict.fromkeys("c" if kind == "Int64" else "ab", kind))
    if kind in ("Float64", "Int64"):
        table.loc[7, "b" if kind == "Float64" else "c"] = pandas.NA
    is_number = _checks.is_number
    monkeypatch.setattr(_checks, "is_number", lambda value: looks.append(value) or is_number(value))
    found = fr.race(table, rng=1, missing="drop")
    assert not looks and found.best == 0


def test_integers_that_floats_hold_are_floats():
    for held in (np.array([TWO, -TWO, 2 * TWO, 2**62]), np.array([2**63], np.uint64), np.array([2**63, 1], object)):
        assert (_checks.numbers_of(held, "x").astype(float) == held.astype(float)).all()
    for lost in (10**400, -(10**400), 2**63 + 1, decimal.Decimal(TWO + 1)):
        with pytest.raises(ValueError, match="which no float64 holds"):
            _checks.numbers_of(np.array([lost, 1], object), "x")


def test_one_large_integer_is_refused_as_in_an_array():
    rule = fr.RunningMoments()
    rule.update(TWO)
    for x in (TWO + 1, np.int64(TWO + 1)):
        with pytest.raises(ValueError, match="which no float64 holds"):
            rule.update(x)
    for x in (np.timedelta64(3, "s"), np.datetime64("2026-01-01"), np.array(3, "m8[s]")):
        with pytest.raises(TypeError, match="one real number is needed"):
            rule.update(x)
    assert rule.count == 1


def test_durations_are_no_numbers_of_an_option():
    three = np.timedelta64(3, "s")
    for option in ({"first_look": three}, {"epsilon": three}, {"growth": three}, {"max_pulls": three}):
        with pytest.raises(TypeError, match=f"{next(iter(option))} is .*is needed"):
            fr.race(TABLE, **option)


def test_a_column_of_large_integers_among_floats_is_refused():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.array([TWO, TWO + 1]), "b": [0.5, 0.25]})
    for table in (frame, {"a": frame.a.to_numpy(), "b": [0.5, 0.25]}, frame.astype({"a": "Int64"})):
        with pytest.raises(ValueError, match="which no float64 holds"):
            fr.race(table)


@pytest.mark.parametrize("kind", ["lists", "dict", "pandas", "nullable", "objects", "polars", "arrow", "array"])
@pytest.mark.parametrize("values", [(True, False, None), (1, 0, None), (0.5, 0.25, None)])
def test_missing_rewards_are_dropped_from_any_table(kind, values):
    a, b, c = values
    columns = {"a": [a, b, a, a] * 50, "b": [b, b, c, a] * 50}
    table = columns
    if kind in ("lists", "array"):
        table = list(map(list, zip(*columns.values(), strict=True)))
        table = np.array(table, dtype=object) if kind == "array" else table
    elif kind in ("pandas", "nullable", "objects"):
        pd = pytest.importorskip("pandas")
        table = pd.DataFrame(columns)
        table = table.convert_dtypes() if kind == "nullable" else table.astype(object) if kind == "objects" else table
    elif kind == "polars":
        table = pytest.importorskip("polars").DataFrame(columns)
    elif kind == "arrow":
        table = pytest.importorskip("pyarrow").table(columns)
    plain = np.array(list(columns.values()), dtype=np.float64).T
    found, wanted = (fr.race(given, missing="drop", rng=1) for given in (table, plain))
    assert found.mean.tolist() == wanted.mean.tolist() and found.n_missing == wanted.n_missing > 0
    with pytest.raises(ValueError, match="nan"):
        fr.race(table, rng=1)


pd = pytest.importorskip("pandas")
LOSSES = ["neg_mean_absolute_error", "neg_mean_squared_error", "neg_mean_absolute_percentage_error", "r2"]
WHEN = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(np.random.default_rng(0).integers(0, 10**6, 300), "s"))


def raced(y, columns, scoring="accuracy", **more):
    race_predictions = pytest.importorskip("fastrace.model_selection").race_predictions
    return race_predictions(y, columns, scoring, rng=1, **more)


@pytest.mark.parametrize("scoring", LOSSES)
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_dates_and_durations_are_not_subtracted_as_counts_of_their_units(scoring, unit):
    """The unit of one of them may be another than that of the other, and the wrong model would win."""
    predicted = pd.DataFrame({"good": WHEN + pd.Timedelta("1min"), "bad": WHEN - pd.Timedelta("1D")})
    since = WHEN - pd.Timestamp("2023-01-01")
    for y, p in ((WHEN, predicted.astype(f"datetime64[{unit}]")), (since, predicted.sub(WHEN, axis=0).astype(
            f"timedelta64[{unit}]")), (WHEN.dt.tz_localize("UTC"), predicted)):
        with pytest.raises(ValueError, match=r"y_true has dtype .*; real numbers are needed"):
            raced(y, p, scoring)
    with pytest.raises(ValueError, match=r"the predictions has dtype timedelta64.*divide.*timedelta64\(1, 's'\)"):
        raced(since.dt.total_seconds(), predicted.sub(WHEN, axis=0).astype(f"timedelta64[{unit}]"), scoring)
    second = pd.Timedelta("1s")
    found = raced(since / second, predicted.sub(pd.Timestamp("2023-01-01")) / second, scoring)
    assert found.names[found.best] == "good"


def test_dates_are_refused_before_a_prediction_is_paid_for():
    calls = []
    with pytest.raises(ValueError, match="y_true has dtype datetime64"):
        raced(WHEN, lambda arms, rows: calls.append(rows), "neg_mean_absolute_error", n_candidates=2)
    assert not calls


def test_dates_are_labels_of_any_unit_and_no_numbers():
    day = WHEN.dt.floor("D")
    wrong = day.where(np.arange(300) % 3 > 0, day[0])
    for unit in ("s", "ns"):
        predicted = pd.DataFrame({"wrong": wrong, "right": day}).astype(f"datetime64[{unit}]")
        assert raced(day, predicted).best == 1
    missing = pd.DataFrame({"wrong": wrong, "right": day.mask(np.arange(300) % 7 == 0)})
    with pytest.raises(ValueError, match="nan"):
        raced(day, missing)
    assert raced(day, missing, missing="drop").n_missing > 0
    whole = np.arange(300) % 5
    for odd in (whole.astype("timedelta64[s]"), whole.astype("datetime64[s]")):
        with pytest.raises(ValueError, match="y_true holds numbers.*predictions hold d(ates|urations)"):
            raced(whole, np.stack([odd, odd], axis=1))


@pytest.mark.parametrize("scoring", ["accuracy", "neg_mean_squared_error"])
@pytest.mark.parametrize("kind", ["Int64", "boolean", "Float64", "string", "object"])
def test_missing_predictions_of_nullable_types_are_missing(kind, scoring):
    y = pd.Series(np.tile([0, 1], 150))
    words = kind == "string"
    y = y.astype(str) if words else y.astype(bool) if kind == "boolean" else y
    right, wrong = y.astype(kind), y.astype(kind).where(np.arange(300) % 5 > 0, y[1])
    gaps = right.copy()
    gaps[3] = pd.NA
    tables = [pd.DataFrame({"gaps": gaps, "wrong": wrong}), {"gaps": gaps, "wrong": wrong}, [gaps, wrong]]
    if words and scoring != "accuracy":
        with pytest.raises(ValueError, match="y_true has dtype .*; real numbers are needed"):
            raced(y, tables[0], scoring, missing="drop")
        return
    for table in tables:
        found = raced(y, table, scoring, missing="drop")
        assert (found.best, found.n_missing) == (0, 1) and found.mean[1] != found.mean[0] == (scoring == "accuracy")
        with pytest.raises(ValueError, match="nan"):
            raced(y, table, scoring)
        assert raced(y, table, scoring, missing="worst", support=(-1, 1)).mean[0] < found.mean[0]
    with pytest.raises(ValueError, match="y_true is (<NA>|nan) on row 3"):
        raced(gaps, tables[0], scoring)


def test_missing_probabilities_of_nullable_types_are_missing():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    good = pd.DataFrame({0: np.where(y, 0.2, 0.8), 1: np.where(y, 0.8, 0.2)})
    gaps = good.astype("Float64")
    gaps.loc[3] = pd.NA
    found = raced(y, [gaps, 0.5 * good + 0.25], "neg_brier_score", missing="drop")
    assert found.best == 0 and found.n_missing == 1
    with pytest.raises(ValueError, match="y_pred has dtype timedelta64.*needs probabilities, which are numbers"):
        raced(y, [np.ones((300, 2), "m8[s]")] * 2, "neg_brier_score")


OF_CHAINS = [name for name in nonsense.names() if name.startswith("mcmc.")]     # those that read none yet


@pytest.mark.parametrize("name", [name for name in nonsense.names() if name not in OF_CHAINS])
def test_no_argument_of_durations_or_dates_is_read_as_numbers(name):
    if name.startswith(nonsense.OF_SKLEARN):
        pytest.importorskip("sklearn")
    wrong, _count = nonsense.walk_units(name)
    assert not wrong, "\n".join(f"{name}({key}={what}): {words}" for (key, what), words in wrong.items())
