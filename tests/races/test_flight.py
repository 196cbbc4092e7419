"""Races by requests under way at once: the answer of one at a time, limits, retries, journals, and what fails."""

import asyncio
import contextlib
import gc
import inspect
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref

import graders
import numpy as np
import pytest
from graders import written

import fastrace as fr
from fastrace.races import flight

VALUES = (np.random.default_rng(5).random((3000, 4)) < [0.5, 0.55, 0.72, 0.55]).astype(float)
OPTIONS = {"support": (0, 1), "rng": 3}
MORE = {"concurrency": 16, **OPTIONS}


def Grader(seed=0, fails=lambda count: False):
    return graders.Grader(VALUES, seed, fails)


def go(evaluate, **options):
    return asyncio.run(fr.race_async(evaluate, 4, 3000, **options))


def in_turn():
    race = fr.FiniteRace(4, 3000, **OPTIONS)
    while not race.done:
        arms, rows = race.ask()
        race.tell(VALUES[np.ix_(rows, arms)])
    return race.result()


EXPECTED = in_turn()


def agrees(result):
    for name in ("best", "n_looks", "stopped_by"):
        assert getattr(result, name) == getattr(EXPECTED, name)
    for name in ("pulls", "mean", "lower", "upper"):
        np.testing.assert_array_equal(getattr(result, name), getattr(EXPECTED, name))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(flight, "FIRST_WAIT", 0.0)


@pytest.mark.parametrize("concurrency", [1, 7, 64])
def test_the_answer_is_that_of_one_request_at_a_time(concurrency):
    grader = Grader(concurrency)
    result = go(grader, concurrency=concurrency, **OPTIONS)
    agrees(result)
    assert concurrency // 2 < grader.most <= concurrency and len(set(grader.asked)) == len(grader.asked)
    assert result.n_read + result.n_unused == len(grader.asked)
    assert result.n_unused <= 5 * concurrency       # at the end, and a share whenever an arm leaves


def test_a_plain_function_runs_in_threads_and_so_many_at_once():
    names, lock, under_way, most = set(), threading.Lock(), 0, 0

    def grade(arm, row):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
            names.add(threading.current_thread().name)
        with lock:
            under_way -= 1
        return VALUES[row, arm]

    agrees(go(grade, **MORE))
    assert most <= 16 and threading.main_thread().name not in names


def test_threads_that_answer_after_the_end_disturb_nobody(caplog):
    ended = threading.Event()
    needed = set(fr.FiniteRace(4, 3000, **OPTIONS).ask(int(EXPECTED.pulls.max()), pending=True)[1].tolist())

    def grade(arm, row):
        if row not in needed:           # asked for ahead: the race does not wait for it
            ended.wait(60.0)
        return VALUES[row, arm]

    result = go(grade, **MORE)
    ended.set()
    agrees(result)
    for thread in threading.enumerate():
        if thread.name.startswith("fastrace"):
            thread.join(60.0)
    assert result.n_unused > 0 and not caplog.records


@pytest.mark.filterwarnings("ignore:coroutine")       # of requests that were asked for ahead, at the end
def test_a_lambda_that_returns_a_coroutine_is_awaited():
    grader = Grader()
    agrees(go(lambda arm, row: grader(arm, row), **MORE))


def test_retries_and_then_the_error_of_the_function():
    grader = Grader(fails=lambda count: count % 3 == 0)
    result = go(grader, retries=20, **MORE)
    agrees(result)
    again = len(grader.asked) - len(set(grader.asked))
    assert again > 0.4 * len(set(grader.asked))
    assert result.warnings == (f"{again:,} requests failed and had to be sent again; cost and max_pulls count each "
                               f"call; the first raised ConnectionError: no answer",)
    with pytest.raises(ConnectionError, match="no answer") as raised:
        go(Grader(fails=lambda count: count > 50), **MORE)
    assert re.match(r"raised by evaluate\(\d+, \d+\), which is asked for one reward", raised.value.__notes__[0])


