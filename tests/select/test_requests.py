"""LUCB by requests under way at once: the answer of one at a time, budgets, journals, and a process that is killed."""

import asyncio
import contextlib
import signal

import numpy as np
import pytest
from graders import Grader, killed, written

import fastrace as fr
from fastrace.pulls import RecordedPulls
from fastrace.races import flight

VALUES = (np.random.default_rng(5).random((3000, 4)) < [0.5, 0.55, 0.72, 0.55]).astype(float)
KINDS = {"pairs": {}, "intervals": {"bound": "eb-mix"}, "paired": {"paired": True, "batch": 4}}


def in_turn(kind="pairs", *limits):
    """A call without a limit, or a call with each of these in turn."""
    rule = fr.LUCB(4, 1, 0.02, **KINDS[kind])
    source = RecordedPulls(VALUES, paired=rule._paired)
    return [rule.run(source, max_pulls) for max_pulls in limits or (None,)][-1]


EXPECTED = in_turn()


def go(evaluate, kind="pairs", *, race=None, concurrency=16, **options):
    race = fr.LUCB(4, 1, 0.02, **KINDS[kind]) if race is None else race
    return asyncio.run(fr.race_async(evaluate, race=race, concurrency=concurrency, **options))


def agrees(result, expected=EXPECTED):
    left, right = result.to_dict(), expected.to_dict()
    for name in ("n_unused", "n_failed"):
        left.pop(name), right.pop(name)
    left["warnings"] = [words for words in left["warnings"] if "sent again" not in words]
    assert left == right


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(flight, "FIRST_WAIT", 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("concurrency", [1, 7, 64])
def test_the_answer_is_that_of_one_request_at_a_time(concurrency, kind):
    grader = Grader(VALUES, concurrency)
    result = go(grader, kind, concurrency=concurrency)
    agrees(result, in_turn(kind))
    assert grader.most <= concurrency and len(set(grader.asked)) == len(grader.asked)
    assert result.n_read + result.n_unused == len(grader.asked)
    assert result.n_unused <= (0 if kind == "paired" else max(2 * concurrency, result.n_read // 16))


def test_a_plain_function_runs_in_threads_and_retries_are_made():
    agrees(go(lambda arm, pull: VALUES[pull, arm]))
    grader = Grader(VALUES, fails=lambda count: count % 3 == 0)
    agrees(go(grader, retries=20))
    assert len(grader.asked) > 1.4 * len(set(grader.asked))
    with pytest.raises(ConnectionError, match="no answer") as caught:
        go(Grader(VALUES, fails=lambda count: count > 50))
    assert caught.value.race.n_pulls > 0
    assert any("race_async(evaluate, race=error.race)" in note for note in caught.value.__notes__)
    agrees(go(Grader(VALUES), race=caught.value.race))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [False, True])
def test_a_rule_that_failed_goes_on_from_its_journal_and_asks_nothing_twice(tmp_path, threads, kind):
    path = tmp_path / "rule.jsonl"
    graders = [Grader(VALUES, k, fails=lambda count: count > 60) for k in range(3)] + [Grader(VALUES, 9)]
    for k, grader in enumerate(graders):
        evaluate = (lambda arm, pull, g=grader: asyncio.run(g(arm, pull))) if threads else grader
        if k < 3:
            with pytest.raises(ConnectionError):
                go(evaluate, kind, journal=path, retries=0)
        else:
            agrees(go(evaluate, kind, journal=path), in_turn(kind))
    answered = [cell for grader in graders for cell in grader.answered]
    assert len(set(answered)) == len(answered)
    kept = written(path, "pull")
    assert len(set(kept)) == len(kept) and set(kept) <= set(answered) and len(kept) >= len(answered) - 16
    again = Grader(VALUES)
    agrees(go(again, kind, journal=path), in_turn(kind))
    assert not again.asked


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.parametrize("kind", ["pairs", "paired"])
def test_a_killed_process_goes_on_and_asks_again_only_what_had_no_answer(tmp_path, kind):
    path = tmp_path / "rule.jsonl"
    call = f"race=fr.LUCB(4, 1, 0.02, **{KINDS[kind]}), concurrency=16"
    asked = killed(call, path, tmp_path / "asked.txt", 200)
    kept = written(path, "pull")
    assert len(asked) == 200 and len(kept) >= 200 - 16 and in_turn(kind).n_read > 200
    grader = Grader(VALUES, 1)
    agrees(go(grader, kind, journal=path), in_turn(kind))
    assert not set(grader.asked) & set(kept)


@pytest.mark.parametrize(("other", "said"), [
    (lambda: fr.LUCB(4, 1, 0.02, 0.1), r"delta is 0\.05 there and 0\.1 here"),
    (lambda: fr.LUCB(5, 1, 0.02), "n_arms is 4 there and 5 here"),
    (lambda: fr.LUCB(4, 2, 0.02), "n_best is 1 there and 2 here"),
    (lambda: fr.LUCB(4, 1, 0.02, support=(0, 2)), r"support is \[\[0\.0, 0\.0, 0\.0, 0\.0\], \[1\.0.* there"),
    (lambda: fr.LUCB(4, 1, 0.02, bound="eb-mix"), "rule is 'LUCB pairs' there and 'LUCB eb-mix' here"),
    (lambda: fr.LUCB(4, 1, 0.02, paired=True), "rule is 'LUCB pairs' there and 'LUCB pairs, in rounds' here"),
    (lambda: fr.LUCB(4, 1, 0.02, batch=3), "batch is 'auto' there and 3 here"),
    (lambda: fr.LUCB(4, 1, 0.02, missing="drop"), "missing is None there and 'drop' here"),
    (lambda: fr.LUCB(4, 1, 0.02, names=list("abcd")), "names is None there and"),
])
def test_the_journal_of_another_rule_is_refused_by_what_differs(tmp_path, other, said):
    path = tmp_path / "rule.jsonl"
    go(Grader(VALUES), journal=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"rule.jsonl' is of another race: .*{said}"):
        go(Grader(VALUES), race=other(), journal=path)
    with pytest.raises(ValueError, match="was written by a race of LUCB, and the one to go on with is of FiniteRace"):
        asyncio.run(fr.race_async(Grader(VALUES), 4, 3000, support=(0, 1), journal=path))
    assert path.read_bytes() == before
    agrees(go(Grader(VALUES), race=fr.LUCB(4, 1, 0.02, rule="pairs", rng=7), journal=path))


@pytest.mark.parametrize(("line", "said"), [
    ('{"row": 5, "arm": 1, "reward": 1.0}', "a pull below"), ('{"pull": -1, "arm": 1, "reward": 1.0}', "a pull below"),
    ('{"pull": 5, "arm": 4, "reward": 1.0}', "an arm below 4"),
    (f'{{"pull": {(1 << 62) - 1}, "arm": 1, "reward": 1.0}}', "a pull below 1[0-9]{6}, whole numbers"),
    ('{"pull": 0, "arm": 1, "reward": 7.0}', "on pull 0 is 7, and an earlier line"),
    ('{"pull": 5000, "arm": 1, "reward": 7.0}', "reward 5000 of arm 1 is 7.0, outside support"),
])
def test_a_damaged_line_is_refused_and_left_as_it_is(tmp_path, line, said):
    path, grader = tmp_path / "rule.jsonl", Grader(VALUES)
    go(Grader(VALUES), journal=path)
    path.write_text(path.read_text() + line + "\n")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=said):
        go(grader, journal=path)
    assert not grader.asked and path.read_bytes() == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_counts_every_request_and_goes_on_with_a_larger_one(tmp_path, kind):
    for budget in (4, 60, 101, 150):
        path, rule = tmp_path / f"{budget}.jsonl", fr.LUCB(4, 1, 0.02, **KINDS[kind])
        first, second, third = (Grader(VALUES, k) for k in range(3))
        result = go(first, race=rule, max_pulls=budget, journal=path)
        assert result.stopped_by == "max_pulls" and budget - 4 < len(first.asked) <= budget
        assert result.n_read + result.n_unused == len(first.asked) and result.n_unused <= 32
        assert any("max_pulls was reached" in said for said in result.warnings)
        alone = go(Grader(VALUES), kind, max_pulls=budget, concurrency=1)
        agrees(alone, in_turn(kind, budget))
        assert alone.n_unused == 0
        less = go(Grader(VALUES), kind, journal=path, max_pulls=4)      # than has been paid for: that is used
        assert {**less.to_dict(), "warnings": None} == {**result.to_dict(), "warnings": None}
        told = set(less.warnings) - set(result.warnings)
        assert len(told) == (len(first.asked) > 4) and all("had been paid for before" in said for said in told)
        within = in_turn(kind, result.n_read, None)       # within a small budget it asks for others
        agrees(go(second, race=rule), within)                           # the same rule
        agrees(go(third, kind, journal=path, max_pulls=10**6), within)  # and anew
        for more in (second, third):
            assert not set(more.asked) & set(first.asked)
    with pytest.raises(ValueError, match="max_pulls is 3; at least 4 is needed"):
        go(Grader(VALUES), kind, max_pulls=3)


def test_a_budget_below_the_first_look_is_shared_out(tmp_path):
    path, values = tmp_path / "rule.jsonl", VALUES + np.random.default_rng(6).normal(0.0, 0.1, VALUES.shape)
    for budget, n_asked in ((22, 22), (51, 29), (51, 0)):
        grader, rule = Grader(values, 3), fr.LUCB(4, 1, support=None)
        result = go(grader, race=rule, max_pulls=budget, journal=path)
        assert len(grader.asked) == n_asked and result.n_read == budget
        assert result.pulls.max() - result.pulls.min() <= 1
    agrees(go(Grader(values, 3), race=rule, max_pulls=10**6), fr.LUCB(4, 1, support=None).run(RecordedPulls(values)))


@pytest.mark.parametrize("missing", ["drop", "worst"])
def test_missing_answers_are_those_of_a_table_with_nan(tmp_path, missing):
    holes = np.random.default_rng(8).random(VALUES.shape) < 0.1
    values, calls = np.where(holes, np.nan, VALUES), 0
    rule = fr.LUCB(4, 1, 0.02, missing=missing)
    expected = rule.run(RecordedPulls(values))

    async def grade(arm, pull):
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        if holes[pull, arm]:
            if pull % 2:
                raise ConnectionError("no answer")
            return None
        return VALUES[pull, arm]

    for again in (False, True):
        calls = 0
        agrees(go(grade, race=fr.LUCB(4, 1, 0.02, missing=missing), journal=tmp_path / "rule.jsonl", retries=1),
               expected)
        assert (calls == 0) == again


@pytest.mark.parametrize(("answer", "error", "said"), [
    ("yes", TypeError, "gave 'yes'; a number is needed"), (None, ValueError, "arm 2 on pull .* is missing: .* None"),
    (1.5, ValueError, r"arm 2 is 'c': reward [0-9]+ of arm 2 is 1.5, outside support"),
])
def test_a_bad_answer_is_refused_and_does_not_get_into_the_journal(tmp_path, answer, error, said):
    calls, path, names = [], tmp_path / "rule.jsonl", list("abcd")

    async def grade(arm, pull):
        calls.append(arm)
        return answer if len(calls) > 90 and arm == 2 else bool(VALUES[pull, arm])

    with pytest.raises(error, match=said):
        go(grade, race=fr.LUCB(4, 1, 0.02, names=names), journal=path)
    assert go(Grader(VALUES), race=fr.LUCB(4, 1, 0.02, names=names), journal=path).pulls.tolist() \
        == EXPECTED.pulls.tolist()


def test_cancelled_rules_keep_what_was_answered(tmp_path):
    path, grader = tmp_path / "rule.jsonl", Grader(VALUES)

    async def cancel():
        race = asyncio.create_task(fr.race_async(grader, race=fr.LUCB(4, 1, 0.02), journal=path))
        while len(grader.answered) < 150:
            await asyncio.sleep(0)
        race.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await race

    asyncio.run(cancel())
    assert set(grader.answered) == set(written(path, "pull"))
    second = Grader(VALUES, 3)
    agrees(go(second, journal=path))
    assert not set(second.asked) & set(grader.answered)


def test_what_came_beside_a_rule_is_refused(tmp_path):
    grader, begun = Grader(VALUES), fr.LUCB(4, 1, 0.02)
    begun.ask(2, pending=True)
    for race, beside, said in (
        (None, {"n_arms": 4}, "n_arms came beside race"), (None, {"support": (0, 1)}, "support came beside race"),
        (None, {"rng": 1}, "rng came beside race"),
        (begun, {"journal": tmp_path / "x.jsonl"}, "journal begins with its race.*: make that rule anew"),
        (fr.Adapt(4, 1, 0.3, rng=1), {"journal": tmp_path / "x.jsonl"}, "journal and race both came"),
    ):
        with pytest.raises(ValueError, match=said):
            go(grader, race=race, **beside)
    with pytest.raises(TypeError, match="race is 7; a FiniteRace, a LUCB or a BettingRace is needed"):
        go(grader, race=7)
    assert not grader.asked and not (tmp_path / "x.jsonl").exists()
    result = go(grader, race=begun)             # what had been asked for elsewhere is asked for again
    agrees(result)
    assert (0, 0) in grader.asked


def test_a_rule_that_has_stopped_asks_nothing():
    rule, grader = fr.LUCB(4, 1, 0.02), Grader(VALUES)
    rule.run(RecordedPulls(VALUES))
    agrees(go(grader, race=rule))
    assert not grader.asked


def test_an_arm_that_fell_silent_says_which_lines_of_the_journal_to_remove(tmp_path):
    path = tmp_path / "rule.jsonl"

    def rule():
        return fr.LUCB(4, 1, 1e-9, missing="drop")

    def silent(arm, pull):
        return None if arm == 2 and pull > 40 else VALUES[pull, arm]

    with pytest.raises(ValueError, match="gave no reward"):
        go(silent, race=rule(), journal=path)
    with pytest.raises(ValueError, match="gave no reward") as caught:
        go(silent, race=rule(), journal=path)
    assert f"answers in {path}" in caught.value.__notes__[0] and "remove the lines with" in caught.value.__notes__[0]
    kept = [line for line in path.read_text().splitlines(keepends=True) if '"reward": null' not in line]
    path.write_text("".join(kept))
    assert go(lambda arm, pull: VALUES[pull, arm], race=rule(), journal=path, max_pulls=4000).n_missing < 200


@pytest.mark.parametrize("silent", [[2], [0, 1, 2, 3]])
def test_silent_arms_take_a_bounded_number_of_requests(silent):
    """What was paid for stays."""
    asked = [0]

    async def evaluate(arm, pull):
        asked[0] += 1
        return None if arm in silent else VALUES[pull, arm]

    what = "arm 2 gave no reward" if len(silent) == 1 else "no arm gave a reward in the first"
    with pytest.warns(RuntimeWarning, match=what), pytest.raises(ValueError, match="gave (no|a) reward") as caught:
        go(evaluate, race=fr.LUCB(4, 1, missing="drop"), concurrency=64)
    race = caught.value.race
    assert 5000 <= asked[0] <= 5000 * 17 // 16 + 4 * 64 and race.n_pulls + race.pending[0].size >= 4900
    assert (race.result().pulls[[arm for arm in range(4) if arm not in silent]] >= 1).all()


def test_a_rule_is_at_work_once_at_a_time():
    """Each of two would wait for requests that the other has made."""
    async def both():
        rule = fr.LUCB(4, 1, 0.02)
        return await asyncio.gather(fr.race_async(Grader(VALUES), race=rule), fr.race_async(Grader(VALUES), race=rule),
                                    return_exceptions=True)

    first, second = asyncio.run(both())
    agrees(first)
    assert isinstance(second, RuntimeError) and "in use by another race_async" in str(second)


@pytest.mark.parametrize("options", [{"time_out": 1}, {"frobnicate": None}])
def test_an_unknown_argument_beside_a_rule_is_called_so(options):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{next(iter(options))}'"):
        go(Grader(VALUES), **options)
    with pytest.raises(TypeError, match="a function of arm and pull is needed"):
        go(3)


@pytest.mark.parametrize("limit", [asyncio.wait_for, None])
def test_a_race_that_took_too_long_stands_behind_the_time_out(limit):
    grader = Grader(VALUES)

    async def slow(arm, pull):
        if len(grader.answered) > 60:
            await asyncio.sleep(60)
        return await grader(arm, pull)

    async def in_time():
        if limit is not None:
            return await limit(fr.race_async(slow, race=fr.LUCB(4, 1, 0.02)), 0.2)
        async with asyncio.timeout(0.2):
            return await fr.race_async(slow, race=fr.LUCB(4, 1, 0.02))

    with pytest.raises(TimeoutError) as caught:
        asyncio.run(in_time())
    race, second = caught.value.__cause__.race, Grader(VALUES)
    assert race.n_pulls > 0
    agrees(go(second, race=race))
    assert not set(second.asked) & set(grader.answered)


@pytest.mark.parametrize("journal", [7, 1.5, b"race.jsonl"])
def test_a_journal_that_is_no_path_is_refused_in_words(journal):
    with pytest.raises(TypeError, match="journal is .*; the path of a file is needed"):
        go(Grader(VALUES), journal=journal)


@pytest.mark.parametrize("rule", [lambda: fr.LUCB(3, 1, cost=1.0), lambda: fr.LUCB(3, 1, cost=1.0, paired=True),
                                  lambda: fr.BettingRace(3, support=(0, 1), cost=1.0)])
def test_calls_that_failed_count_in_the_budget_of_a_run_that_goes_on(rule):
    rng, means = np.random.default_rng(1), np.array([0.5, 0.52, 0.5])
    rule, asked = rule(), []

    async def evaluate(arm, k):
        asked.append(arm)
        if len(asked) % 5 == 0:
            raise OSError
        return float(rng.random() < means[arm])

    def pull(arms, k):
        wanted = np.repeat(arms, k) if isinstance(rule, fr.LUCB) else np.tile(arms, (k.size, 1))
        asked.extend(wanted.ravel())
        return (rng.random(wanted.shape) < means[wanted]).astype(float)

    for budget in range(250, 300):          # until no reward is held that lacks others of its request
        result = asyncio.run(fr.race_async(evaluate, race=rule, retries=3, concurrency=1, max_pulls=budget))
        if rule._flight.idle:
            break
    failed = result.n_failed
    assert failed >= 40 and result.cost == len(asked)
    result = rule.run(pull, max_pulls=600)
    assert result.stopped_by == "max_pulls" and 597 < len(asked) <= 600
    assert result.n_failed == failed and result.cost == len(asked)
