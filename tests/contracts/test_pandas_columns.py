"""Names on pandas objects with one entry per class or arm say whose it is; position counts where there are none."""

import numpy as np
import pytest

import fastrace as fr
from fastrace.model_selection import race_predictions

pd = pytest.importorskip("pandas")

ARMS = ["a", "b", "c"]
SHIFT = {"a": 0.0, "b": 0.0, "c": -np.inf}      # c has the largest rewards, and must not win
OFFSETS = {
    "race": fr.race,
    "race_names": lambda table, **more: fr.race(table.to_numpy(), names=ARMS, **more),
    "FiniteRace": lambda table, **more: fr.FiniteRace(3, len(table), names=ARMS, **more).run(table.to_numpy()),
    "LilUCB": lambda table, **more: fr.LilUCB(3, len(table), 0.05, support=(0, 1), names=ARMS, **more).run(
        table.to_numpy()),
    "race_sums": lambda table, **more: fr.race_sums({arm: table[arm].to_numpy() for arm in ARMS}, **more),
}
SHARES = (0.5, 0.6, 0.9)


def predictions(labels, seed=0):
    """True values, and the probabilities by three models in the order of `labels`: the last is best."""
    rng = np.random.default_rng(seed)
    y = np.array(labels)[rng.integers(0, len(labels), 2000)]
    tables = [0.5 * rng.random((2000, len(labels))) + share * (y[:, None] == np.array(labels)) for share in SHARES]
    return y, [table / table.sum(axis=1, keepdims=True) for table in tables]


def scores(y, tables, **more):
    return race_predictions(y, tables, "neg_log_loss", rng=1, **more).mean.tolist()


@pytest.mark.parametrize("labels", [["a", "b", "c"], [1, 2, 5], [0, 1, 2], [False, True]])
@pytest.mark.parametrize("kind", ["values", "text", "arrow"])
def test_columns_that_name_classes_are_taken_by_name(labels, kind):
    y, tables = predictions(labels)
    wanted, back = scores(y, tables), labels[::-1]
    names = labels if kind == "values" else list(map(str, labels))
    frames = [pd.DataFrame(table, columns=names).iloc[:, ::-1] for table in tables]
    if kind == "arrow":
        frames = [pytest.importorskip("pyarrow").table(frame) for frame in frames]
    assert scores(y, frames) == wanted
    assert scores(y, [*tables[:2], frames[2]]) == wanted
    assert scores(y, dict(zip("xyz", frames, strict=True)), labels=back) == wanted
    assert scores(y, frames, labels=labels) == wanted


def test_columns_without_names_are_taken_by_position():
    y, tables = predictions(["a", "b", "c"])
    wanted = scores(y, tables)
    for names in (None, [0, 1, 2], ["0", "1", "2"], ["column_0", "column_1", "column_2"]):
        assert scores(y, [pd.DataFrame(table, columns=names) for table in tables]) == wanted
    y, tables = predictions([0, 1, 2])
    back = [pd.DataFrame(table[:, ::-1]) for table in tables]       # labels say what the columns are
    assert scores(y, back, labels=[2, 1, 0]) == scores(y, tables)


@pytest.mark.parametrize("names", [["a", "b", "x"], ["a", "b", "b"], [2, 1, 0]])
def test_columns_that_name_no_classes_are_refused(names):
    y, tables = predictions(["a", "b", "c"])
    frame = pd.DataFrame(tables[2])
    frame.columns = names
    for given, called in (([*tables[:2], frame], r"y_pred\[2\]"), ({"m": tables[0], "n": frame}, r"y_pred\['n'\]")):
        with pytest.raises(ValueError, match=f"{called} has the names {names[0]!r}, .*; those of the classes"):
            scores(y, given)


@pytest.mark.parametrize("door", OFFSETS)
def test_an_offset_goes_by_the_names_of_the_arms(door):
    table = pd.DataFrame(np.random.default_rng(0).random((3000, 3)) * 0.5 + [0.0, 0.2, 0.5], columns=ARMS)
    for given in (pd.Series(SHIFT), pd.Series(SHIFT)[["c", "b", "a"]], pd.Series(list(SHIFT.values())),
                  list(SHIFT.values())):
        assert OFFSETS[door](table, offset=given, rng=1).best == 1
    with pytest.raises(ValueError, match="offset has the names 'c', 'b', 'x'; those of the arms, 'a', 'b', 'c', are"):
        OFFSETS[door](table, offset=pd.Series([-1.0, 0.0, 0.0], index=["c", "b", "x"]), rng=1)


def test_an_offset_of_arms_without_names_goes_by_position():
    table = np.random.default_rng(0).random((3000, 3)) * 0.5 + [0.0, 0.2, 0.5]
    assert fr.race(table, offset=pd.Series([0.0, 0.0, -np.inf], index=["c", "b", "a"]), rng=1).best == 1