@pytest.mark.parametrize("threads", [False, True])
def test_a_request_that_hangs_is_given_up_and_sent_again(threads):
    hung, free = [], threading.Event()

    def grade(arm, row):
        if len(hung) < 3 and (arm, row) not in hung:
            hung.append((arm, row))
            free.wait()
        return VALUES[row, arm]

    async def grade_at_once(arm, row):
        if len(hung) < 3 and (arm, row) not in hung:
            hung.append((arm, row))
            await asyncio.Event().wait()
        return VALUES[row, arm]

    try:
        result = go(grade if threads else grade_at_once, timeout=0.2, **MORE)
        agrees(result)
        assert re.match(r"\d+ requests failed .* TimeoutError: evaluate\(\d, \d+\) gave no answer within 0.2 s$",
                        result.warnings[0])
        hung.clear()
        with pytest.raises(TimeoutError, match="gave no answer within 0.2 s") as raised:
            go(grade if threads else grade_at_once, timeout=0.2, retries=0, **MORE)
        assert raised.value.race.result().stopped_by == ""
    finally:
        free.set()


class Hangs:
    """A plain function whose first calls, `n` of them, hang until all are under way and `seconds` have passed."""

    def __init__(self, n, seconds):
        self.n, self.seconds, self.asked, self.lock, self.all = n, seconds, [], threading.Lock(), threading.Event()

    def __call__(self, arm, row):
        with self.lock:
            self.asked.append((arm, row))
            k = len(self.asked)
        if k <= self.n:
            if k == self.n:
                self.all.set()
            self.all.wait(60.0)
            time.sleep(self.seconds)
        return VALUES[row, arm]


@pytest.mark.parametrize("missing", [{}, {"missing": "worst"}])
@pytest.mark.parametrize("n", [1, 4])
def test_what_waits_for_a_thread_does_not_time_out_and_late_answers_are_taken(tmp_path, n, missing):
    """Once every attempt in the queue timed out there, and was called all the same."""
    path, grade = tmp_path / "race.jsonl", Hangs(n, 0.5)
    options = {**OPTIONS, "concurrency": n, "timeout": 0.2, "retries": 1, **missing}
    with pytest.warns(RuntimeWarning, match=f"all {n} threads are held by calls .* within timeout=0.2 s"):
        result = go(grade, journal=path, **options)
    agrees(result)
    assert '"reward": null' not in path.read_text() and set(grade.asked[:n]) <= set(written(path))
    # One of several threads may return first, and take what another is still at; its own it need not take again.
    twice = [cell for cell in set(grade.asked) if grade.asked.count(cell) > 1]
    assert len(grade.asked) - len(set(grade.asked)) == len(twice) < n and set(twice) <= set(grade.asked[:n])
    assert [int(words.split()[0]) for words in result.warnings if "sent again" in words] == [len(twice)] * bool(twice)


@pytest.mark.parametrize("missing", [{}, {"missing": "worst"}])
def test_a_race_whose_threads_all_hang_ends_and_calls_nothing_more(tmp_path, missing):
    path, free, asked = tmp_path / "race.jsonl", threading.Event(), []

    def grade(arm, row):
        asked.append((arm, row))
        if len(asked) > 40:
            free.wait(60.0)
        return VALUES[row, arm]

    options = {**OPTIONS, "concurrency": 2, "timeout": 0.05, **missing}
    try:
        with pytest.warns(RuntimeWarning, match="all 2 threads"), pytest.raises(
                TimeoutError, match=r"all 2 threads .* and none did within 0.5 s; let evaluate") as raised:
            go(grade, journal=path, **options)
        assert len(asked) == 42 and '"reward": null' not in path.read_text()
        began = time.monotonic()
        with pytest.warns(RuntimeWarning, match="all 2 threads"):
            result = asyncio.run(fr.race_async(grade, race=raised.value.race, concurrency=2, timeout=0.05,
                                               max_seconds=0.3))
        assert result.stopped_by == "max_seconds" and time.monotonic() - began < 5.0
        assert len(asked) == 44
    finally:
        free.set()
    for thread in threading.enumerate():
        if thread.name.startswith("fastrace"):
            thread.join(60.0)
    assert len(asked) == 44                         # what waited was cancelled


