"""Python functions as sources of rewards: what they may return, raise and keep."""

import functools
import pickle

import numpy as np
import pytest
from scipy import LowLevelCallable

import fastrace as fr
from fastrace.model_selection import race_predictions
from fastrace.sources import CallableSource, CallbackSource
from reward_tables import ARMS, PER_ARM, ROWS, assert_delivers, lookup, read_only, table

VALUES_OF_THREE = np.random.default_rng(3).random((100, 3))


class Lookup:
    """A function that pickles."""

    def __init__(self, values):
        self.values = values

    def __call__(self, arms, rows):
        return self.values[np.ix_(rows, arms)]


@pytest.mark.parametrize("convert", [
    lambda x: x,
    np.asfortranarray,
    lambda x: x.tolist(),
    lambda x: x.astype(np.float32),
    lambda x: x.astype(np.float16),
    lambda x: x.astype(np.int32),
    lambda x: x.astype(">f8"),
    lambda x: x.astype(np.longdouble),
    lambda x: x.astype(np.uint8),
    lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    lambda x: np.ma.masked_array(x, mask=False),
    read_only,
], ids=range(13))
def test_callable_may_return_any_real_block(convert):
    values = table()
    assert_delivers(CallableSource(lambda arms, rows: convert(values[np.ix_(rows, arms)]), 3, 7), values)


def test_callable_returning_pandas():
    pd = pytest.importorskip("pandas")
    assert_delivers(CallableSource(lambda arms, rows: pd.DataFrame(table()[np.ix_(rows, arms)]), 3, 7), table())


@pytest.mark.resources
def test_population_beyond_2_to_31():
    seen = []

    def function(arms, rows):
        assert arms.dtype == np.intp and rows.dtype == np.int64
        seen.extend(rows.tolist())
        return (rows % 1000)[:, None] + 0.0 * arms

    source = CallableSource(function, 1, 2**33)
    row = 2**31 + 7
    np.testing.assert_array_equal(source.read([row, 2**33 - 1]), [[row % 1000], [(2**33 - 1) % 1000]])
    assert seen == [row, 2**33 - 1]


@pytest.mark.resources
def test_population_beyond_2_to_31_compiled():
    seen = []

    @PER_ARM
    def callback(out, n_rows, rows, arm):
        for i in range(n_rows):
            seen.append(rows[i])
            out[i] = float(rows[i])
        return 0

    source = CallbackSource(LowLevelCallable(callback), 1, 2**33)
    assert source.read([2**31 + 7])[0, 0] == 2**31 + 7
    assert seen == [2**31 + 7]


@pytest.mark.parametrize("failing_call", [0, 1, 5])
@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), KeyboardInterrupt(), StopIteration(3)])
def test_callable_raises(failing_call, error):
    calls = 0

    def function(arms, rows):
        nonlocal calls
        calls += 1
        if calls == failing_call + 1:
            raise error
        return table()[np.ix_(rows, arms)]

    source = CallableSource(function, 3, 7)
    for _ in range(failing_call):
        source.read([0])
    with pytest.raises(type(error)) as caught:
        source.totals()
    assert caught.value is error
    assert_delivers(source, table())


@pytest.mark.parametrize("answer, words", [
    (None, "returned None"),
    (3, r"int of shape \(\)"),
    (1.5, r"float of shape \(\)"),
    (np.float64(2.0), r"float64 of shape \(\)"),
    (np.array(2.0), r"shape \(\)"),
    (np.zeros((3, 4)), r"shape \(3, 4\)"),
    (np.zeros(12), r"shape \(12,\)"),
    (np.zeros((4, 3, 1)), r"shape \(4, 3, 1\)"),
    (np.zeros((4, 3), dtype=complex), "complex128"),
    ([[1, 2, 3], [1, 2]], "no array"),
    ("rewards", "<U7"),
    ([[None] * 3] * 3 + [[None, 1.0, object()]], "object"),
    (np.ma.masked_array(np.zeros((4, 3)), mask=np.eye(4, 3)), "masked"),
    (lambda: None, "function of dtype object"),
    (float, "type of dtype object"),
])
def test_callable_returns_nonsense(answer, words):
    source = CallableSource(lambda arms, rows: answer, 3, 7)
    with pytest.raises(ValueError, match=words) as caught:
        source.read(ROWS)
    assert words == "masked" or "(4, 3), rows by arms" in str(caught.value)


