"""`estimate_mean` and the command `fastrace estimate`."""

import csv
import functools
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import fastrace as fr
from fastrace import cli
from fastrace._base import _clock
from fastrace._draws._row_order import RowOrder
from fastrace.streams.estimating import METHODS
from fastrace.streams.over_bounds import ABSOLUTE
from guarantee import assert_rate_at_most

EVERY = [("relative", name, make) for name, make in METHODS.items()]
EVERY += [("absolute", bound, functools.partial(fr.AbsoluteStop, bound=bound)) for bound in ABSOLUTE
          if bound != "beta-binomial"]          # which is for rewards of 0 and 1 alone


@pytest.fixture
def x(rng):
    return rng.random(20_000)


def test_every_kind_of_rewards_gives_the_same_answer(x):
    wanted = fr.TargetOddsStop(0.05, 0.05)
    used = wanted.update_many(x)
    for rewards in (x, x.tolist(), iter(x), (v for v in x), iter(x).__next__, x.astype(">f8"), x[::-1][::-1]):
        result = fr.estimate_mean(rewards, 0.05, order="given")
        assert result == wanted.result()
    taken = iter(x)
    fr.estimate_mean(taken, 0.05)
    assert next(taken) == x[used]               # no more is taken than needed
    for batch in (1, 7, 10_000):
        place = [0]

        def draw(k, place=place):
            place[0] += k
            return x[place[0] - k : place[0]]

        assert fr.estimate_mean(draw, 0.05, batch=batch) == wanted.result()
        assert fr.estimate_mean(iter(x), 0.05, batch=batch) == wanted.result()
        assert fr.estimate_mean(x, 0.05, batch=batch, order="given") == wanted.result()


def test_methods_are_the_rules(x):
    assert fr.estimate_mean(x, 0.1).rule == "TargetOddsStop"
    for accuracy, name, make in EVERY:
        result = fr.estimate_mean(x, 0.1, 0.1, method=name, accuracy=accuracy, order="given")
        rule = make(0.1, 0.1)
        rule.update_many(x)
        assert result == rule.result() and result.stopped and abs(result.estimate - 0.5) < 0.1
    result = fr.estimate_mean(x, 0.02, accuracy="absolute")
    assert (result.criterion, result.rule) == ("absolute", "AbsoluteStop")
    assert fr.estimate_mean(x, 0.1, method="ebgstop", preset="plain").n_samples > 2100
    assert fr.estimate_mean(4 * x - 2, 0.1, support=(-2, 2), floor=0.5).estimate == 0.0


def test_shares_of_ones(x):
    ones = (x < 0.3).astype(float)
    result = fr.estimate_mean(ones, 0.02, accuracy="absolute", method="beta-binomial", order="given")
    rule = fr.AbsoluteStop(0.02, bound="beta-binomial")
    rule.update_many(ones)
    assert result == rule.result() and result.stopped and abs(result.estimate - 0.3) < 0.02
    whole = fr.estimate_mean(ones, 1e-6, accuracy="absolute", method="beta-binomial", rng=1)
    assert whole.interval == pytest.approx([ones.mean()] * 2, abs=1e-6) and whole.n_samples <= len(ones)
    with pytest.raises(ValueError, match=r"rewards\[\d+\] is .*, between the ends"):
        fr.estimate_mean(x, 0.02, accuracy="absolute", method="beta-binomial", rng=1)


def test_a_rule_of_your_own_keeps_what_it_saw(x):
    rule = fr.EBGStop(0.1)

    def draw():
        if rule.n_samples == 700:
            raise OSError("the simulator is down")
        return x[rule.n_samples]

    with pytest.raises(OSError, match="simulator is down"):
        fr.estimate_mean(draw, method=rule)
    assert rule.n_samples == 700
    result = fr.estimate_mean(x[700:], method=rule, order="given")
    whole = fr.EBGStop(0.1)
    whole.update_many(x)
    assert result == whole.result()
    assert fr.estimate_mean(iter([]), method=rule) == result