@pytest.mark.parametrize("threads", [False, True])
def test_a_race_that_failed_goes_on_from_its_journal_and_asks_nothing_twice(tmp_path, threads):
    path = tmp_path / "race.jsonl"
    graders = [Grader(k, fails=lambda count: count > 150) for k in range(4)] + [Grader(9)]
    for k, grader in enumerate(graders):
        evaluate = (lambda arm, row, g=grader: asyncio.run(g(arm, row))) if threads else grader
        if k < 4:
            with pytest.raises(ConnectionError):
                go(evaluate, journal=path, retries=0, **MORE)
        else:
            agrees(go(evaluate, journal=path, **MORE))
    answered = [cell for grader in graders for cell in grader.answered]
    assert len(set(answered)) == len(answered)
    kept = written(path)
    assert len(set(kept)) == len(kept) and set(kept) <= set(answered)
    assert len(kept) > EXPECTED.n_read and len(kept) >= len(answered) - 16        # but those under way at the very end


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_killed_process_goes_on_and_asks_again_only_what_had_no_answer(tmp_path):
    path, log = tmp_path / "race.jsonl", tmp_path / "asked.txt"
    asked = graders.killed("4, 3000, support=(0, 1), concurrency=16, rng=3", path, log, 400)
    kept = written(path)
    assert len(asked) == 400 and len(kept) >= 400 - 16
    grader = Grader(1)
    agrees(go(grader, journal=path, **MORE))
    assert not set(grader.asked) & set(kept)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send here")
@pytest.mark.parametrize("threads", [False, True])
def test_ctrl_c_to_a_process_keeps_what_was_answered(tmp_path, threads):
    path, log = tmp_path / "race.jsonl", tmp_path / "answered.txt"
    code = f"""
        import asyncio, itertools, time
        import numpy as np
        import fastrace as fr
        values = (np.random.default_rng(5).random((3000, 4)) < [0.5, 0.55, 0.72, 0.55]).astype(float)
        asked = itertools.count(1)
        def answer(arm, row):
            with open({str(log)!r}, "a") as file:
                file.write(f"{{arm}} {{row}}\\n")
            return values[row, arm]
        async def grade(arm, row):
            await asyncio.sleep(0 if next(asked) <= 300 else 60)
            return answer(arm, row)
        def plainly(arm, row):
            time.sleep(0 if next(asked) <= 300 else 2)
            return answer(arm, row)
        race = fr.race_async({"plainly" if threads else "grade"}, 4, 3000, support=(0, 1), concurrency=16,
                             journal={str(path)!r}, rng=3)
        try:
            asyncio.run(race)
        except KeyboardInterrupt as error:
            print("stopped", error.__context__.race.result().n_read)
    """
    run = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    while run.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") >= 300):
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    said, errors = run.communicate()
    assert run.returncode == 0 and said.startswith("stopped") and not errors, errors
    answered = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    assert len(answered) >= 300 and (threads or len(answered) == 300)
    assert sorted(written(path)) == sorted(answered) and int(said.split()[1]) > 200
    grader = Grader(1)
    agrees(go(grader, journal=path, **MORE))
    assert not set(grader.asked) & set(answered)


