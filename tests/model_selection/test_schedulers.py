"""What every scheduler of trainings keeps: learners that fail, interrupts, pickles, several at once, and errors."""

import copy
import importlib.util
import inspect
import math
import pickle
import re
import sys
import threading
from unittest import mock

import numpy as np
import pytest

from fastrace.model_selection import (
    ASHA,
    DAUB,
    DAUBHalving,
    FixedSubset,
    Hyperband,
    RandomChoice,
    SuccessiveHalving,
)
from fastrace.model_selection.schedulers import _baselines, _daub
from guarantee import few_or_many
from trainings import methods, scores


@pytest.mark.parametrize("kind", ["raises", "nan", "inf", "late"])
def test_learners_that_fail_are_dropped(kind):
    def train(i, n):
        if i == 8 and (kind != "late" or n > 2000):     # it would have won
            if kind == "raises" or kind == "late":
                raise MemoryError("too many rows")
            return 0.5, math.nan if kind == "nan" else math.inf
        return scores(i, n)

    for method in methods(9, 5000):
        result = method.run(train)
        assert result.best != 8 and 8 not in result.dropped or "8" not in result.dropped
        assert result.reached[result.best] == 5000
        if not isinstance(method, RandomChoice) or 8 in result.dropped:
            why = {"raises": "MemoryError: too many rows", "late": "MemoryError", "nan": "nan", "inf": "inf"}[kind]
            assert list(result.dropped) == [8] and why in result.dropped[8]
        assert "dropped 8" in str(result) or not result.dropped


def test_all_learners_crash():
    def train(i, n):
        raise OSError(f"no {i}")

    for method in methods(5, 5000):
        with pytest.raises(RuntimeError, match="no learner is left.*no 3") if not isinstance(
                method, RandomChoice) else pytest.raises(RuntimeError):
            method.run(train)
        assert method.done
        with pytest.raises(RuntimeError, match="over"):
            method.ask()


def test_answers_without_both_scores_are_named():
    for answer in (0.5, "0.5", (0.5,), None):
        with pytest.raises(RuntimeError, match=r"train returned .*; \(training score or None, validation score\)"):
            DAUB(2, 1000).run(lambda i, n, answer=answer: answer)


def test_the_error_where_no_learner_is_left_says_why_and_what_to_do():
    def train(learner, n):
        raise ValueError("the data are empty\nsecond line")

    for method in methods(12, 5000):
        with pytest.raises(RuntimeError) as caught:
            method.run(train)
        words = str(caught.value)
        assert "ValueError: the data are empty on" in words and words.count("the data are empty") == 1
        assert re.search(r"; train\(\d+, \d+\) raised the last of these errors: call it yourself", words)
        assert "second line" not in words and isinstance(caught.value.__cause__, ValueError)


def test_a_function_that_is_called_wrongly_is_refused_before_any_training():
    for wrong in (lambda n: (None, 0.5), lambda learner, n, extra: (None, 0.5)):
        method = DAUB(3, 1000, 50)
        with pytest.raises(TypeError, match=r"train is called as train\(learner, n\), and it takes"):
            method.run(wrong)
        assert not method.dropped and not method.done


@pytest.mark.parametrize("make", [
    lambda: DAUB(3, 400, 500), lambda: SuccessiveHalving(3, 400, 500), lambda: DAUBHalving(3, 400, 500),
    lambda: FixedSubset(3, 400, 500), lambda: Hyperband(3, 400, 500, rng=0), lambda: ASHA(3, 400, 500),
])
def test_a_first_size_above_all_rows_is_said(make):
    result = make().run(lambda learner, n: (None, learner))
    assert {n for _, n in result.allocations} == {400}
    assert "first is 500 and there are 400 rows" in result.warnings[0] and result.warnings[0] in str(result)


def test_options_of_all_methods_stand_in_every_signature_and_errors_name_the_class():
    for method in methods(4, 5000):
        kind = type(method)
        given = inspect.signature(kind).parameters
        assert ["direction", "cost", "budget", "names"] == list(given)[-4:] and "common" not in given
        assert ("growth" in given) is (kind in (SuccessiveHalving, DAUBHalving))
        with pytest.raises(TypeError, match=rf"^{kind.__name__}: there is no parameter 'sise'; there are n_learners"):
            kind(4, 5000, 100, sise=3)
        with pytest.raises(ValueError, match=rf"^{kind.__name__}: budget is -1"):
            kind(4, 5000, 100, budget=-1)
    with pytest.raises(TypeError, match=r"^FixedSubset: there is no parameter 'growth'"):
        FixedSubset(4, 5000, 100, growth=2.0)


