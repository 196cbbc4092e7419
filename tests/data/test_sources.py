"""Every source delivers the rewards of the table it stands for: arrays, bad requests, and what `as_source` takes."""

import pickle
import re

import numpy as np
import pytest

import fastrace as fr
from fastrace import sources
from fastrace.sources import ArraySource, CallableSource, CallbackSource, as_source
from reward_tables import PER_ARM, assert_delivers, ctypes_callback, lookup, memory_map, read_only, table

# Arrays


ARRAY_KINDS = {
    "float64": table(),
    "float32": table(dtype=np.float32),
    "float16": table(dtype=np.float16),
    "int64": table(dtype=np.int64),
    "int8": table(dtype=np.int8),
    "uint8": table(dtype=np.uint8),
    "bool": table() % 2 == 0,
    "longdouble": table(dtype=np.longdouble),
    "big-endian": table(dtype=">f8"),
    "big-endian float32": table(dtype=">f4"),
    "read-only": read_only(table()),
    "Fortran": np.asfortranarray(table()),
    "negative strides": table()[::-1, ::-1],
    "strided float32": table((14, 6), np.float32)[::2, ::2],
    "broadcast": np.broadcast_to(np.arange(3.0), (7, 3)),
    "masked without masked entries": np.ma.masked_array(table(), mask=False),
    "list": table().tolist(),
}


@pytest.mark.parametrize("kind", ARRAY_KINDS)
def test_array_kinds(kind):
    values = ARRAY_KINDS[kind]
    before = np.array(values, copy=True)
    assert_delivers(ArraySource(values), values)
    np.testing.assert_array_equal(values, before)


def test_array_memmap(tmp_path):
    values = memory_map(table(dtype=np.float32), tmp_path)
    source = ArraySource(values)
    assert np.shares_memory(source.values, values)
    assert_delivers(source, table())


def test_array_unaligned():
    raw = np.zeros(table().nbytes + 1, dtype=np.uint8)
    values = raw[1:].view(np.float64).reshape(7, 3)
    values[...] = table()
    assert_delivers(ArraySource(values), table())


def test_array_pandas():
    pd = pytest.importorskip("pandas")
    assert_delivers(as_source(pd.DataFrame(table(), columns=list("abc"))), table())
    assert_delivers(as_source(pd.DataFrame({"a": range(7), "b": np.arange(7.0), "c": True})),
                    np.column_stack([np.arange(7), np.arange(7), np.ones(7)]))
    assert_delivers(as_source(pd.DataFrame(table(), dtype="Float32")), table())
    with pytest.raises(ValueError, match="not numbers: a"):
        as_source(pd.DataFrame({"a": ["x", "y"]}))


def test_array_polars():
    pl = pytest.importorskip("polars")
    assert_delivers(as_source(pl.DataFrame(table(), schema=list("abc"))), table())


def test_array_arrow():
    pa = pytest.importorskip("pyarrow")
    whole = pa.table({"a": np.arange(7), "b": np.arange(7.0), "c": [True, False, True, True, True, False, True]})
    numbers = np.column_stack([np.arange(7), np.arange(7), [1, 0, 1, 1, 1, 0, 1]])
    assert_delivers(as_source(whole), numbers)
    assert_delivers(as_source(whole.to_batches()[0]), numbers)
    assert_delivers(as_source({name: whole[name] for name in whole.column_names}), numbers)
    with pytest.raises(ValueError, match="not numbers: b"):
        as_source(pa.table({"a": [1, 2], "b": ["x", "y"]}))


def test_array_dict_of_columns():
    assert_delivers(as_source(dict(zip("abc", table().T, strict=True))), table())
    assert_delivers(as_source(dict(zip("abc", table().T.astype(int).tolist(), strict=True))), table())