def test_a_coroutine_that_a_thread_makes_too_late_is_closed():
    made, late = [], threading.Event()

    def grade(arm, row):
        made.append((arm, row))
        if len(made) == 40:
            late.wait(10)                   # the race is over by then
        return Grader()(arm, row)

    async def cut():
        race = asyncio.create_task(fr.race_async(grade, 4, 3000, **MORE))
        while len(made) < 40:
            await asyncio.sleep(0)
        race.cancel()
        late.set()
        await asyncio.wait([race])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(cut())
        gc.collect()
    assert not caught


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_torn_last_line_is_cut_off(tmp_path, cut):
    path = tmp_path / "race.jsonl"
    go(Grader(), journal=path, **MORE)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    grader = Grader()
    agrees(go(grader, journal=path, **MORE))
    assert len(grader.asked) <= 1
    assert path.read_bytes().count(b"\n") == whole.count(b"\n") - (cut > 1 and not grader.asked)
    path.write_bytes(whole[:30])                    # torn in its first line
    agrees(go(Grader(), journal=path, **MORE))


@pytest.mark.parametrize(("other", "said"), [
    ({"delta": 0.1}, r"delta is 0\.05 there and 0\.1 here"),
    ({"rng": 4}, r"seed is .*3.* there and .*4.* here"),
    ({"support": (0, 2)}, r"support is \[\[0\.0, 0\.0, 0\.0, 0\.0\], \[1\.0.* there"),
    ({"names": "abcd"}, None),
    ({"names": list("abcd"), "first_look": 60}, "first_look is 50 there and 60 here; names is None there and"),
    ({"offset": [0, 0, 0, 1.0]}, "offset is None there and"),
])
def test_the_journal_of_another_race_is_refused_by_what_differs(tmp_path, other, said):
    path = tmp_path / "race.jsonl"
    go(Grader(), journal=path, **MORE)
    before = path.read_bytes()
    with pytest.raises((ValueError, TypeError), match=said and f"race.jsonl' is of another race: .*{said}"):
        go(Grader(), journal=path, **(MORE | other))
    assert path.read_bytes() == before
    agrees(go(Grader(), journal=path, **(MORE | {"concurrency": 3, "rng": None})))


KINDS = {
    "FiniteRace": None, "LUCB": lambda: fr.LUCB(4, 1, rng=3), "KLLUCB": lambda: fr.KLLUCB(4, 1, rng=3),
    "BettingRace": lambda: fr.BettingRace(4, support=(0, 1)), "HoeffdingRace": lambda: fr.HoeffdingRace(
        4, 10_000, support=(0, 1)),
}


@pytest.mark.parametrize("wrote", KINDS)
@pytest.mark.parametrize("asked", KINDS)
def test_the_journal_of_another_kind_of_race_is_refused_in_one_sentence(tmp_path, wrote, asked):
    def goes(kind, **options):
        if kind == "FiniteRace":
            return go(Grader(), journal=path, **MORE)
        return asyncio.run(fr.race_async(Grader(), race=KINDS[kind](), journal=path, **options))

    path = tmp_path / "race.jsonl"
    goes(wrote, max_pulls=8)
    if asked == wrote:
        goes(asked, max_pulls=8)
        return
    with pytest.raises(ValueError, match=f"^journal '.*race.jsonl' was written by a race of {wrote}, and the one to go "
                                         f"on with is of {asked}; choose another path, or make the race that wrote "
                                         f"it$"):
        goes(asked, max_pulls=8)


