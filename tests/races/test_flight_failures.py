"""Calls that fail are paid for: they count in `max_pulls` and `cost`, and the journal keeps them."""

import asyncio
import json
import pickle
import signal
import threading

import graders
import numpy as np
import pytest

import fastrace as fr
from fastrace.races import flight
from fastrace.races._journal import Journal

VALUES = (np.random.default_rng(5).random((3000, 4)) < [0.5, 0.55, 0.6, 0.55]).astype(float)
PRICES = np.array([1.0, 2.0, 4.0, 8.0])
BUDGET = 1500
DOORS = {
    "betting": lambda **more: {"n_arms": 4, "n_rows": 3000, "support": (0, 1), "delta": 1e-9, "rng": 3, **more},
    "serfling": lambda **more: {"n_arms": 4, "n_rows": 3000, "support": (0, 1), "bound": "serfling", "rng": 3, **more},
    "LUCB": lambda max_pulls=None, **more: {"race": fr.LUCB(4, 1, 0.001, 1e-9, **more), "max_pulls": max_pulls},
    "BettingRace": lambda max_pulls=None, **more: {
        "race": fr.BettingRace(4, delta=1e-9, support=(0, 1), **more), "max_pulls": max_pulls},
}


def third(count):
    return count % 3 == 0


def go(evaluate, door, concurrency=16, retries=50, **more):
    options = {key: more.pop(key) for key in ("journal", "timeout", "max_seconds") if key in more}
    return asyncio.run(fr.race_async(evaluate, concurrency=concurrency, retries=retries, **options,
                                     **DOORS[door](**more)))


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def n_sent(path):
    """Calls that a journal says were made."""
    return sum("sent" in line for line in lines_of(path))


def ended(path):
    """The lines of those that ended."""
    return [line for line in lines_of(path) if "arm" in line and "sent" not in line]


def says_lost(result, count):
    said = f"the journal has {count} call{'s' * (count != 1)} without an answer, under way when the process ended"
    return any(words.startswith(said) for words in result.warnings)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(flight, "FIRST_WAIT", 0.0)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("concurrency", [1, 16])
def test_a_budget_bounds_all_calls_and_the_cost_is_that_of_all_calls(door, concurrency):
    grader = graders.Grader(VALUES, fails=third)
    result = go(grader, door, concurrency, max_pulls=BUDGET, cost=PRICES)
    n_calls, n_failed = len(grader.asked), len(grader.asked) - len(grader.answered)
    assert n_calls <= BUDGET and result.stopped_by == "max_pulls" and n_failed >= 0.3 * BUDGET
    assert n_calls > BUDGET - 4 and result.n_failed == n_failed
    assert result.n_read + result.n_unused + result.n_failed == n_calls
    assert result.cost == pytest.approx(PRICES[[arm for arm, _ in grader.asked]].sum())
    # What was answered is used, but for what came beyond a request that could not be sent again.
    assert result.n_unused <= 4 * concurrency
    assert f"{n_failed} calls failed, and had to be paid for" in str(result)
    assert json.loads(json.dumps(result.to_dict()))["n_failed"] == n_failed
    # The rewards that entered are those of a race without failures, in the same order.
    plain = go(graders.Grader(VALUES), door, concurrency, max_pulls=int(result.n_read) if concurrency == 1 else BUDGET)
    if concurrency == 1:
        np.testing.assert_array_equal(result.pulls, plain.pulls)
        np.testing.assert_array_equal(result.mean, plain.mean)
    assert "calls failed" not in str(plain) and plain.n_failed == 0