def test_what_is_printed_is_called_as_in_the_table():
    result = DAUB(4, 5000, 50).run(scores)
    heads = str(result).splitlines()[1].split()[1:]
    assert set(heads) <= set(result.to_frame().columns) and {"rows", "reached"} <= set(heads)


def test_a_learner_that_hangs_is_dropped():
    let_go, awake = threading.Event(), []

    def train(i, n):
        if i == 4 and not let_go.wait(60.0):
            awake.append(i)
        return scores(i, n)

    try:
        result = DAUB(5, 1000, 300).run(train, time_limit=1.0)
        assert result.best == 3 and "TimeoutError: took longer than 1 s" in result.dropped[4]
        assert not awake                # it did not wait for the end of the training
    finally:
        let_go.set()


def test_an_interrupted_run_goes_on():
    for method, other in zip(methods(9, 5000), methods(9, 5000), strict=True):
        wanted = method.run(scores)
        calls = []

        def train(i, n, calls=calls):
            calls.append((i, n))
            if len(calls) % 3 == 0:
                raise KeyboardInterrupt
            return scores(i, n)

        while not other.done:
            try:
                other.run(train)
            except KeyboardInterrupt:
                other = pickle.loads(pickle.dumps(other))
        assert other.result().allocations == wanted.allocations
        assert other.result().best == wanted.best


def test_pickles_and_copies_at_any_point(rng):
    for made in methods(7, 5000):
        wanted = copy.deepcopy(made).run(scores)
        steps = 0
        while not made.done:
            i, n = made.ask()
            if steps % 5 == 2:
                for restored in (pickle.loads(pickle.dumps(made)), copy.copy(made)):
                    assert restored.outstanding == [(i, n)]
                    assert restored.run(scores).allocations == wanted.allocations
                assert made.outstanding == [(i, n)]
            made.tell(i, n, *scores(i, n))
            steps += 1
        assert made.result().allocations == wanted.allocations
    with pytest.raises(ValueError, match="version 99"):
        rebuild, (version, *rest) = DAUB(2, 1000).__reduce__()
        rebuild(99, *rest)


def test_several_at_once(rng):
    """Workers that answer in any order: nothing is lost or made twice, and the first sizes are those of one worker."""
    for _ in range(10):
        for method in methods(9, 5000):
            flying, seen = [], set()
            while not method.done:
                item = method.ask() if len(flying) < 4 else None
                if item is not None:
                    assert item not in seen
                    seen.add(item)
                    flying.append(item)
                    continue
                assert flying, "nothing to do and not done"
                i, n = flying.pop(int(rng.integers(len(flying))))
                if i == 2 and n > 500:
                    method.fail(i, n, "lost")
                else:
                    method.tell(i, n, *scores(i, n))
            result = method.result()
            assert result.reached[result.best] == 5000
            if isinstance(method, (DAUB, SuccessiveHalving)) and not isinstance(method, RandomChoice):
                assert result.best == 8 or isinstance(method, FixedSubset | SuccessiveHalving | DAUB)


def test_cancelled_trainings_are_asked_again():
    daub = DAUB(2, 1000, 100)
    first = [daub.ask(), daub.ask()]
    daub.cancel()
    assert daub.outstanding == []
    assert [daub.ask(), daub.ask()] == first
    assert daub.ask() == (0, 225)


def test_callback_stops_with_the_best_so_far():
    seen = []
    result = DAUB(4, 100_000, 100).run(scores, callback=lambda method: seen.append(method.spent) or len(seen) == 13)
    assert len(result.history) == len(seen) == 13 and result.stopped_by == "callback"
    assert seen == sorted(seen)