def test_rewards_that_end_and_budgets(x):
    result = fr.estimate_mean(x[:50], 0.01, order="given")
    assert (result.stopped_by, result.n_samples, result.stopped) == ("exhausted", 50, False)
    assert "ended" in str(result)
    assert result.warnings == ()
    result = fr.estimate_mean(iter(x), 0.01, max_samples=30)
    assert (result.stopped_by, result.n_samples) == ("max_samples", 30)
    (spent,) = result.warnings
    assert spent.startswith("max_samples was reached: estimate is the mean so far") and spent in str(result)


@pytest.mark.parametrize("rewards", [[], np.zeros(0), iter([]), (v for v in ())])
@pytest.mark.parametrize("given", [{}, {"order": "given"}, {"batch": 5}, {"accuracy": "absolute"}, {"method": "nas"}])
def test_a_mean_of_no_rewards_is_refused(rewards, given):
    with pytest.raises(ValueError, match="rewards is empty"):
        fr.estimate_mean(rewards, **given)


def in_order(x, seed):
    """The rewards of an array in the order in which they are read with this seed."""
    return x[RowOrder(len(x), np.random.default_rng(seed)).take(len(x))]


def test_an_array_is_read_in_random_order(x):
    x = np.sort(x)
    wanted = fr.TargetOddsStop(0.05, 0.05, n_rows=len(x))
    wanted.update_many(in_order(x, 3))
    for rewards in (x, x.tolist(), x.astype(">f8"), x[::-1][::-1]):
        assert fr.estimate_mean(rewards, 0.05, rng=3) == wanted.result()
    for batch in (1, 7, 10_000):
        assert fr.estimate_mean(x, 0.05, batch=batch, rng=3) == wanted.result()
    for accuracy, name, make in EVERY:
        result = fr.estimate_mean(x, 0.1, 0.1, method=name, accuracy=accuracy, rng=3)
        assert result.stopped and abs(result.estimate - x.mean()) < 0.1
        assert result == fr.estimate_mean(x, 0.1, 0.1, method=name, accuracy=accuracy, rng=3, batch=100)
        if name in ("nas", "geometric-nas", "sra", "ebstop"):
            rule = make(0.1, 0.1)
            rule.update_many(in_order(x, 3))
            assert result == rule.result()


def test_no_order_of_the_rows_deceives(seed):
    missed, trials = 0, 60
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        x = np.clip(np.linspace(0.25, 0.55, 4000) + 0.1 * rng.standard_normal(4000), 0, 1)
        result = fr.estimate_mean(x, 0.02, 0.05, rng=rng)
        missed += not result.interval[0] <= x.mean() <= result.interval[1]
    assert_rate_at_most(missed, trials, 0.05)


@pytest.mark.parametrize(("accuracy", "method"), [
    *[(accuracy, name) for accuracy, name, _ in EVERY],
    ("relative", fr.GBAS), ("relative", fr.SignStop), ("relative", fr.ConfidenceSequence),
])
def test_an_array_that_was_read_to_its_end_is_answered_exactly(rng, accuracy, method):
    x = rng.random(300)
    bets = ("target-eb", "target-bet", "target-odds", "betting")
    epsilon = 1e-9 if accuracy == "absolute" or method in bets else 1e-3
    if not isinstance(method, str):
        given = {"epsilon": epsilon} if method is fr.GBAS else {}
        if method is fr.SignStop:
            given = {"threshold": float(x.mean()) - 1e-7}
        method = method(support=(0, 1), **given)
    result = fr.estimate_mean(x, epsilon, method=method, accuracy=accuracy, rng=1)
    assert result.interval == pytest.approx((x.mean(), x.mean()), abs=1e-12)
    assert "every row" in result.note
    if result.criterion == "sign":
        assert (result.estimate, result.stopped_by) == (1.0, "exact")
    else:
        assert result.estimate == pytest.approx(x.mean(), abs=1e-12)
        assert result.stopped or result.criterion == "never"


