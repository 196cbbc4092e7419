"""Files that the released pyperf and pytest-benchmark write; skipped without them."""

import json
import os
import subprocess
import sys

import pytest

from fastrace import cli
from fastrace.commands.comparing import timings

PYPERF = """
import pyperf
runner = pyperf.Runner()
runner.bench_func("sort", sorted, list(range(100)))
runner.timeit("sum [100]", "sum(numbers)", globals={"numbers": list(range(100))})
"""
PYTEST = """
import pytest
def test_sort(benchmark):
    benchmark(sorted, list(range(100)))
@pytest.mark.parametrize("n", [1, 2])
def test_pedantic(benchmark, n):
    benchmark.pedantic(sorted, args=(list(range(100)),), rounds=30, iterations=2, warmup_rounds=3)
"""


def run(folder, *arguments):
    """A program of the package, in a folder of its own and without the options of this run of the tests."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV_"))}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def compare(capsys, *files):
    status = cli.main(["compare", "--json", "--pyperf", *map(str, files)])
    return status, *capsys.readouterr()


@pytest.fixture(scope="module")
def by_pyperf(tmp_path_factory):
    pytest.importorskip("pyperf")
    folder = tmp_path_factory.mktemp("pyperf")
    (folder / "bench.py").write_text(PYPERF)
    run(folder, "bench.py", "-o", "real.json", "--quiet", "--processes=2", "--values=3", "--warmups=1",
        "--min-time=1e-4")
    return folder / "real.json"


@pytest.fixture(scope="module")
def by_pytest(tmp_path_factory):
    pytest.importorskip("pytest_benchmark")
    folder = tmp_path_factory.mktemp("pytest_benchmark")
    (folder / "test_it.py").write_text(PYTEST)
    (folder / "pytest.ini").write_text("[pytest]")
    saved = ["-q", "-p", "no:cacheprovider", "--benchmark-max-time=1e-3", "--benchmark-storage=file://saved"]
    run(folder, "-m", "pytest", *saved, "--benchmark-json=real.json", "--benchmark-save=all", "--benchmark-save-data")
    run(folder, "-m", "pytest", *saved, "--benchmark-save=summary", "-k", "sort")
    return folder


def test_processes_of_pyperf_are_those_that_it_reads_itself(by_pyperf, tmp_path, capsys):
    import pyperf

    suite = pyperf.BenchmarkSuite.load(str(by_pyperf))
    suite.dump(str(tmp_path / "real.json.gz"))
    found = timings(by_pyperf)
    assert list(found) == suite.get_benchmark_names() == ["sort", "sum [100]"]
    for benchmark in suite:
        read = found[benchmark.get_name()]
        assert benchmark.get_nrun() == 3            # one of which calibrates
        assert read.processes == [list(run.values) for run in benchmark.get_runs() if run.values]
        assert [len(process) for process in read.processes] == [3, 3]
        assert read.unit == benchmark.get_unit() == "second" and read.grouped
    assert timings(tmp_path / "real.json.gz") == found
    status, out, err = compare(capsys, by_pyperf, tmp_path / "real.json.gz")
    answers = json.loads(out)
    assert status == 0 and list(answers) == list(found) and not err
    for benchmark in suite:
        answer = answers[benchmark.get_name()]
        assert answer["n_clusters"] == [2, 2] and answer["pulls"] == [6, 6] and answer["delta"] == 0.025
        assert answer["mean"] == pytest.approx([benchmark.mean()] * 2)


def test_a_file_of_one_benchmark_keeps_its_name_at_the_top(tmp_path, capsys):
    pyperf = pytest.importorskip("pyperf")
    for unit in ("byte", "second", "integer"):
        made = [pyperf.Run([size, size + 1], warmups=[(1, 9)], metadata={"name": "size", "unit": unit, "loops": 1},
                           collect_metadata=False) for size in (10, 20, 30)]
        pyperf.Benchmark(made).dump(str(tmp_path / f"{unit}.json"))
        found = timings(tmp_path / f"{unit}.json")["size"]
        assert found.processes == [[10, 11], [20, 21], [30, 31]] and found.unit == unit
    assert "metadata" not in json.loads((tmp_path / "byte.json").read_text())["benchmarks"][0]
    status, _, err = compare(capsys, tmp_path / "second.json", tmp_path / "byte.json")
    assert status == 2 and "'size' is in units of second, byte" in err


def test_timings_of_pytest_benchmark_are_the_rounds(by_pytest):
    written = json.loads((by_pytest / "real.json").read_text())["benchmarks"]
    found = timings(by_pytest / "real.json")
    assert set(found) == {"test_it.py::test_sort", "test_it.py::test_pedantic[1]", "test_it.py::test_pedantic[2]"}
    for benchmark in written:
        read = found[benchmark["fullname"]]
        stats = benchmark["stats"]
        assert len(read.processes) == stats["rounds"] and not read.grouped and read.unit == "second"
        assert sum(map(sum, read.processes)) / stats["rounds"] == pytest.approx(stats["mean"])
    assert len(found["test_it.py::test_pedantic[1]"].processes) == 30
    saved, = by_pytest.glob("saved/*/0001_all.json")
    assert timings(saved) == found


def test_a_summary_alone_and_the_other_kind_are_refused(by_pytest, by_pyperf, capsys):
    summary, = by_pytest.glob("saved/*/0002_summary.json")
    status, out, err = compare(capsys, by_pytest / "real.json", summary)
    assert status == 2 and "only their summary" in err and "--benchmark-save-data" in err and not out
    status, out, err = compare(capsys, by_pyperf, by_pytest / "real.json")
    assert status == 2 and "no benchmark in common" in err and "has sort, sum [100]" in err and "test_sort" in err


def test_pytest_benchmark_counts_every_round_and_says_so(by_pytest, capsys):
    status, out, _ = compare(capsys, by_pytest / "real.json", *by_pytest.glob("saved/*/0001_all.json"))
    answer = json.loads(out)["test_it.py::test_pedantic[2]"]
    assert status == 0 and answer["n_clusters"] == [30, 30]
    assert all("nothing says which times share a process" in said for said in answer["warnings"][-2:])