@pytest.mark.parametrize("values, words", [
    (table(dtype=complex), "complex128"),
    (np.array([[object(), 1.0, 2.0]]), "object"),
    (np.array([["a", "b"]]), "<U1"),
    (np.ma.masked_array(table(), mask=np.eye(7, 3, dtype=bool)), "masked entries"),
    (np.arange(3.0), r"shape \(3,\)"),
    (1.5, r"shape \(\)"),
    (np.zeros((3, 0)), "at least one arm"),
])
def test_array_refusals(values, words):
    with pytest.raises(ValueError, match=words):
        ArraySource(values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_arrays_are_read_in_place(dtype, tmp_path):
    values = np.zeros((1000, 4), dtype=dtype)[:, ::2]
    assert np.shares_memory(ArraySource(values).values, values)


@pytest.mark.parametrize("n_rows", [3, 8, 1025, 5000])
def test_totals_are_the_same_to_the_last_bit_in_every_layout(n_rows, rng):
    """A saved source comes back packed: a full pass of it must end where one of the original ended."""
    values = rng.normal(size=(n_rows, 7))
    exact = ArraySource(values).totals()
    wide = np.zeros((2 * n_rows, 21))
    wide[::2, ::3] = values
    for other in (np.asfortranarray(values), wide[::2, ::3], values[::-1].copy()[::-1], values.astype(">f8")):
        np.testing.assert_array_equal(ArraySource(other).totals(), exact)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(ArraySource(other))).totals(), exact)
        for arms in ([2], [5, 0], [6, 1, 2, 3]):
            np.testing.assert_array_equal(ArraySource(other).totals(arms), exact[arms])
    single = values.astype(np.float32)
    np.testing.assert_array_equal(ArraySource(single).totals(), ArraySource(np.asfortranarray(single)).totals())