def test_a_tie_is_no_side_and_zeros_are_known_exactly():
    x = np.tile([-0.5, 0.5], 50)
    result = fr.estimate_mean(x, method=fr.SignStop(0.0), rng=1)
    assert not result.stopped and result.interval == (0.0, 0.0)
    x = np.repeat([0.0, 1.0], 50)
    result = fr.estimate_mean(x, method=fr.SignStop(0.5), rng=2)
    assert (result.stopped_by, result.estimate, result.interval) == ("max_samples", 0.5, (0.5, 0.5))
    assert "the mean is the threshold" in result.note
    x = 1e8 + np.random.default_rng(1).random(1000) * 1e-3          # a side within the rounding of a mean is no side
    result = fr.estimate_mean(x, method=fr.SignStop(x.mean() + 1e-8, support=(1e8, 1e8 + 1e-3)), rng=1)
    assert result.stopped_by == "max_samples" and "the mean is the threshold" in result.note
    for accuracy, method, _ in EVERY:
        if method not in ("sra", "aa"):         # they refuse a support below 0
            epsilon = 0.1 if accuracy == "relative" else 1e-12
            result = fr.estimate_mean(np.zeros(500), epsilon, support=(-1, 1), rng=1, accuracy=accuracy, method=method)
            assert (result.stopped_by, result.estimate, result.n_samples <= 500) == ("exact", 0.0, True), method
            assert "-0" not in str(result)


def test_an_array_is_its_own_population(x):
    x = x[:2000]
    with pytest.raises(ValueError, match="n_rows is 100 and rewards has 2000"):
        fr.estimate_mean(x, n_rows=100)
    with pytest.raises(ValueError, match="n_rows is 100 and rewards has 2000"):
        fr.estimate_mean(x, n_rows=100, order="given")
    whole = fr.estimate_mean(x, 1e-9, rng=1)
    assert fr.estimate_mean(x, 1e-9, n_rows=2000, rng=1) == whole
    assert whole.n_samples == 2000 and whole.estimate == pytest.approx(x.mean())
    part = fr.estimate_mean(x, 1e-9, n_rows=5000, rng=1)        # a random part of a larger population
    assert part.stopped_by == "exhausted" and part.interval[1] - part.interval[0] > 0.01
    assert fr.estimate_mean(x, 1e-9, n_rows=2000, order="given").estimate == pytest.approx(x.mean())
    with pytest.raises(ValueError, match="support n_rows"):
        fr.estimate_mean(x, n_rows=2000, method="nas")
    with pytest.raises(ValueError, match="knows a population of 100 rows, of which it has seen 0"):
        fr.estimate_mean(x, method=fr.TargetEBStop(n_rows=100))
    with pytest.raises(ValueError, match="order is 'sorted'"):
        fr.estimate_mean(x, order="sorted")
    stream = fr.estimate_mean(iter(x), 1e-9, n_rows=100)
    assert stream.n_samples == 100


@pytest.mark.parametrize("make", [
    functools.partial(fr.TargetEBStop, 0.001),
    functools.partial(fr.AbsoluteStop, 0.0005, bound="target-betting"),
    functools.partial(fr.SignStop, threshold=0.5, support=(0, 1)),
    functools.partial(fr.ConfidenceSequence, "betting"),
], ids=["target-eb", "absolute", "sign", "sequence"])
def test_part_of_the_population_of_a_rule_is_no_exact_answer(rng, make):
    x = rng.permutation(np.linspace(0, 1, 1000))
    part = fr.estimate_mean(x, method=make(n_rows=4000), rng=1)
    assert part.stopped_by == "exhausted" and part.n_samples == 1000
    assert part.interval[1] - part.interval[0] > 0.005
    assert part.note == "the rewards ended before the rule stopped"