def test_what_is_no_journal_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "notes.txt"
    for text in ("my notes", "my notes\n", '{"a": 1}\n', "[1]\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"notes.txt' is not a journal of a race"):
            go(Grader(), journal=path, **MORE)
        assert path.read_text() == text
    path.write_text("")
    agrees(go(Grader(), journal=path, **MORE))
    lines = path.read_text().splitlines(True)
    for bad in ('{"row": 1, "arm": 9, "reward": 0}\n', '{"row": 1}\n', "rubbish\n"):
        path.write_text("".join([*lines[:5], bad, *lines[5:]]))
        with pytest.raises(ValueError, match=r"line 6 of journal .*notes.txt' is"):
            go(Grader(), journal=path, **MORE)
    path.write_text(lines[0] + '{"row": 1, "arm": 2, "reward": 7.0}\n')
    with pytest.raises(ValueError, match=r"arm 2 on row 1 is 7.0, outside support"):
        go(Grader(), journal=path, **MORE)


@pytest.mark.parametrize(("line", "said"), [
    ('{"row": 5, "arm": 1.7, "reward": 1.0}', "whole numbers"),
    ('{"row": 5.0, "arm": 1, "reward": 1.0}', "whole numbers"),
    ('{"row": 5, "arm": true, "reward": 1.0}', "whole numbers"),
    ('{"row": 5, "arm": 1, "reward": true}', "a number or null"),
    ('{"row": 5, "arm": 1, "reward": "1.0"}', "a number or null"),
    ('{"row": 5, "arm": 4, "reward": 1.0}', "an arm below 4 and a row below 3000"),
    ('{"row": 7, "arm": 1, "reward": 1.0}', "row 7 is 1, and an earlier line that it is 0; .*remove the wrong line"),
    ('{"row": 7, "arm": 1, "reward": null}', "row 7 is missing, and an earlier line that it is 0"),
])
def test_a_damaged_line_is_refused_by_its_number_and_left_as_it_is(tmp_path, line, said):
    path, grader = tmp_path / "race.jsonl", Grader()
    go(Grader(), journal=path, **MORE)
    head = path.read_text().splitlines()[0]
    twice = '{"row": 7, "arm": 1, "reward": 0}'            # what is said twice contradicts nothing
    text = "\n".join([head, twice, twice, line, ""])
    path.write_text(text)
    with pytest.raises(ValueError, match=f"line 4 of journal .*{said}"):
        go(grader, journal=path, **MORE)
    assert not grader.asked and path.read_text() == text


def test_two_races_on_one_journal_are_refused(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "race.jsonl"

    async def both():
        first = asyncio.create_task(fr.race_async(Grader(), 4, 3000, journal=path, **MORE))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="in use by another race"):
            await fr.race_async(Grader(), 4, 3000, journal=path, **MORE)
        return await first

    agrees(asyncio.run(both()))


def test_a_race_without_a_seed_goes_on_with_that_of_its_journal(tmp_path):
    for k, rng in enumerate((None, np.random.default_rng(8), np.random.SeedSequence(8, spawn_key=(2,)))):
        path = tmp_path / f"{k}.jsonl"
        with pytest.raises(ConnectionError):
            go(Grader(fails=lambda count: count > 100), retries=0, journal=path, **(MORE | {"rng": rng}))
        kept = written(path)
        grader = Grader()
        again = np.random.default_rng(8) if k == 1 else rng
        result = go(grader, journal=path, **(MORE | {"rng": again}))
        assert result.best == 2 and len(kept) > 80 and not set(grader.asked) & set(kept)


@pytest.mark.parametrize("threads", [False, True])
def test_cancelled_races_keep_what_was_answered(tmp_path, threads):
    path, grader = tmp_path / "race.jsonl", Grader()
    evaluate = (lambda arm, row: asyncio.run(grader(arm, row))) if threads else grader

    async def cancel():
        race = asyncio.create_task(fr.race_async(evaluate, 4, 3000, journal=path, **MORE))
        while len(grader.answered) < 200:
            await asyncio.sleep(0)
        race.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await race
        assert race.cancelled()

    asyncio.run(cancel())
    kept = written(path)
    assert set(grader.answered) == set(kept) and len(kept) >= 200
    second = Grader(3)
    agrees(go(second, journal=path, **MORE))
    assert not set(second.asked) & set(kept)


@pytest.mark.parametrize("threads", [False, True])
def test_ctrl_c_keeps_what_was_answered(tmp_path, threads):
    path, grader, presses = tmp_path / "race.jsonl", Grader(), iter([KeyboardInterrupt])

    def pressed():
        if len(grader.answered) >= 200:
            for kind in presses:
                raise kind

    async def grade(arm, row):
        pressed()
        return await grader(arm, row)

    def plainly(arm, row):
        pressed()
        return asyncio.run(grader(arm, row))

    with pytest.raises(KeyboardInterrupt):
        go(plainly if threads else grade, journal=path, **MORE)
    kept = written(path)
    assert len(kept) > 150 and set(kept) <= set(grader.answered)
    second = Grader(3)
    agrees(go(second, journal=path, **MORE))
    assert not set(second.asked) & set(kept)


@pytest.mark.parametrize(("answer", "error", "said"), [
    ("yes", TypeError, "gave 'yes'; a number is needed"),
    ([1.0], TypeError, r"gave \[1.0\]; a number is needed"),
    (10**400, TypeError, r"gave <int of about 401 digits>, which no float64 holds"),
    (2**53 + 1, TypeError, r"gave 9007199254740993, which no float64 holds"),
    (None, ValueError, "on row .* is missing: .* gave None;"), (float("nan"), ValueError, "missing: .* gave nan;"),
    (1.5, ValueError, r"arm 2 is 'c': .* is 1.5, outside support"),
])
def test_a_bad_answer_is_refused_and_does_not_get_into_the_journal(tmp_path, answer, error, said):
    path = tmp_path / "race.jsonl"
    calls = []

    async def grade(arm, row):
        calls.append(arm)
        return answer if len(calls) > 90 and arm == 2 else bool(VALUES[row, arm])

    with pytest.raises(error, match=said):
        go(grade, journal=path, names=list("abcd"), **MORE)
    agrees(go(Grader(), journal=path, names=list("abcd"), **MORE))


needs_missing = pytest.mark.skipif("missing" not in inspect.signature(fr.FiniteRace).parameters,
                                   reason="FiniteRace takes no missing rewards")


@needs_missing
@pytest.mark.parametrize("missing", ["drop", "worst"])
def test_missing_answers_are_those_of_a_table_with_nan(tmp_path, missing):
    holes = np.random.default_rng(8).random(VALUES.shape) < 0.02
    values = np.where(holes, np.nan, VALUES)
    race = fr.FiniteRace(4, 3000, missing=missing, **OPTIONS)
    while not race.done:
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
    expected = race.result().to_dict()
    calls = 0

    async def grade(arm, row):
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        if holes[row, arm]:
            if row % 2:
                raise ConnectionError("no answer")
            return None
        return VALUES[row, arm]

    for again in (False, True):
        calls = 0
        found = go(grade, missing=missing, journal=tmp_path / "race.jsonl", retries=1, **MORE).to_dict()
        sent_again = [words for words in found["warnings"] if "had to be sent again" in words]
        assert len(sent_again) == (not again)
        found["warnings"] = type(found["warnings"])(words for words in found["warnings"] if words not in sent_again)
        assert {key for key in found if found[key] != expected[key]} <= {"n_unused", "n_failed", "cost"}
        assert (calls == 0) == again


@needs_missing
def test_a_function_that_always_fails_is_an_error_also_where_rewards_may_be_missing():
    grader = Grader(fails=lambda count: True)
    with pytest.raises(ConnectionError):
        go(grader, missing="worst", retries=0, **MORE)
    assert len(grader.asked) <= 2 * MORE["concurrency"]


def test_an_evaluation_that_cancels_itself_is_an_error_not_a_race_without_end():
    async def grade(arm, row):
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="was cancelled, and the race was not"):
        go(grade, **MORE)