@pytest.mark.parametrize("shape", [(5000, 3), (1, 1), (1023, 1), (2049, 70), (0, 2)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_totals_of_any_shape(shape, order, dtype, rng):
    values = np.asarray(rng.standard_normal(shape), dtype=dtype, order=order)
    arms = rng.permutation(shape[1])[: max(1, shape[1] // 2)]
    exact = values.astype(np.longdouble).sum(axis=0)
    np.testing.assert_allclose(ArraySource(values).totals(), exact.astype(float), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ArraySource(values).totals(arms), exact.astype(float)[arms], rtol=1e-12, atol=1e-12)


def test_array_pickles():
    source = pickle.loads(pickle.dumps(ArraySource(table(), support=(0, 21))))
    assert source.support == (0, 21)
    assert_delivers(source, table())


# Bad requests, to any source


@pytest.mark.parametrize("rows, arms, words", [
    ([7], None, r"within \[0, 7\)"),
    ([-1], None, "runs from -1"),
    ([[0]], None, r"shape \(1, 1\)"),
    ([0.5], None, "float64"),
    ([0], [3], r"arms .* within \[0, 3\)"),
])
def test_bad_indices(rows, arms, words):
    with pytest.raises(ValueError, match=words):
        ArraySource(table()).read(rows, arms)


def test_empty_requests():
    source = ArraySource(table())
    assert source.read([]).shape == (0, 3)
    assert source.read([1], []).shape == (1, 0)


@pytest.mark.parametrize("change, words", [
    ({"n_arms": 0}, "n_arms is 0"),
    ({"n_rows": -1}, "n_rows is -1"),
    ({"scan_advantage": 0.5}, "scan_advantage is 0.5"),
    ({"scan_advantage": float("nan")}, "scan_advantage is nan"),
    ({"first_look": 0}, "first_look is 0"),
])
def test_bad_sizes(change, words):
    arguments = {"n_arms": 2, "n_rows": 5} | change
    with pytest.raises(ValueError, match=words):
        CallableSource(lambda arms, rows: np.zeros((len(rows), len(arms))), **arguments)
    with pytest.raises(ValueError, match=words):
        sources.Source(**arguments)


def test_a_source_without_fill_says_so():
    with pytest.raises(TypeError, match="does not define fill"):
        sources.Source(2, 3).read([0])


def test_a_bare_source_refuses_to_pickle():
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(sources.Source(2, 3))


def test_first_look_is_larger_where_python_is_called():
    assert ArraySource(table()).first_look == 50
    assert CallableSource(lambda arms, rows: None, 1, 1).first_look == 256


# as_source


@pytest.mark.parametrize(("call", "called"), [
    (fr.race, "rewards"), (fr.DiscreteSampler, "rewards"), (fr.FiniteRace(2, 3).run, "source"),
    (fr.LilUCB(2, 3, support=(0, 1)).run, "source"), (lambda table: fr.metropolis_accept(table, 0.0), "source"),
    (lambda table: fr.select_best(table, 2), "pull"),
    (lambda table: fr.select_best(table, 2, order="given"), "pull"),
    (fr.pulls.ResampledPulls, "source"), (fr.pulls.RecordedPulls, "values"),
    (sources.ArraySource, "values"), (sources.as_source, "rewards"),
    (fr.HoeffdingRace(2, 9, support=(0, 1)).run, "rewards"),
])
def test_a_refused_table_is_called_as_the_argument_is(call, called):
    masked = np.ma.masked_array(np.zeros((3, 2)), mask=np.eye(3, 2))
    for refused, words in ((np.zeros((3, 2, 1)), "shape (3, 2, 1)"), (np.array([["a", "b"]]), "dtype <U1"),
                           (masked, "masked entries"), ([[1.0], [1.0, 2.0]], "no table")):
        with pytest.raises(ValueError, match=rf"(^|: ){called} (has|is) {re.escape(words)}"):
            call(refused)


def test_as_source_takes_every_kind():
    values = table()
    callback, _ = ctypes_callback(PER_ARM, values)
    source = ArraySource(values)
    assert as_source(source) is source
    assert as_source(source, n_arms=3, n_rows=7) is source
    assert isinstance(as_source(values.tolist()), ArraySource)
    assert isinstance(as_source(lookup(values), 3, 7), CallableSource)
    assert isinstance(as_source(callback, 3, 7), CallbackSource)
    for rewards in (source, values, values.tolist(), lookup(values), callback):
        assert_delivers(as_source(rewards, 3, 7), values)
    assert as_source(values, support=(0, 20)).support == (0, 20)
    assert as_source(lookup(values), 3, 7, (0, 20)).support == (0, 20)


@pytest.mark.parametrize("arguments, words", [
    ((lookup(table()),), "n_arms is None and n_rows is None"),
    ((lookup(table()), 3), "n_rows is None"),
    ((table(), 4), "n_arms is 4, but the rewards have 3"),
    ((table(), None, 8), "n_rows is 8, but the rewards have 7"),
    ((ArraySource(table()), 2), "n_arms is 2"),
    ((ArraySource(table()), None, None, (0, 1)), "beside a source"),
    ((np.arange(3.0),), r"shape \(3,\)"),
    ((None,), "rewards is of type NoneType"),
    (({"a": [1.0], "b": ["x"]},), "columns that are not numbers: b"),
    (({"a": [1.0], "b": [1.0, 2.0]},), r"a: \(1,\), b: \(2,\)"),
    (({"a": 1.0},), r"a: \(\)"),
    (({},), "at least one arm"),
    (({1.0},), "rewards is of type set"),
    (("scores.csv",), "rewards is of type str"),
    (([[1.0, 2.0], [3.0]],), "no table, rows by arms"),
])
def test_as_source_refusals(arguments, words):
    with pytest.raises((ValueError, TypeError), match=words):
        as_source(*arguments)


NO_NUMBERS = {
    "date": lambda n: np.datetime64("2020-01-01", "us") + np.arange(n).astype("m8[us]"),
    "duration": lambda n: np.arange(n).astype("m8[us]"),
    "text": lambda n: ["1.5"] * n,
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_dates_durations_and_text_are_refused_by_name(library, kind):
    module = pytest.importorskip(library)
    columns = {"a": np.arange(9.0), "z": NO_NUMBERS[kind](9)}
    make = module.table if library == "pyarrow" else module.DataFrame
    for given in (make(columns), make({"z": columns["z"]})):
        with pytest.raises(ValueError, match="columns that are not numbers: z; leave them out"):
            as_source(given)


def test_columns_of_pandas_that_only_convert_to_numbers_are_refused_by_name():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(3.0)})
    for column in (pd.Categorical(["5"] * 3), pd.Categorical([5] * 3), pd.array(["1.5"] * 3, dtype="string"),
                   np.array([1, "1.5", 2], object), pd.date_range("2020", periods=3, tz="UTC")):
        with pytest.raises(ValueError, match="columns that are not numbers: z; leave them out"):
            as_source(frame.assign(z=column))
    with pytest.raises(ValueError, match="columns that are not numbers: 1;"):
        as_source(pd.DataFrame({0: [1.0], 1: ["1.5"]}))
    for column in ([True] * 3, pd.array([1] * 3, dtype="Int64"), pd.array([True] * 3, dtype="boolean"),
                   np.array([1, True, np.float32(1.0)], object)):
        assert as_source(frame.assign(z=column)).totals().tolist() == [3.0, 3.0]