def test_progress_goes_to_standard_error(x, capsys):
    fr.estimate_mean(x, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "samples, estimate 0." in err
    fr.estimate_mean(x)
    assert capsys.readouterr() == ("", "")


def test_what_users_hand_over(x):
    for bad, error in [
        (lambda: None, TypeError), (lambda: "0.5", TypeError), (lambda: np.zeros(3), TypeError),
        (lambda: 2.0, ValueError), (lambda: float("nan"), ValueError), (3.5, TypeError), (np.zeros((2, 2)), ValueError),
        (["a"], TypeError), (iter([0.5, "b"]), TypeError),
    ]:
        with pytest.raises(error):
            fr.estimate_mean(bad)
    with pytest.raises(ValueError, match=r"rewards\(5\) returned shape \(4,\)"):
        fr.estimate_mean(lambda k: np.zeros(k - 1), batch=5)
    y = np.full(200_000, 0.5)
    y[150_001] = 3.0
    with pytest.raises(ValueError, match=r"rewards\[150001\] is "):
        fr.estimate_mean(y, 1e-6, method="ebgstop", order="given")
    with pytest.raises(ValueError, match=r"rewards\[150001\] is "):
        fr.estimate_mean(y, 1e-6)
    with pytest.raises(ValueError, match=r"rewards\[150001\] is "):
        fr.estimate_mean(y, 1e-9, method="ebgstop")
    for good in (lambda: 1, lambda: np.float32(0.5), lambda: np.array(0.5), lambda: True):
        assert fr.estimate_mean(good).stopped
    rule = fr.EBGStop(0.1)
    again = fr.estimate_mean(lambda: (rule.update(0.5), 0.5)[1], method=rule)       # re-enters its own rule
    assert again.n_samples in (738, 739)
    for options in ({"method": "none"}, {"accuracy": "none"}, {"batch": 0}, {"method": "nas", "accuracy": "absolute"},
                    {"method": "absolute"}, {"epsilon": 2.0}):
        with pytest.raises(ValueError, match="is "):
            fr.estimate_mean(x, **options)
    with pytest.raises(TypeError, match="its own options"):
        fr.estimate_mean(x, method=rule, max_samples=3)


@pytest.mark.parametrize(("rewards", "batch", "error", "words"), [
    (lambda k: np.zeros(k), None, TypeError, r"called as rewards\(\), and it takes \(k\): missing .* 'k'; give batch"),
    (lambda: 0.5, 5, TypeError, r"rewards is called as rewards\(5\), and it takes \(\): too many .*; leave batch out"),
    (lambda a, b: 0.5, 5, TypeError, r"it takes \(a, b\): missing"),
    (lambda: np.zeros(1), None, TypeError, r"rewards\(\) returned array\(\[0\.\]\) .*; without batch, .* one real"),
    (lambda: None, None, TypeError, r"rewards\(\) returned None of type NoneType"),
    (lambda k: np.zeros((k, 1)), 5, ValueError, r"rewards\(5\) returned shape \(5, 1\); 5 rewards, a vector"),
    (lambda k: None, 1, ValueError, r"rewards\(1\) returned shape \(\); 1 reward, a vector"),
    (lambda k: [[1.0], [1.0, 2.0]], 2, ValueError, r"rewards\(2\) returned rows of different lengths"),
    (lambda k: ["a"] * k, 5, TypeError, r"rewards\(5\) returned dtype <U1; 5 rewards, .* real numbers"),
    (lambda k: np.zeros(k, complex), 5, TypeError, r"rewards\(5\) returned dtype complex128"),
    (iter([[0.1, 0.2]] * 2), 2, ValueError, r"the next 2 elements of rewards came with shape \(2, 2\); 2 rewards"),
    (iter([object()]), 2, TypeError, r"the next 1 element of rewards came with dtype object"),
    (["a"], None, TypeError, "rewards has dtype <U1; a vector of real numbers"),
])
def test_a_function_that_is_called_wrongly_or_returns_no_rewards_is_told_how(rewards, batch, error, words):
    rule = fr.EBGStop(0.1)
    with pytest.raises(error, match=words):
        fr.estimate_mean(rewards, method=rule, batch=batch)
    assert rule.n_samples == 0


def test_a_type_error_of_the_users_own_comes_through():
    def rewards(k=None):
        raise TypeError("mine")

    for batch in (None, 3):
        with pytest.raises(TypeError, match="^mine$"):
            fr.estimate_mean(rewards, batch=batch)
    assert fr.estimate_mean(np.random.default_rng(1).random, batch=10).stopped      # hides what it takes


# The command


def say(monkeypatch, capsys, text, *arguments):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    status = cli.main(["estimate", *(str(argument) for argument in arguments)])
    return status, *capsys.readouterr()


def said_samples(out):
    return int(re.search(r"^  samples +(\d+)$", out, re.M).group(1))


def lines(x):
    return "".join(f"{float(v)!r}\n" for v in x)


def test_numbers_from_standard_input(monkeypatch, capsys, x):
    wanted = fr.TargetOddsStop(0.1, 0.05)
    wanted.update_many(x)
    status, out, err = say(monkeypatch, capsys, lines(x), "--epsilon", 0.1, "--delta", 0.05, "--support", 0, 1)
    assert status == 0
    assert out.strip() == str(wanted.result())
    assert "samples, estimate" in err
    assert sys.stdin.readline() == f"{float(x[wanted.n_samples])!r}\n"     # stopped reading there
    status, out, err = say(monkeypatch, capsys, "\n" + lines(x).replace("\n", "\n\n"), "--quiet", "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert found["estimate"] == wanted.estimate and found["n_samples"] == wanted.n_samples
    assert found["interval"] == list(wanted.interval) and found["stopped_by"] == "epsilon"


def test_options_reach_the_rule(monkeypatch, capsys, x):
    status, out, _ = say(monkeypatch, capsys, lines(4 * x), "--method", "ebgstop", "--support", 0, 4, "--epsilon", 0.2,
                         "--delta", 0.2, "--json")
    rule = fr.EBGStop(0.2, 0.2, (0, 4))
    rule.update_many(4 * x)
    assert json.loads(out)["n_samples"] == rule.n_samples and status == 0
    status, out, _ = say(monkeypatch, capsys, lines(x), "--accuracy", "absolute", "--epsilon", 0.03, "--json")
    assert json.loads(out)["n_samples"] == fr.estimate_mean(iter(x), 0.03, accuracy="absolute").n_samples
    status, out, err = say(monkeypatch, capsys, lines(x), "--epsilon", 0.01, "--max-samples", 50)
    assert status == 1 and "out of samples after 50" in out and "gave up after 50" in err
    status, out, err = say(monkeypatch, capsys, lines(2 * x), "--clip")
    assert status == 0 and "clipped" in out


def test_columns_of_csv(monkeypatch, capsys, tmp_path, x):
    wanted = fr.estimate_mean(iter(x)).n_samples
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["run", "a name, with a comma", "reward"])
    for i, v in enumerate(x):
        writer.writerow([i, "a\nb", float(v)])
    table = text.getvalue()
    bare = table.split("\n", 1)[1]
    for content, column in ((table, "reward"), (table, "2"), (bare, "2"), ("\ufeff" + table, "reward")):
        status, out, _ = say(monkeypatch, capsys, content, "--column", column, "--json")
        assert (status, json.loads(out)["n_samples"]) == (0, wanted)
    status, out, _ = say(monkeypatch, capsys, table.replace(",", ";"), "--column", "reward", "--delimiter", ";",
                         "--json")
    assert status == 0
    file = tmp_path / "rewards.csv"
    file.write_text(table, encoding="utf-8")
    status, out, _ = say(monkeypatch, capsys, "", file, "--column", "reward", "--json", "--order", "given")
    assert (status, json.loads(out)["n_samples"]) == (0, wanted)
    status, out, _ = say(monkeypatch, capsys, "", file, "--column", "reward", "--json", "--seed", 3)
    assert (status, json.loads(out)["n_samples"]) == (0, fr.estimate_mean(x, rng=3).n_samples)
    status, _, err = say(monkeypatch, capsys, table, "--column", "cost")
    assert status == 2 and "line 1: no column is named 'cost'" in err and "reward" in err
    status, out, err = say(monkeypatch, capsys, "a,b\n1,0.5\n2\n", "--column", "b")
    assert status == 2 and "line 3 has 1 column;" in err and said_samples(out) == 1
    status, _, err = say(monkeypatch, capsys, "0.1,0.5\n")
    assert status == 2 and "--column" in err
    for content in ("a,b\n1,0.5\n2,0.5,0.7\n", "a,b\n1,0.5,0.7\n"):         # whose names belong to which cells?
        for column in ("b", "1"):
            status, _, err = say(monkeypatch, capsys, content, "--column", column)
            assert status == 2 and "has 3 cells and the first line names 2" in err


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet", ".txt"])
def test_a_file_is_read_in_random_order_whatever_its_kind(monkeypatch, capsys, tmp_path, x, suffix):
    values = np.sort(x)[:10_000]                    # sorted: the first rows say nothing about the mean
    file = tmp_path / f"rewards{suffix}"
    if suffix == ".npy":
        np.save(file, values)
    elif suffix == ".txt":
        file.write_text(lines(values), encoding="utf-8")
    else:
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame({"reward": values})
        frame.to_csv(file, index=False) if suffix == ".csv" else frame.to_parquet(file)
    wanted = fr.estimate_mean(values, 0.05, rng=2)
    status, out, _ = say(monkeypatch, capsys, "", file, "--epsilon", 0.05, "--seed", 2, "--json", "--quiet")
    found = json.loads(out)
    assert (status, found["n_samples"]) == (0, wanted.n_samples)
    assert found["estimate"] == pytest.approx(wanted.estimate)
    assert abs(found["estimate"] - values.mean()) < 0.05 * values.mean()
    status, out, _ = say(monkeypatch, capsys, "", file, "--epsilon", 1e-9, "--json", "--quiet")
    assert json.loads(out)["estimate"] == pytest.approx(values.mean(), abs=1e-12) and "every row" in out
    if suffix in (".npy", ".txt"):
        status, out, _ = say(monkeypatch, capsys, "", file, "--epsilon", 0.05, "--order", "given", "--json", "--quiet")
        assert json.loads(out)["n_samples"] == fr.estimate_mean(iter(values), 0.05).n_samples
    values[7777] = 1.5
    if suffix == ".npy":
        np.save(file, values)
        status, out, err = say(monkeypatch, capsys, "", file)
        assert (status, out) == (2, "") and "number 7777" in err and "1.5" in err and "--clip" in err
        assert say(monkeypatch, capsys, "", file, "--clip", "--quiet")[0] == 0
    if suffix == ".txt":
        file.write_text(lines(values), encoding="utf-8")
        status, out, err = say(monkeypatch, capsys, "", file)
        assert (status, out) == (2, "") and f"line 7778 of {file} is 1.5" in err


def test_columns_of_files(monkeypatch, capsys, tmp_path, rng):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(rng.random((3000, 2)), columns=["a", "b"])
    frame["b"] *= 0.5
    frame["word"] = "x"
    for name in ("t.parquet", "t.csv"):
        file = tmp_path / name
        frame.to_csv(file, index=False) if name.endswith("csv") else frame.to_parquet(file)
        for column in ("b", "1"):
            status, out, _ = say(monkeypatch, capsys, "", file, "--column", column, "--json", "--quiet", "--seed", 1)
            assert status == 0 and abs(json.loads(out)["estimate"] - 0.25) < 0.03
        status, _, err = say(monkeypatch, capsys, "", file)
        assert status == 2 and "choose one with --column: a, b, word" in err
        status, _, err = say(monkeypatch, capsys, "", file, "--column", "c")
        assert status == 2 and "'c'" in err and "a, b, word" in err
        status, _, err = say(monkeypatch, capsys, "", file, "--column", "word")
        assert status == 2 and err.count("\n") == 1


def test_what_cannot_be_read_is_one_line(monkeypatch, capsys, tmp_path):
    closed = subprocess.run([sys.executable, "-c", "import sys; sys.stdin = None\nfrom fastrace import cli\n"
                             "sys.exit(cli.main(['estimate']))"], capture_output=True, text=True)
    assert closed.returncode == 2 and closed.stderr == (
        "fastrace: standard input is closed; pipe numbers into it, or name a FILE\n")
    if os.name == "posix":
        close = "import os, sys\nos.close(0)\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        closed = subprocess.run([sys.executable, "-c", close, "-m", "fastrace.cli", "estimate"], capture_output=True,
                                text=True)
        assert closed.returncode == 2 and closed.stderr.count("\n") == 1
    status, _, err = say(monkeypatch, capsys, "0.5\n", "--order", "random")
    assert status == 2 and "name a FILE" in err
    status, _, err = say(monkeypatch, capsys, "", tmp_path)
    assert status == 2 and "is a folder" in err