@pytest.mark.parametrize("door", DOORS)
def test_a_race_goes_on_from_its_journal_with_the_same_count(tmp_path, door):
    path, first = tmp_path / "race.jsonl", graders.Grader(VALUES, 1, lambda count: count % 3 == 0 or count > 600)
    with pytest.raises(ConnectionError) as raised:
        go(first, door, retries=2, journal=path, max_pulls=BUDGET, cost=PRICES)
    lines = ended(path)
    failed = [line for line in lines if "failed" in line]
    assert len(lines) == n_sent(path) == len(first.asked) and len(failed) == len(first.asked) - len(first.answered)
    assert {line["failed"] for line in failed} <= {"ConnectionError", "CancelledError"}
    known = raised.value.race.result()
    assert known.n_failed == len(failed) == pickle.loads(pickle.dumps(raised.value.race)).result().n_failed
    second = graders.Grader(VALUES, 2, third)
    result = go(second, door, journal=path, max_pulls=BUDGET, cost=PRICES)
    asked = first.asked + second.asked
    assert BUDGET - 4 < len(asked) <= BUDGET and result.stopped_by == "max_pulls"
    assert result.n_failed == len(asked) - len(first.answered) - len(second.answered)
    assert result.cost == pytest.approx(PRICES[[arm for arm, _ in asked]].sum())
    third_time = graders.Grader(VALUES, 3)
    assert go(third_time, door, journal=path, max_pulls=BUDGET, cost=PRICES).n_failed == result.n_failed
    assert not third_time.asked


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_killed_process_goes_on_with_the_calls_that_failed(tmp_path):
    path, log = tmp_path / "race.jsonl", tmp_path / "asked.txt"
    asked = graders.killed("4, 3000, support=(0, 1), delta=1e-9, rng=3, max_pulls=1500, retries=50, concurrency=16",
                           path, log, 400, "if asked % 3 == 0: raise OSError")
    kept = ended(path)
    failed, lost = sum("failed" in line for line in kept), len(asked) - len(kept)
    assert 0 < lost <= 16 and n_sent(path) == len(asked) and failed >= 100
    grader = graders.Grader(VALUES, fails=third)
    result = go(grader, "betting", journal=path, max_pulls=BUDGET, cost=PRICES)
    assert BUDGET - 4 < len(asked) + len(grader.asked) <= BUDGET
    assert result.n_failed == failed + lost + len(grader.asked) - len(grader.answered)
    assert result.cost == pytest.approx(PRICES[[arm for arm, _ in asked + grader.asked]].sum())
    assert says_lost(result, lost)


@pytest.mark.parametrize("door", DOORS)
def test_calls_under_way_as_the_process_ends_are_charged_wherever_it_ends(tmp_path, door):
    """A journal that ends after any of its lines is what a killed process leaves."""
    path, first = tmp_path / "race.jsonl", graders.Grader(VALUES, 1, third)
    whole = go(first, door, journal=path, max_pulls=600, cost=PRICES)
    lines = path.read_text().splitlines(keepends=True)
    for end in (2, 17, 100, 701, 1000):
        path.write_text("".join(lines[:end]))
        sent, n_ended = n_sent(path), len(ended(path))
        failed = sum("failed" in line for line in ended(path))
        rest = graders.Grader(VALUES, 2, third)
        result = go(rest, door, journal=path, max_pulls=600, cost=PRICES)
        assert 600 - 4 < sent + len(rest.asked) <= 600 and result.stopped_by == whole.stopped_by == "max_pulls"
        assert result.n_failed == failed + sent - n_ended + len(rest.asked) - len(rest.answered)
        arms = [json.loads(line)["arm"] for line in lines[1:end] if "sent" in line] + [arm for arm, _ in rest.asked]
        assert result.cost == pytest.approx(PRICES[arms].sum())
        assert says_lost(result, sent - n_ended) == (sent > n_ended)
        again, nobody = go(graders.Grader(VALUES), door, journal=path, max_pulls=600, cost=PRICES), result
        assert (again.n_failed, again.cost, again.n_unused) == (nobody.n_failed, nobody.cost, nobody.n_unused)


@pytest.mark.parametrize("door", DOORS)
def test_the_journal_of_a_race_that_ended_gives_its_counts_again(tmp_path, door):
    """Calls under way as it ended are unused, as they were then, and not lost. Nor is anything of older journals."""
    values = VALUES.copy()
    values[:, :2] = 0.0                 # so that it ends of itself, with calls under way
    values[:, 3] *= 0.25
    path, grader = tmp_path / "race.jsonl", graders.Grader(values)
    first = go(grader, door, journal=path, cost=PRICES)
    assert first.stopped_by != "max_pulls" and first.n_unused > 0
    assert first.cost == pytest.approx(PRICES[[arm for arm, _ in grader.asked]].sum())
    assert n_sent(path) == len(grader.asked) == len(ended(path))
    again = go(grader, door, journal=path, cost=PRICES)
    assert n_sent(path) == len(grader.asked) and again.to_dict() == first.to_dict()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "sent" not in line and "unused" not in line))
    older = go(grader, door, journal=path, cost=PRICES)
    assert n_sent(path) == 0 and older.best == first.best and older.n_failed == 0 and not older.warnings