def test_a_race_that_spent_its_budget_goes_on_with_a_larger_one(tmp_path):
    path, first, second = tmp_path / "race.jsonl", Grader(1), Grader(2)
    assert go(first, journal=path, max_pulls=300, **MORE).stopped_by == "max_pulls"
    result = go(second, journal=path, max_pulls=10**6, **MORE)
    np.testing.assert_array_equal(result.pulls, EXPECTED.pulls)
    assert len(set(first.asked + second.asked)) == len(first.asked + second.asked)


@pytest.mark.parametrize("smaller", [40, 4])
def test_a_journal_with_more_than_the_budget_is_used_whole(tmp_path, smaller):
    """A smaller `max_pulls` than before makes nothing unread that was paid for."""
    path, first = tmp_path / "race.jsonl", Grader(1)
    before = go(first, journal=path, max_pulls=300, **MORE)
    second = Grader(2)
    result = go(second, journal=path, max_pulls=smaller, **MORE)
    assert not second.asked and result.stopped_by == "max_pulls"
    np.testing.assert_array_equal(result.pulls, before.pulls)
    np.testing.assert_array_equal(result.mean, before.mean)
    said = f"max_pulls is {smaller}, and the journal held {len(first.asked)} rewards that had been paid for before"
    assert said in result.warnings[-1] and not any("journal" in line for line in before.warnings)