def test_a_bad_line_is_named_and_nothing_is_lost(monkeypatch, capsys):
    for bad, said in (("abc", "line 4 is 'abc'"),
                      ("nan", "line 4 is nan; a finite number is needed: fill or drop such rows"),
                      ("7", "line 4 is 7.0; a number inside the support"),
                      ("inf", "line 4"), ("1e", "line 4 is '1e'"), ("0.5 0.5", "line 4")):
        status, out, err = say(monkeypatch, capsys, f"0.5\n0.25\n0.75\n{bad}\n0.5\n")
        assert status == 2 and said in err
        assert said_samples(out) == 3 and "" in out
    status, out, err = say(monkeypatch, capsys, "0.5\n0.25\n")
    assert status == 1 and "ended" in err and "after 2" in err and said_samples(out) == 2
    for more in ((), ("--json",)):      # as of a file without numbers
        assert say(monkeypatch, capsys, "", *more) == (2, "", "fastrace: standard input holds no numbers\n")


def test_bad_options_exit_with_2(monkeypatch, capsys, tmp_path):
    for arguments, said in ((["--epsilon", "2"], "epsilon is 2.0"), (["--delta", "0"], "delta is 0.0"),
                            (["--support", "1", "0"], "support is"), ([tmp_path / "none.txt"], "none.txt"),
                            (["--method", "nas", "--accuracy", "absolute"], "nas"),
                            (["--max-samples", "0"], "max_samples"),
                            (["--column", "a", "--delimiter", "ab"], "--delimiter")):
        status, _, err = say(monkeypatch, capsys, "0.5\n", *arguments)
        assert status == 2 and said in err and err.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="pipes and signals of POSIX")
