"""`estimate_mean` and the command `fastrace estimate`."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fastrace as fr
from fastrace import cli
from fastrace.stopping import METHODS


@pytest.fixture
def x(rng):
    return rng.random(20_000)


def test_every_kind_of_rewards_gives_the_same_answer(x):
    wanted = fr.TargetEBStop(0.05, 0.05)
    used = wanted.update_many(x)
    for rewards in (x, x.tolist(), iter(x), (v for v in x), iter(x).__next__, x.astype(">f8"), x[::-1][::-1]):
        result = fr.estimate_mean(rewards, 0.05)
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
        assert fr.estimate_mean(x, 0.05, batch=batch) == wanted.result()


def test_methods_are_the_rules(x):
    assert fr.estimate_mean(x, 0.1).rule == "TargetEBStop"
    for name, make in METHODS.items():
        accuracy = "absolute" if name == "absolute" else "relative"
        result = fr.estimate_mean(x, 0.1, 0.1, method=name, accuracy=accuracy)
        rule = make(0.1, 0.1)
        rule.update_many(x)
        assert result == rule.result() and result.stopped and abs(result.estimate - 0.5) < 0.1
    assert fr.estimate_mean(x, 0.02, accuracy="absolute").criterion == "absolute"
    assert fr.estimate_mean(x, 0.1, method="ebgstop", preset="plain").n_samples > 2100
    assert fr.estimate_mean(4 * x - 2, 0.1, support=(-2, 2), floor=0.5).estimate == 0.0


def test_a_rule_of_your_own_keeps_what_it_saw(x):
    rule = fr.EBGStop(0.1)

    def draw():
        if rule.n_samples == 700:
            raise OSError("the simulator is down")
        return x[rule.n_samples]

    with pytest.raises(OSError, match="simulator is down"):
        fr.estimate_mean(draw, method=rule)
    assert rule.n_samples == 700
    result = fr.estimate_mean(x[700:], method=rule)
    whole = fr.EBGStop(0.1)
    whole.update_many(x)
    assert result == whole.result()
    assert fr.estimate_mean(iter([]), method=rule) == result


def test_rewards_that_end_and_budgets(x):
    result = fr.estimate_mean(x[:50], 0.01)
    assert (result.status, result.n_samples, result.stopped) == ("running", 50, False)
    assert "ended" in str(result)
    result = fr.estimate_mean(iter(x), 0.01, max_samples=30)
    assert (result.status, result.n_samples) == ("max_samples", 30)
    result = fr.estimate_mean(iter([]))
    assert result.n_samples == 0 and result.status == "running"


def test_progress_goes_to_standard_error(x, capsys):
    fr.estimate_mean(x, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "samples, mean 0." in err
    fr.estimate_mean(x)
    assert capsys.readouterr() == ("", "")


def test_c2_26_what_users_hand_over(x):
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
        fr.estimate_mean(y, 1e-6, method="ebgstop")
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
    wanted = fr.TargetEBStop(0.1, 0.05)
    wanted.update_many(x)
    status, out, err = say(monkeypatch, capsys, lines(x), "--epsilon", 0.1, "--delta", 0.05, "--support", 0, 1)
    assert status == 0
    assert out.strip() == str(wanted.result())
    assert "samples, mean" in err
    assert sys.stdin.readline() == f"{float(x[wanted.n_samples])!r}\n"     # stopped reading there
    status, out, err = say(monkeypatch, capsys, "\n" + lines(x).replace("\n", "\n\n"), "--quiet", "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert found["estimate"] == wanted.estimate and found["n_samples"] == wanted.n_samples
    assert found["interval"] == list(wanted.interval) and found["status"] == "stopped"


def test_options_reach_the_rule(monkeypatch, capsys, x):
    status, out, _ = say(monkeypatch, capsys, lines(4 * x), "--method", "ebgstop", "--support", 0, 4, "--epsilon", 0.2,
                         "--delta", 0.2, "--json")
    rule = fr.EBGStop(0.2, 0.2, (0, 4))
    rule.update_many(4 * x)
    assert json.loads(out)["n_samples"] == rule.n_samples and status == 0
    status, out, _ = say(monkeypatch, capsys, lines(x), "--accuracy", "absolute", "--epsilon", 0.03, "--json")
    assert json.loads(out)["n_samples"] == fr.estimate_mean(x, 0.03, accuracy="absolute").n_samples
    status, out, err = say(monkeypatch, capsys, lines(x), "--epsilon", 0.01, "--max-samples", 50)
    assert status == 1 and "out of samples after 50" in out and "gave up after 50" in err
    status, out, err = say(monkeypatch, capsys, lines(2 * x), "--clip")
    assert status == 0 and "clipped" in out


def test_columns_of_csv(monkeypatch, capsys, tmp_path, x):
    wanted = fr.estimate_mean(x).n_samples
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
    status, out, _ = say(monkeypatch, capsys, "", file, "--column", "reward", "--json")
    assert (status, json.loads(out)["n_samples"]) == (0, wanted)
    status, _, err = say(monkeypatch, capsys, table, "--column", "cost")
    assert status == 2 and "line 1: no column is named 'cost'" in err and "reward" in err
    status, out, err = say(monkeypatch, capsys, "a,b\n1,0.5\n2\n", "--column", "b")
    assert status == 2 and "line 3 has 1 columns" in err and said_samples(out) == 1
    status, _, err = say(monkeypatch, capsys, "0.1,0.5\n")
    assert status == 2 and "--column" in err


def test_a_bad_line_is_named_and_nothing_is_lost(monkeypatch, capsys):
    for bad, said in (("abc", "line 4 is 'abc'"), ("nan", "line 4: the reward is nan"),
                      ("7", "line 4: the reward is 7.0"),
                      ("inf", "line 4"), ("1e", "line 4 is '1e'"), ("0.5 0.5", "line 4")):
        status, out, err = say(monkeypatch, capsys, f"0.5\n0.25\n0.75\n{bad}\n0.5\n")
        assert status == 2 and said in err
        assert said_samples(out) == 3 and "running" in out
    status, out, err = say(monkeypatch, capsys, "0.5\n0.25\n")
    assert status == 1 and "ended" in err and "2 were read" in err and said_samples(out) == 2
    status, out, err = say(monkeypatch, capsys, "")
    assert status == 1 and "0 were read" in err
    status, out, err = say(monkeypatch, capsys, "", "--json")
    assert json.loads(out)["estimate"] is None


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