def test_none_of_a_callable_is_a_missing_reward():
    answer = [[None, 1, 0.5], [2.0, None, True]]
    np.testing.assert_array_equal(CallableSource(lambda arms, rows: answer, 3, 2).read([0, 1]),
                                  [[np.nan, 1.0, 0.5], [2.0, np.nan, 1.0]])


def test_callable_may_keep_and_change_its_arguments():
    kept, values = [], table()

    def function(arms, rows):
        block = values[np.ix_(rows, arms)]
        kept.append((arms, rows))
        rows[:] = -1
        arms[:] = -1
        return block

    source = CallableSource(function, 3, 7)
    rows, arms = np.array(ROWS), np.array(ARMS)
    for _ in range(3):
        np.testing.assert_array_equal(source.read(rows, arms), values[np.ix_(ROWS, ARMS)])
    assert rows.tolist() == ROWS and arms.tolist() == ARMS
    assert not np.shares_memory(kept[0][1], kept[1][1])
    assert all(row.tolist() == [-1] * 4 and arm.tolist() == [-1] * 3 for arm, row in kept)
    np.testing.assert_array_equal(source.totals(), values.sum(axis=0))


def test_callable_may_re_enter_its_source():
    values = table()

    def function(arms, rows):
        inner = source.read(rows, arms) if len(rows) > 1 and rows[0] != rows[-1] else None
        block = values[np.ix_(rows, arms)]
        assert inner is None or np.array_equal(inner, block)
        return block

    depth = 0

    def guarded(arms, rows):
        nonlocal depth
        depth += 1
        try:
            return function(arms, rows) if depth == 1 else values[np.ix_(rows, arms)]
        finally:
            depth -= 1

    source = CallableSource(guarded, 3, 7)
    assert_delivers(source, values)


def test_callable_full_pass_comes_in_large_blocks():
    sizes = []

    def function(arms, rows):
        sizes.append(len(rows))
        return np.ones((len(rows), len(arms)))

    np.testing.assert_array_equal(CallableSource(function, 2, 20_000).totals(), 20_000)
    assert sizes == [8192, 8192, 20_000 - 2 * 8192]


def test_callable_pickles_when_its_function_does():
    source = CallableSource(Lookup(table()), 3, 7, support=(0, 20), scan_advantage=2.0, first_look=99)
    again = pickle.loads(pickle.dumps(source))
    assert (again.support, again.scan_advantage, again.first_look) == ((0, 20), 2.0, 99)
    assert_delivers(again, table())
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(CallableSource(lambda arms, rows: None, 1, 1))
    cloudpickle = pytest.importorskip("cloudpickle")
    assert_delivers(pickle.loads(cloudpickle.dumps(CallableSource(lookup(table()), 3, 7))), table())


def test_callable_must_be_callable():
    with pytest.raises(ValueError, match="function is 3"):
        CallableSource(3, 1, 1)


@pytest.mark.parametrize(("make", "called"), [
    (lambda f: fr.race(f, n_arms=2, n_rows=9), r"function\(arms, rows\)"),
    (lambda f: fr.BettingRace(2, support=(0, 1)).run(f), r"function\(arms, rows\)"),
    (lambda f: fr.DiscreteSampler(f, n_arms=2, n_rows=9), r"function\(arms, rows\)"),
    (lambda f: fr.select_best(f, 2, 1, 0.1), r"function\(arms, counts\)"),
    (lambda f: fr.race_sums(f, [3, 4]), r"rewards\(arm, rows\)"),
])
def test_functions_of_other_arguments_say_how_they_are_called(make, called):
    functions = (lambda: 1, r"\(\)"), (lambda a, b, c: 1, r"\(a, b, c\)"), (lambda *, a, b: 1, r"\(\*, a, b\)")
    for function, found in functions:
        with pytest.raises(TypeError, match=f"is called as {called}, and it takes {found}: "):
            make(function)


def test_functions_that_take_more_than_they_show_are_called():
    def shown(rows):
        """What a decorator tells of itself need not be what it takes."""

    @functools.wraps(shown)
    def taken(*arguments):
        arms, rows = arguments
        return np.ones((len(rows), 1)) * arms

    assert fr.race(taken, n_arms=2, n_rows=9).best == 1
    assert fr.race(functools.partial(lambda more, arms, rows: taken(arms, rows), 1), n_arms=2, n_rows=9).best == 1