def test_a_pipe_that_never_ends():
    producer = "import random\nwhile True: print(random.random(), flush=True)"
    first = subprocess.Popen([sys.executable, "-c", producer], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    second = subprocess.Popen([sys.executable, "-m", "fastrace.cli", "estimate", "--epsilon", "0.1"],
                              stdin=first.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first.stdout.close()
    try:
        out, err = second.communicate(timeout=120)
        assert second.returncode == 0, err
        assert "stopped after" in out
        assert first.wait(timeout=60) != 0          # its pipe was closed
    finally:
        first.kill()
        second.kill()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_prints_what_is_known():
    process = subprocess.Popen([sys.executable, "-m", "fastrace.cli", "estimate", "--epsilon", "0.001"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        process.stdin.write(b"0.5\n" * 3)
        process.stdin.flush()
        while process.poll() is None and not _waits(process.pid):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        assert process.returncode == 130
        assert said_samples(process.stdout.read().decode()) == 3
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def _waits(pid):
    """Whether a process has read all of its input and sleeps on more."""
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii") as file:
            return "pipe" in file.read()
    except OSError:
        time.sleep(10)
        return True


@pytest.mark.parametrize(("content", "line"), [
    ("größe,x\n".encode("latin-1") + b"0.5,1\n" * 9, 1), ("0.5\n".encode("utf-16"), 1),
    (b"x\n" + b"0.5\n" * 5000 + b"0.5 \xb5m\n", 5002),
], ids=["latin-1", "utf-16", "late"])
@pytest.mark.parametrize("name", ["numbers.csv", "numbers.txt"])
def test_what_is_no_text_is_named_in_one_line(monkeypatch, capsys, tmp_path, content, line, name):
    file = tmp_path / name
    file.write_bytes(content)
    column = ["--column", "0"]
    for order in ("random", "given"):
        status, out, err = say(monkeypatch, capsys, "", file, "--order", order, "--epsilon", 1e-5, "--quiet", *column)
        assert status == 2 and (line > 1 or not out) and err.count("\n") == 1
        assert f"{name} is no text in UTF-8 from line {line} on, or is compressed" in err
    for errors in ("strict", "surrogateescape"):
        stream = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors=errors)
        monkeypatch.setattr(sys, "stdin", stream)
        status = cli.main(["estimate", "--epsilon", "1e-5", "--quiet", *column])
        assert status == 2 and "standard input is no text in UTF-8 from line" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["numbers.csv", "numbers.csv.gz", "numbers.txt"])
@pytest.mark.parametrize("order", ["random", "given"])
def test_files_are_unpacked_whatever_they_are_called_and_standard_input_is_not(
    monkeypatch, capsys, tmp_path, name, order
):
    packed = gzip.compress(b"x\n" + b"0.5\n" * 999, mtime=0)
    (tmp_path / name).write_bytes(packed)
    options = ["--order", order, "--epsilon", 1e-5, "--quiet", "--column", "x"]
    status, out, _ = say(monkeypatch, capsys, "", tmp_path / name, *options)
    assert "999" in out and status == (0 if order == "random" else 1)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed), encoding="utf-8"))
    status = cli.main(["estimate", "--epsilon", "1e-5", "--quiet", "--column", "x"])
    assert status == 2 and "standard input is no text in UTF-8 from line 1 on, or" in capsys.readouterr().err