@pytest.mark.parametrize("threads", [False, True])
def test_a_call_stands_in_the_journal_before_it_is_made(tmp_path, threads):
    path, calls = tmp_path / "race.jsonl", []

    def grade(arm, row):
        sent = [(line["arm"], line["row"]) for line in lines_of(path) if "sent" in line]
        calls.append(((arm, row) in sent, threading.current_thread() is threading.main_thread()))
        return VALUES[row, arm]

    async def asynchronous(arm, row):
        return grade(arm, row)

    go(grade if threads else asynchronous, "betting", 4, journal=path, max_pulls=60)
    assert len(calls) == 60 and set(calls) == {(True, not threads)}


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_call_that_cannot_be_written_down_is_not_made(tmp_path, monkeypatch, threads, timeout):
    """The disk is at fault and not the function: no call is made again, and none is charged."""
    path, calls, send = tmp_path / "race.jsonl", [], Journal.send

    def full(self, arm, row):
        if len(calls) >= 50:
            raise OSError("no space left on device")
        send(self, arm, row)

    def grade(arm, row):
        calls.append((arm, row))
        return VALUES[row, arm]

    async def asynchronous(arm, row):
        return grade(arm, row)

    monkeypatch.setattr(Journal, "send", full)
    with pytest.raises(OSError, match="no space left") as caught:
        go(grade if threads else asynchronous, "betting", 4, retries=5, timeout=timeout, journal=path, max_pulls=400)
    known = caught.value.race.result()
    assert known.n_failed == 0 and len(set(calls)) == len(calls) == n_sent(path) == len(ended(path))
    monkeypatch.undo()
    result = go(grade, "betting", journal=path, max_pulls=400)
    assert result.n_failed == 0 and len(set(calls)) == len(calls) == result.n_read + result.n_unused


def test_a_late_answer_takes_back_that_its_call_failed(tmp_path):
    path, again, lock, calls = tmp_path / "race.jsonl", threading.Event(), threading.Lock(), []

    def grade(arm, row):
        with lock:
            calls.append((arm, row))
            first = len(calls) == 1
        if first:                   # it times out, and answers before a thread takes the next call for it
            again.wait(0.5)
        return VALUES[row, arm]

    with pytest.warns(RuntimeWarning, match="all 1 threads are held"):
        result = go(grade, "betting", 1, retries=1, timeout=0.2, journal=path, max_pulls=40, cost=1.0)
    assert result.n_failed == 0 and result.cost == len(calls) == 40 and len(set(calls)) == 40
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert [line["failed"] for line in lines if "failed" in line] == ["TimeoutError"]
    assert sum(line.get("late", False) for line in lines) == 1
    resumed = go(grade, "betting", journal=path, max_pulls=40, cost=1.0)
    assert resumed.n_failed == 0 and len(calls) == 40 and resumed.cost == 40


@pytest.mark.parametrize("written", [False, True])
def test_a_call_that_is_sent_as_an_earlier_one_is_answered_is_charged(tmp_path, monkeypatch, written):
    """Before and after its line is in the journal: the answer is not taken for that of the only call."""
    path, again, taken = tmp_path / "race.jsonl", threading.Event(), threading.Event()
    calls, send, add = [], Journal.send, Journal.add

    def slow(self, arm, row):
        if written:
            send(self, arm, row)
        if (arm, row) in calls[:1]:
            again.set()
            assert taken.wait(10.0)
        if not written:
            send(self, arm, row)

    def noted(self, arm, row, *rest):
        add(self, arm, row, *rest)
        if (arm, row) in calls[:1]:
            taken.set()

    def grade(arm, row):
        calls.append((arm, row))
        if len(calls) == 1:             # it times out, and answers as another thread is about to make the next call
            assert again.wait(10.0)
        taken.wait(0.02)                # the budget is to suffice for that call
        return VALUES[row, arm]

    monkeypatch.setattr(Journal, "send", slow)
    monkeypatch.setattr(Journal, "add", noted)
    result = go(grade, "betting", 2, retries=1, timeout=0.2, journal=path, max_pulls=40, cost=1.0)
    assert taken.is_set() and calls.count(calls[0]) == 2
    assert result.n_failed == 1 and 36 < result.cost == len(calls) <= 40
    monkeypatch.undo()
    n_calls = len(calls)
    resumed = go(grade, "betting", journal=path, max_pulls=n_calls, cost=1.0)
    assert resumed.n_failed == 1 and len(calls) == n_calls == resumed.cost