def test_bad_input_changes_nothing():
    daub = DAUB(2, 1000, 100)
    item = daub.ask()
    for call, wrong in (
        (lambda: daub.tell(1, 100, 0.5, 0.5), "was not asked for"),
        (lambda: daub.tell(0, 150, 0.5, 0.5), "was not asked for"),
        (lambda: daub.tell(*item, 0.5, 0.5, -1.0), "cost is -1"),
        (lambda: daub.tell(*item, 0.5, 0.5, math.nan), "cost is nan"),
        (lambda: daub.fail(1, 100, "no"), "was not asked for"),
    ):
        with pytest.raises(ValueError, match=wrong):
            call()
    for score in ("0.5", None, [0.5]):
        with pytest.raises(TypeError, match="valid_score"):
            daub.tell(*item, 0.5, score)
    assert daub.outstanding == [item] and daub.spent == 0 and not daub.dropped
    daub.tell(np.int64(item[0]), np.int64(item[1]), np.float32(0.5), np.float64(0.5))
    with pytest.raises(ValueError, match="was not asked for"):
        daub.tell(*item, 0.5, 0.5)
    with pytest.raises(RuntimeError, match="no training has ended"):
        DAUB(2, 1000).result()
    for arguments, options, wrong in (
        ((0, 10), {}, "n_learners is 0"),
        ((2, 0), {}, "n_rows is 0"),
        ((2, 10, 0), {}, "first is 0"),
        ((2, 10, 1, 1.0), {}, "ratio is 1.0"),
        ((2, 10, 1, math.inf), {}, "ratio is inf"),
        ((2, 10), {"curve": math.nan}, "curve is nan"),
        ((2, 10), {"curve": 11}, "curve is 11"),
        ((2, 10), {"direction": "up"}, "direction is 'up'"),
        ((2, 10), {"rounding": "down"}, "rounding is 'down'"),
        ((2, 10), {"cost": "money"}, "cost is 'money'"),
        ((2, 10), {"budget": 0}, "budget is 0"),
        ((2, 10), {"names": ["a"]}, "names has 1 entries"),
        ((2, 10), {"names": ["a", "a"]}, "names has 'a' more than once"),
        ((2, 10), {"sizes": [5, 3, 10]}, "increasing sizes"),
        ((2, 10), {"sizes": [5, 9]}, "increasing sizes"),
        ((2, 10), {"sizes": []}, "increasing sizes"),
    ):
        with pytest.raises(ValueError, match=wrong.replace("(", r"\(")):
            DAUB(*arguments, **options)
    with pytest.raises(ValueError, match="factor is 1"):
        SuccessiveHalving(3, 100, factor=1.0)
    with pytest.raises(ValueError, match="first is 'all'"):
        SuccessiveHalving(3, 100, "all")
    with pytest.raises(TypeError, match="n_learners"):
        DAUB(2.5, 10)
    with pytest.raises(ValueError, match="time_limit is 0"):
        DAUB(2, 1000).run(lambda i, n: 1 / 0, time_limit=0)


def test_a_table_prints():
    result = DAUB(12, 5000, 100, names=[f"forest {i}" for i in range(12)]).run(scores)
    text = str(result)
    assert text.startswith("best learner forest 11: DAUB, 100 to 5000 rows") and "... 2 more learners" in text
    assert "* forest 11" in text
    sizes, train, valid = result.curve(11)
    assert sizes[-1] == 5000 and valid[-1] == result.score and train.shape == sizes.shape


def plain_heapq():
    """The standard library's heap in Python, whose steps can be counted."""
    spec = importlib.util.find_spec("heapq")
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {"_heapq": None}):
        spec.loader.exec_module(module)
    return module


def decide(method, count, watch=None):
    """Make decisions on curves whose training scores fall, so that whoever was trained goes to the end of the queue."""
    before = sys.gettrace()
    for _ in range(count):
        sys.settrace(watch or before)
        try:
            i, n = method.ask()
            method.tell(i, n, 1e-6 / n, 1e-18 * n)
        finally:
            sys.settrace(before)
    assert not method.done