def test_printed_results_speak_of_one_thing_in_the_singular(monkeypatch, capsys, tmp_path):
    status, out, err = say(monkeypatch, capsys, "0.5\nx\n", "--quiet")
    assert status == 2 and "estimate so far (no promise)" in out and "of the 1 number before it" in err
    assert "gave up after 1 number, as asked" in say(monkeypatch, capsys, "0.5\n", "--max-samples", 1)[2]
    assert "1 sample, estimate 0.5 in" in say(monkeypatch, capsys, "0.5\n")[2]
    stats = fr.SamplerStats(n_draws=1, fraction_read=1.0, fraction_exact=1.0, looks_per_draw=1.0, evaluations=1,
                            bound="normal", delta=0.1)
    assert str(stats).startswith("1 draw by the normal rule") and "in 1 look a draw" in str(stats)
    assert "minus each of 1 arm\n" in repr(fr.RunningComoments(1))


@pytest.mark.parametrize("method", ["auto", "ebgstop"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_a_bad_reward_is_named_by_its_row_in_the_array(method, dtype):
    x = np.zeros(5000, dtype)
    x[4321] = 3
    for order in ("random", "given"):
        with pytest.raises(ValueError, match=r"^rewards\[4321\] is 3\.0, outside support=\(0\.0, 1\.0\)") as caught:
            fr.estimate_mean(x, method=method, order=order, rng=1)
        assert "xs[" not in str(caught.value)
    with pytest.raises(ValueError, match=r"^xs\[4321\] is 3\.0") as caught:
        fr.EBGStop(0.1).update_many(x)
    assert caught.value.index == 4321


def test_a_relative_accuracy_of_a_mean_that_may_be_zero_is_warned_of():
    asked = [0]

    def zeros(count):
        asked[0] += count
        if asked[0] > 1_500_000:
            raise StopIteration
        return np.zeros(count)

    said = "1,000,000 rewards have not told the mean from 0.*no relative accuracy"
    with pytest.warns(RuntimeWarning, match=said) as got:
        with pytest.raises(StopIteration):
            fr.estimate_mean(zeros, batch=100_000)
    assert len(got) == 1 and got[0].filename == __file__


def test_a_relative_accuracy_of_zero_with_seconds_is_said_to_end_by_them(monkeypatch):
    """The clock here counts rewards, so that no machine is too slow for it."""
    asked = [0]
    monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=lambda: asked[0] / 1e6))

    def zeros(count):
        asked[0] += count
        return np.zeros(count)

    with pytest.warns(RuntimeWarning, match=r"only max_seconds ends this, .* or give floor or max_samples\. ") as got:
        result = fr.estimate_mean(zeros, batch=100_000, max_seconds=1.5)
    assert len(got) == 1 and "never ends" not in str(got[0].message)
    assert (result.stopped_by, result.n_samples) == ("max_seconds", 1_500_000)
    assert result.interval[0] <= 0.0 <= result.interval[1]


@pytest.mark.parametrize("options", [{"accuracy": "absolute", "epsilon": 1e-4}, {"max_samples": 1_200_000}])
def test_where_something_ends_it_nothing_is_said(options):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        fr.estimate_mean(lambda count: np.zeros(count), batch=100_000, **options)