@pytest.mark.parametrize(("lines", "n_failed", "n_calls"), [
    (["sent", "late"], 0, 1), (["sent", "reward"], 0, 1), (["sent", "failed", "late"], 0, 1),
    (["sent", "unused"], 0, 1),
    (["sent", "sent", "late"], 1, 2), (["sent", "failed", "sent", "late"], 1, 2), (["other", "sent", "late"], 1, 2),
    (["sent", "late", "other"], 1, 2), (["sent", "failed", "late", "sent"], 1, 2), (["sent", "sent", "unused"], 1, 2),
])
def test_a_call_of_a_killed_race_is_charged_once_if_the_journal_has_its_answer(tmp_path, lines, n_failed, n_calls):
    """Whether or not the answer is late: of a call that was sent, a line says so, and another what came of it."""
    path, race = tmp_path / "race.jsonl", {"race": "LUCB", "n_arms": 2}
    ends = {"sent": {"sent": True}, "late": {"reward": 1.0, "late": True}, "reward": {"reward": 1.0},
            "unused": {"unused": True}, "failed": {"failed": "OSError"}, "other": {"failed": "OSError", "pull": 3}}
    with Journal(path, race):
        pass
    with path.open("a") as file:
        file.writelines(json.dumps({"pull": 0, "arm": 1, **ends[line]}) + "\n" for line in lines)
    with Journal(path, race) as book:
        assert book.failed == [0, n_failed] and book.n_calls == n_calls
        assert book.n_lost == n_failed - ("other" in lines)


def test_what_is_no_longer_wanted_is_not_sent_again():
    values = np.column_stack([np.zeros(3000), VALUES[:, [0, 2]]])
    order = fr.FiniteRace(3, 3000, support=(0, 1), rng=3).ask(500, pending=True)[1].tolist()
    failed = []

    async def main():
        gone = asyncio.Event()

        async def grade(arm, row):
            await asyncio.sleep(0)
            if order.index(row) >= 150:         # the first arm has left, as nobody is asked so far ahead
                gone.set()
            if arm == 0 and order.index(row) >= 50:
                failed.append(row)
                await gone.wait()
                raise OSError("no route")
            return values[row, arm]

        return await fr.race_async(grade, 3, 3000, support=(0, 1), rng=3, retries=5, concurrency=48, max_pulls=700,
                                   cost=1.0)

    result = asyncio.run(main())
    assert result.pulls[0] == 50 < result.pulls[1] and result.stopped_by == "max_pulls"
    assert len(set(failed)) == len(failed) == result.n_failed > 10 and result.cost <= 700


def test_a_damaged_line_of_a_failed_call_is_refused(tmp_path):
    path = tmp_path / "race.jsonl"
    go(graders.Grader(VALUES), "betting", journal=path, max_pulls=40)
    head = path.read_text().splitlines()[0]
    for line in ('{"row": 5, "arm": 1, "failed": 3}', '{"row": 5, "arm": 9, "failed": "OSError"}',
                 '{"row": 5, "arm": 1, "reward": 1.0, "late": 2}', '{"row": 5, "arm": 1, "sent": 1}',
                 '{"row": 5, "arm": 9, "sent": true}', '{"row": 5, "arm": 1, "unused": "yes"}',
                 '{"row": 5, "arm": 1, "sent": false}'):
        path.write_text(f"{head}\n{line}\n")
        with pytest.raises(ValueError, match="line 2 of journal"):
            go(graders.Grader(VALUES), "betting", journal=path, max_pulls=40)