@pytest.mark.parametrize("kind", ["LUCB", "KLLUCB", "BettingRace"])
def test_a_journal_of_a_stream_with_more_than_the_budget_is_used_whole(tmp_path, kind):
    path, first, second = tmp_path / "race.jsonl", Grader(1), Grader(2)
    before = asyncio.run(fr.race_async(first, race=KINDS[kind](), journal=path, max_pulls=300))
    result = asyncio.run(fr.race_async(second, race=KINDS[kind](), journal=path, max_pulls=40))
    assert not second.asked and before.stopped_by == result.stopped_by
    np.testing.assert_array_equal(result.pulls, before.pulls)
    assert "max_pulls is 40, and the journal held" in result.warnings[-1]


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_of_a_race(tmp_path, fails):
    def races():
        gc.collect()
        return sum(type(thing) is fr.FiniteRace for thing in gc.get_objects())

    before, grader = races(), Grader(fails=lambda count: fails and count > 100)
    with contextlib.suppress(ConnectionError):
        go(grader, journal=tmp_path / "race.jsonl", retries=0, **MORE)
    alive = weakref.ref(grader)
    del grader
    assert races() <= before and alive() is None


def test_a_budget_counts_every_request():
    for budget in (40, 333, 500):
        grader = Grader(budget)
        result = go(grader, max_pulls=budget, **MORE)
        assert budget - 4 < len(grader.asked) <= budget and result.stopped_by == "max_pulls"


@pytest.mark.parametrize(("change", "said"), [
    ({"concurrency": 0}, "concurrency is 0; at least 1"),
    ({"retries": -1}, "retries is -1; at least 0"),
    ({"delta": 2}, "race_async: delta is 2"),
    ({"timeout": 0}, "timeout is 0; a number of seconds above 0"),
    ({"speed": 2}, "race_async: .*unexpected keyword argument 'speed'"),
])
def test_arguments_are_checked_before_anything_is_asked(change, said):
    grader = Grader()
    with pytest.raises((ValueError, TypeError), match=said):
        go(grader, **(MORE | change))
    for wrong in (5, lambda arm: 0.0):
        with pytest.raises(TypeError, match="evaluate is"):
            go(wrong, **MORE)
    assert not grader.asked

@pytest.mark.parametrize("growth", [1.0001, 2.0])
def test_rows_that_a_failed_run_took_are_not_handed_out_again(growth):
    """Once rows were in flight; looks of one length would be taken for others in silence."""
    race = fr.FiniteRace(4, 3000, rng=1, support=(0, 1), growth=growth, first_look=20)
    arms, rows = race.ask(pending=True)
    race.tell(VALUES[np.ix_(rows, arms)], arms, rows)
    bad = VALUES.copy()
    plain = fr.FiniteRace(4, 3000, rng=1, support=(0, 1), growth=growth, first_look=20)
    for _ in range(3):
        arms, rows = plain.ask()
        plain.tell(VALUES[np.ix_(rows, arms)])
    bad[plain.ask()[1], :] = np.nan
    with pytest.raises(ValueError, match="nan"):
        race.run(bad)
    assert race.result().pulls[0] == plain.result().pulls[0]
    for copied in (race, pickle.loads(pickle.dumps(race))):
        np.testing.assert_array_equal(copied.ask(pending=True)[1], plain.ask()[1])