def work(method, count):
    """Lines of Python that a decision runs on average, those of the heap among them."""
    lines = 0

    def watch(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        return watch

    heap = plain_heapq()
    with mock.patch.object(_daub, "heapq", heap):
        decide(method, count, watch)
    return lines / count


@few_or_many("many", 10_000, 100_000)
def test_decisions_do_not_slow_down(many):
    """The work of a decision among many learners grows as logarithms do, and not at all with the number of rounds."""
    found = []
    for n_learners in (1000, many):
        method = DAUB(n_learners, 10**15, 100, 1.02)
        decide(method, 3 * n_learners)
        found.append(work(method, 500))
        assert len({i for i, _ in method.result().allocations[-500:]}) == 500
    method = DAUB(1000, 10**15, 100, 1.02)
    decide(method, 20_000)
    assert work(method, 500) < 1.1 * found[0]
    assert found[1] < 1.1 * found[0] * math.log(many) / math.log(1000)


@pytest.mark.parametrize("made", [
    lambda **more: DAUB(20_000, 10**9, 100, 1.5, **more),
    lambda **more: ASHA(20_000, 10**9, 100, **more),
    lambda **more: SuccessiveHalving(20_000, 10**9, 100, **more),
    lambda **more: DAUBHalving(20_000, 10**9, 100, **more),
    lambda **more: Hyperband(20_000, 3**8, 1, rng=0, **more),
], ids=["daub", "asha", "halving", "daub-halving", "hyperband"])
@pytest.mark.parametrize("budget", [None, 1e30])
def test_the_work_of_a_decision_does_not_grow_with_rounds(made, budget, rng):
    """Lines run for a decision after 100, 1000 and 10 000 of them, several outstanding: no slope but of logarithms."""
    method, found, waiting, count, lines = made(budget=budget), [], [], 0, 0

    def watch(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        return watch

    heap, before = plain_heapq(), sys.gettrace()
    with mock.patch.object(_daub, "heapq", heap), mock.patch.object(_baselines, "heapq", heap):
        for rounds in (100, 1000, 10_000):
            while count < rounds + 200:
                if count == rounds:
                    lines = 0
                    sys.settrace(watch)
                while len(waiting) < 8 and (item := method.ask()) is not None:
                    waiting.append(item)
                i, n = waiting.pop(0)
                method.tell(i, n, None, float(rng.integers(10**6)))
                count += 1
            sys.settrace(before)
            found.append(lines / 200)
    assert not method.done
    slope = (found[2] - found[0]) / math.log2(10_000 / 100)
    assert slope < 20.0, found           # a step more down each of a few heaps when the number of rounds doubles


def test_a_run_without_learners_left_names_the_last_error_as_its_cause():
    def train(learner, n):
        raise KeyError(f"column of learner {learner}")

    with pytest.raises(RuntimeError, match="no learner is left") as caught:
        DAUB(3, 1000, 100).run(train)
    assert isinstance(caught.value.__cause__, KeyError)


class Any(DAUB):
    """Passes everything on."""

    def __init__(self, *args, extra=None, **options):
        super().__init__(*args, **options)
        self.extra = extra


class Renamed(DAUB):
    def __init__(self, learners, **common):
        super().__init__(learners, 1000, **common)


def test_a_subclass_of_a_user_passes_its_arguments_on():
    for method in (Any(3, 1000, first=10), Any(3, 1000, 10), Any(n_learners=3, n_rows=1000, first=10, extra=5),
                   Renamed(3, first=10, budget=100.0)):
        assert method.ask() == (0, 10)
        assert pickle.loads(pickle.dumps(method)).outstanding == [(0, 10)]
    assert list(inspect.signature(Any).parameters) == ["args", "extra", "options"]
    assert list(inspect.signature(Renamed).parameters) == ["learners", "common"]
    with pytest.raises(TypeError, match="^Any: there is no parameter 'sise'; there are n_learners"):
        Any(3, 1000, sise=3)


@pytest.mark.parametrize("kind", [DAUB, SuccessiveHalving, DAUBHalving, FixedSubset, Hyperband, ASHA])
def test_a_training_whose_cost_raises_is_asked_again(kind):
    fails = [True, False, True]

    def cost(learner, n):
        if fails and fails.pop(0):
            raise OSError("no price yet")
        return float(n)

    options = {"rng": 0} if kind is Hyperband else {}
    method, plain = kind(4, 5000, 100, cost=cost, budget=1e9, **options), kind(4, 5000, 100, **options)
    asked = []
    while len(asked) < 8:
        try:
            asked.append(method.ask())
        except OSError:
            assert len(method.outstanding) == len(asked)
            continue
        if asked[-1] is None:
            break
    expected = [plain.ask() for _ in asked]
    assert asked == expected and not fails


def test_the_error_where_no_learner_is_left_names_the_training_that_raised():
    def train(learner, n):
        if learner == 0:
            raise KeyError("no column")
        return None, math.nan

    with pytest.raises(RuntimeError, match=r"; train\(0, 10\) raised the last of these errors") as caught:
        DAUB(2, 1000, first=10).run(train)
    assert isinstance(caught.value.__cause__, KeyError)