def test_sums_and_pulls_name_what_a_function_returned():
    for returned, words in (([[1.0], [1.0, 2.0], 3.0], "rows of different lengths; one reward per row"),
                            (["a"] * 3, r"dtype <U1; one reward per row, .* shape \(3,\)")):
        with pytest.raises(ValueError, match=rf"rewards\(arm, rows\) returned {words}"):
            fr.race_sums(lambda arm, rows, returned=returned: returned, [3, 3])
    for returned, words in ((None, "NoneType of dtype object; real numbers"), ([[1.0], [1.0, 2.0], 3.0], "no array")):
        with pytest.raises(ValueError, match=f"rewards are a.*{words}"):
            fr.select_best(lambda arms, counts, returned=returned: returned, 2, 1, 0.1)


class Async:
    """What has to be awaited, as a function, an object with a method `pull`, and a plain function that hides it."""

    async def __call__(self, arms, rows):
        return np.zeros((len(rows), len(arms)))

    async def pull(self, arms, counts):
        return np.zeros(sum(counts))


async def coroutine_function(arms, rows):
    return np.zeros((len(rows), len(arms)))


DOORS = {
    "race": lambda f: fr.race(f, n_arms=3, n_rows=500),
    "FiniteRace": lambda f: fr.FiniteRace(3, 500).run(f),
    "BettingRace": lambda f: fr.BettingRace(3, support=(0, 1)).run(f),
    "LUCB": lambda f: fr.LUCB(3, 1).run(f),
    "select_best": lambda f: fr.select_best(f, 3),
    "race_sums": lambda f: fr.race_sums(f, sizes=[500] * 3),
    "race_predictions": lambda f: race_predictions(np.arange(500) % 2, f, n_candidates=3),
}


@pytest.mark.filterwarnings("error")                    # such as that of a coroutine that was never awaited
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("function", "said"), [
    (coroutine_function, "is a coroutine function"),
    (Async(), "is a coroutine function"),
    (functools.partial(coroutine_function), "is a coroutine function"),
    (lambda arms, rows: coroutine_function(arms, rows), "returned what has to be awaited"),
], ids=["async def", "object", "partial", "lambda"])
def test_what_has_to_be_awaited_is_refused_and_pointed_to_race_async(door, function, said):
    with pytest.raises(TypeError, match=f"{said}.*await fastrace.race_async"):
        DOORS[door](function)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("call", "said"), [
    (lambda: fr.estimate_mean(coroutine_function), "rewards is a coroutine function"),
    (lambda: fr.estimate_mean(lambda: coroutine_function(0, [0])), r"rewards\(\) returned what has to be awaited"),
    (lambda: fr.estimate_mean(lambda n: coroutine_function(0, [0]), batch=9), "9.* returned what has to be awaited"),
    (lambda: fr.permutation_test(([1.0, 2.0], [2.0, 3.0]), coroutine_function), "statistic is a coroutine function"),
])
def test_where_no_race_would_help_a_plain_function_is_asked_for(call, said):
    with pytest.raises(TypeError, match=f"{said}.*give a plain function") as raised:
        call()
    assert "race_async" not in str(raised.value)


def test_a_support_given_by_position_is_pointed_to_its_name():
    with pytest.raises(TypeError, match=r"bound is \(0, 1\).*race\(rewards, support=\(0, 1\)\)"):
        fr.race(np.zeros((9, 2)), 0.05, (0, 1))


@pytest.mark.parametrize(("function", "raised"), [
    (lambda arm, row: VALUES_OF_THREE[row, arm], IndexError),                   # reads its arguments as single numbers
    (lambda row, arm: VALUES_OF_THREE[np.ix_(row, arm)], IndexError),           # takes rows for arms
    (lambda arm, row: {0: 0.1, 1: 0.2, 2: 0.3}[arm], TypeError),
    (lambda arm, row: arm.reward(row), AttributeError)], ids=["cells", "swapped", "dict", "objects"])
def test_a_function_that_reads_its_arguments_wrongly_is_told_how_it_was_called(function, raised):
    with pytest.raises(raised) as caught:
        fr.race(function, n_arms=3, n_rows=100, support=(0, 1))
    assert any("arms of shape (3,) and rows of shape (50,)" in note and "rewards of shape (50, 3)" in note
               for note in caught.value.__notes__)


def test_a_function_of_pulls_that_reads_its_arguments_wrongly_is_told_how_it_was_called():
    with pytest.raises(TypeError) as caught:
        fr.LUCB(3, 1).run(lambda arm, count: [0.1, 0.2, 0.3][arm])
    assert any("arms of shape (3,) and counts of shape (3,)" in note and "counts[0] of arms[0]" in note
               for note in caught.value.__notes__)
