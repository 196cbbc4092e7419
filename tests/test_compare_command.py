"""`fastrace compare`, as a user runs it."""

import gzip
import json
import re

import numpy as np
import pytest

import command_line
import fastrace as fr
from fastrace.commands import comparing


def say(capsys, *arguments):
    return command_line.say(capsys, "compare", *arguments)


def events(path, n=4000):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    variant = rng.choice(["blue", "green"], size=n, p=[0.6, 0.4])
    frame = pandas.DataFrame({
        "variant": variant, "converted": (rng.random(n) < np.where(variant == "green", 0.5, 0.3)).astype(int),
        "user": rng.integers(0, n // 3, size=n), "when": np.datetime64("2026-01-01", "ms") + rng.permutation(n)})
    command_line.written(frame, path)
    return frame


def perf(path, scale=1.0, processes=40, names=("parse", "dump"), seed=2):
    """As pyperf saves: a run without values calibrates."""
    rng = np.random.default_rng(seed)
    held = {"version": "1.0", "metadata": {"unit": "second"}, "benchmarks": [
        {"metadata": {"name": name}, "runs": [{"warmups": [[1, 0.1]], "metadata": {"calibrate_loops": 8}}] + [
            {"values": (scale * 1e-3 * rng.normal(1.0, 0.02) * rng.normal(1.0, 0.005, size=3)).tolist()}
            for _ in range(processes)]} for name in names]}
    path.write_text(json.dumps(held))


def test_too_many_arms_are_refused_in_words_of_the_command_line(tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"variant": [f"v{k}" for k in range(30_000)], "converted": 1})
    command_line.written(frame, tmp_path / "events.csv")
    status, _, error = say(capsys, tmp_path / "events.csv", "--arm", "variant", "--reward", "converted")
    assert status != 0 and "say --reference, the arm to compare" in error


@pytest.mark.parametrize(("processes", "said"), [
    (1, r"it has times of 1 process, and nothing is said before 5; run more of them, 30"),
    (4, r"it has times of 4 processes, and nothing is said before 5; run more of them, 30"),
    (8, r"it has times of 8 processes; with fewer than 30"), (40, None),
])
def test_timings_are_spoken_of_in_their_own_words(tmp_path, capsys, processes, said):
    perf(tmp_path / "old.json", names=("parse",), processes=processes)
    perf(tmp_path / "new.json", 1.3, names=("parse",), processes=processes, seed=3)
    status, out, _ = say(capsys, "--pyperf", tmp_path / "old.json", tmp_path / "new.json")
    assert status == 0 and out.startswith(f"parse: comparison of 2 files after {6 * processes} times")
    assert not set("arm arms reward rewards cluster clusters".split()) & set(re.findall(r"\w+", out))
    assert re.search(f"file 'old': {said}", out) if said else "warning" not in out
    assert ("inf" in out) == (processes < 5)


def test_compressed_timings_are_read(tmp_path):
    perf(tmp_path / "old.json")
    (tmp_path / "old.json.gz").write_bytes(gzip.compress((tmp_path / "old.json").read_bytes()))
    assert comparing.timings(tmp_path / "old.json.gz") == comparing.timings(tmp_path / "old.json")


def test_what_only_one_file_has_is_named(tmp_path, capsys):
    perf(tmp_path / "old.json", names=("parse", "dump"))
    perf(tmp_path / "new.json", names=("load", "dump"))
    status, out, err = say(capsys, "--pyperf", tmp_path / "old.json", tmp_path / "new.json", "--json")
    assert status == 0 and list(json.loads(out)) == ["dump"]
    assert "left out, as not all files have them: parse, load" in err


def test_units_are_not_mixed(tmp_path, capsys):
    perf(tmp_path / "seconds.json")
    held = json.loads((tmp_path / "seconds.json").read_text())
    held["metadata"]["unit"] = "byte"
    (tmp_path / "bytes.json").write_text(json.dumps(held))
    status, out, err = say(capsys, "--pyperf", tmp_path / "seconds.json", tmp_path / "bytes.json")
    assert status == 2 and "units of second, byte" in err and not out
    assert say(capsys, "--pyperf", tmp_path / "bytes.json", tmp_path / "seconds.json")[0] == 2


def test_one_value_per_process_is_by_process(tmp_path, capsys):
    for name in ("a", "b"):
        perf(tmp_path / f"{name}.json", processes=10, names=("one",))
        held = json.loads((tmp_path / f"{name}.json").read_text())
        for run in held["benchmarks"][0]["runs"][1:]:
            del run["values"][1:]
        (tmp_path / f"{name}.json").write_text(json.dumps(held))
    status, out, _ = say(capsys, "--pyperf", tmp_path / "a.json", tmp_path / "b.json")
    assert status == 0 and "times of 10 processes" in out and "nothing says" not in out


def damage(held):
    """Files that are not what they were: what is changed, and what is said."""
    def changed(change):
        copy = json.loads(json.dumps(held))
        change(copy, copy["benchmarks"][0])
        return json.dumps(copy)

    text = json.dumps(held)
    return (
        ("", "no JSON file"), (text[:200], "no JSON file"), ("[]", "holds no timings"), ("null", "holds no timings"),
        (gzip.compress(text.encode())[:60], "no JSON file"), (b"\x1f\x8b", "no JSON file"), (b"\xff\0", "no JSON file"),
        ('{"benchmarks": []}', "holds no timings"), ('{"benchmarks": [5]}', "damaged"),
        ('{"benchmarks": ["runs"]}', "damaged"), ('{"benchmarks": [{}]}', "damaged"),
        ('{"benchmarks": [{"stats": 1}]}', "damaged"),
        (changed(lambda all, one: one.update(runs=5)), "damaged"),
        (changed(lambda all, one: one.update(runs=[5])), "damaged"),
        (changed(lambda all, one: one["runs"][1].update(values="abc")), "damaged"),
        (changed(lambda all, one: one["runs"][1].update(values=7)), "damaged"),
        (changed(lambda all, one: one["runs"][1].update(values=[None])), "damaged"),
        (changed(lambda all, one: one["runs"][1].update(values=[float("nan")])), "nan or infinite"),
        (changed(lambda all, one: one["runs"][1].update(values=[float("inf")])), "nan or infinite"),
        (changed(lambda all, one: one["runs"][1].update(values=[-1.0])), "is negative"),
        (changed(lambda all, one: all.update(metadata=3)), "damaged"),
        (changed(lambda all, one: all["benchmarks"].append(one)), "twice"),
        (changed(lambda all, one: one.update(runs=one["runs"][:1])), "holds no timings"),
    )


def test_damaged_files_are_refused_in_one_line(tmp_path, capsys):
    perf(tmp_path / "good.json", names=("one",))
    bad = tmp_path / "bad.json"
    for written, words in damage(json.loads((tmp_path / "good.json").read_text())):
        bad.write_bytes(written if isinstance(written, bytes) else written.encode())
        status, out, err = say(capsys, "--pyperf", tmp_path / "good.json", bad)
        assert status == 2 and words in err and str(bad) in err and err.count("\n") == 1 and not out, (written, err)
        assert "Error" not in err and "object" not in err, err


@pytest.mark.parametrize("name", ["events.csv", "events.parquet"])
def test_events_of_a_table(tmp_path, capsys, name):
    frame = events(tmp_path / name)
    status, out, _ = say(capsys, tmp_path / name, "--arm", "variant", "--reward", "converted", "--support", 0, 1,
                         "--time", "when", "--json")
    assert status == 0
    made = fr.Comparison.from_frame(frame, arm="variant", reward="converted", time="when", support=(0, 1))
    found = json.loads(out)
    assert found["verdict"] == ["better"] and found["difference_lower"] == made.result().difference_lower.tolist()
    status, out, _ = say(capsys, tmp_path / name, "--arm", "variant", "--reward", "converted", "--reference", "green",
                         "--cluster", "user")
    assert status == 0 and "asymptotic" in out and "worse" in out and "clusters" in out


@pytest.mark.parametrize("labels", [("1.1", "1.10", "1.2"), ("001", "1", "2"), ("1e1", "10", "2"),
                                    ("True", "TRUE", "False"), ("12345678901234567890", "12345678901234567891", "2"),
                                    ("NA", "EU", "null"), ("None", "nan", "N/A")])
def test_labels_of_a_csv_file_are_text(tmp_path, capsys, labels):
    """Labels that are equal as numbers are two arms, and two clusters; the names of columns may have spaces."""
    pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    arms, rewards = rng.integers(3, size=900), rng.random(900).round(3)
    file, rows = tmp_path / "events.csv", list(zip(arms, rewards, rng.integers(3, size=900), strict=True))
    file.write_text("\n".join(["user, arm,reward"] + [f"{labels[c]},{labels[a]},{r}" for a, r, c in rows]) + "\n")
    status, out, _ = say(capsys, file, "--arm", "arm", "--reward", "reward", "--reference", labels[1], "--json",
                         "--support", 0, 1)
    found = json.loads(out)
    assert status == 0 and found["names"] == sorted(labels)
    assert found["pulls"] == [int((arms == labels.index(name)).sum()) for name in found["names"]]
    status, out, _ = say(capsys, file, "--arm", "1", "--reward", "reward", "--cluster", "user", "--json")
    made = fr.Comparison.from_frame({"arm": [labels[a] for a, _, _ in rows], "reward": [r for _, r, _ in rows],
                                     "user": [labels[c] for _, _, c in rows]}, arm="arm", reward="reward",
                                    cluster="user")
    assert status == 0 and json.loads(out) == json.loads(json.dumps(made.result().to_dict()))


def test_blanks_around_labels_are_no_part_of_them(tmp_path, capsys):
    events(tmp_path / "events.csv")
    lines = (tmp_path / "events.csv").read_text().splitlines()
    padded = [re.sub("^(blue|green)", r" \1\t" if k % 2 else r"\1 ", line) for k, line in enumerate(lines)]
    (tmp_path / "padded.csv").write_text("\n".join(padded))
    told = [say(capsys, tmp_path / name, "--arm", "variant", "--reward", "converted", "--support", 0, 1, "--reference",
                "blue", "--json") for name in ("events.csv", "padded.csv")]
    assert told[0][0] == 0 and told[1] == told[0]
    (tmp_path / "padded.csv").write_text("\n".join([*padded[:9], "  ,1,5,2026-01-01"]))
    status, out, err = say(capsys, tmp_path / "padded.csv", "--arm", "variant", "--reward", "converted")
    assert status == 2 and not out and "missing" in err and err.count("\n") == 1


def test_a_page_with_the_plots(tmp_path, capsys):
    events(tmp_path / "events.csv")
    page = tmp_path / "page.html"
    status, out, _ = say(capsys, tmp_path / "events.csv", "--arm", "variant", "--reward", "converted", "--html", page)
    text = page.read_text(encoding="utf-8")
    assert status == 0 and f"Page: {page}" in out and "<table>" in text and "green" in text
    pytest.importorskip("matplotlib")
    assert "data:image/png;base64" in text


def test_timings_of_pyperf(tmp_path, capsys):
    perf(tmp_path / "old.json")
    perf(tmp_path / "new.json", 1.1, seed=3)
    status, out, _ = say(capsys, "--pyperf", tmp_path / "old.json", tmp_path / "new.json", "--json")
    found = json.loads(out)
    assert status == 0 and list(found) == ["parse", "dump"]
    for answer in found.values():
        assert answer["verdict"] == ["worse"] and answer["names"] == ["old", "new"] and answer["delta"] == 0.025
        assert answer["n_clusters"] == [40, 40] and answer["pulls"] == [120, 120] and not answer["warnings"]
        assert answer["ratio_lower"][0] < 1.1 < answer["ratio_upper"][0]
    status, out, _ = say(capsys, "--pyperf", tmp_path / "new.json", tmp_path / "old.json")
    assert status == 0 and out.count("better") == 4 and out.startswith("parse: comparison of 2 files")


def test_few_processes_are_warned_of(tmp_path, capsys):
    perf(tmp_path / "a.json", processes=10)
    perf(tmp_path / "b.json", processes=10, seed=4)
    _, out, _ = say(capsys, "--pyperf", tmp_path / "a.json", tmp_path / "b.json")
    assert "times of 10 processes; with fewer than 30" in out


def test_timings_of_pytest_benchmark(tmp_path, capsys):
    rng = np.random.default_rng(5)
    for name, mean in (("a", 1.0), ("b", 0.8)):
        held = {"machine_info": {}, "benchmarks": [{"name": "test_x", "fullname": "tests/test_x.py::test_x", "stats": {
            "mean": mean, "data": rng.normal(mean, 0.05, size=100).tolist()}}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(held))
    status, out, _ = say(capsys, "--pyperf", tmp_path / "a.json", tmp_path / "b.json")
    assert status == 0 and "better" in out and "nothing says which times share a process" in out
    assert ", 100 times\n" in out and "5 times of each file" in out and "100 processes" not in out
    del held["benchmarks"][0]["stats"]["data"]
    (tmp_path / "b.json").write_text(json.dumps(held))
    status, _, err = say(capsys, "--pyperf", tmp_path / "a.json", tmp_path / "b.json")
    assert status == 2 and "--benchmark-save-data" in err and err.count("\n") == 1


def test_bad_arguments_exit_with_2_and_one_line(tmp_path, capsys):
    events(tmp_path / "events.csv", 50)
    file, other = tmp_path / "events.csv", tmp_path / "other.json"
    np.save(tmp_path / "plain.npy", np.zeros((3, 2)))
    other.write_text("{}")
    (tmp_path / "text.json").write_text("no")
    (tmp_path / "single.csv").write_text("variant,converted\n" + "blue,1\nblue,0\n" * 30)
    perf(tmp_path / "one.json", names=("one",))
    perf(tmp_path / "two.json", names=("two",))
    columns = ("--arm", "variant", "--reward", "converted")
    for arguments, words in (
        ((file,), "--arm and --reward are needed"), ((file, file, *columns), "one table of events"),
        ((file, "--arm", "colour", "--reward", "converted"), "no column 'colour'"),
        ((file, "--arm", "user", "--reward", "variant"), "must be real numbers"),
        ((file, *columns, "--reference", "red"), "one of the arms blue, green"),
        ((file, *columns, "--support", 0, 0.5), "outside support"),
        ((tmp_path / "plain.npy", *columns), "without names"),
        (("--pyperf", other), "two files or more"), (("--pyperf", other, other), "given twice"),
        (("--pyperf", other, tmp_path / "one.json"), "holds no timings"),
        (("--pyperf", tmp_path / "text.json", other), "no JSON file"),
        (("--pyperf", tmp_path / "one.json", tmp_path / "two.json"), "no benchmark in common"),
        (("--pyperf", other, file, "--arm", "x"), "does not go with --pyperf"),
        (("--pyperf", tmp_path / "one.json", tmp_path / "two.json", "--delta", 1.5), "delta is 1.5; a probability"),
        ((tmp_path / "none.csv", *columns), "No such file"),
        ((tmp_path / "single.csv", *columns), "has one arm, blue, in column variant; two or more are needed"),
    ):
        status, out, err = say(capsys, *arguments)
        assert status == 2 and words in err and err.count("\n") == 1 and not out, (arguments, err)


def test_files_of_one_name_are_told_apart(tmp_path):
    paths = [tmp_path / "a" / "bench.json", tmp_path / "b" / "bench.json"]
    assert comparing._arm_names(paths) == [str(path) for path in paths]


def test_a_file_of_labels_is_read_once(tmp_path, capsys, monkeypatch):
    pd = pytest.importorskip("pandas")
    reads, read = [], pd.read_csv
    monkeypatch.setattr(pd, "read_csv", lambda *args, **more: reads.append(more) or read(*args, **more))
    file = tmp_path / "events.csv"
    for head in ("\n,reward,arm\n", "0,1,2\n"):
        rows = [f" {'NA' if k % 2 else '1.10'},{0.5 + k % 3 / 10},x{k % 2}\n" for k in range(600)]
        file.write_text(head + "".join(rows))
        arm = "Unnamed: 0" if head[0] == "\n" else "0"
        status, out, err = say(capsys, file, "--arm", arm, "--reward", "1", "--support", 0, 1, "--json",
                               *(["--header"] if arm == "0" else []))
        assert status in (0, 1), err
        assert json.loads(out)["names"] == ["1.10", "NA"]
    assert len(reads) == 2
    file.write_text("arm,reward\n")
    assert "has no rows under its header" in say(capsys, file, "--arm", "arm", "--reward", "reward")[2]
