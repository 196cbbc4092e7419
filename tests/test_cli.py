"""The command `fastrace`, as a user runs it."""

import io
import json
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest

import fastrace as fr
from command_line import save, say, three_columns
from fastrace import cli
from fastrace.commands import running


@pytest.fixture
def table(rng):
    return three_columns(rng)


@pytest.mark.parametrize("name", ["table.npy", "table.csv", "table.parquet"])
def test_race_names_the_best_column_whatever_the_file(tmp_path, capsys, table, name):
    file = save(tmp_path / name, table)
    status, out, _ = say(capsys, "race", file, "--support", 0, 1.2, "--seed", 1)
    assert status == 0
    assert f"best arm {'1' if name.endswith('npy') else 'b'}:" in out
    assert "betting" in out


def test_the_seed_is_printed_and_repeats_the_run(tmp_path, capsys, table):
    file = save(tmp_path / "table.npy", table)
    _, out, _ = say(capsys, "race", file, "--support", 0, 1.2, "--json")
    found = json.loads(out)
    assert found == json.loads(say(capsys, "race", file, "--support", 0, 1.2, "--json", "--seed", found["seed"])[1])
    text = say(capsys, "race", file, "--support", 0, 1.2, "--seed", found["seed"])[1]
    assert f"  seed {found['seed']}\n" in text
    numbers = save(tmp_path / "numbers.npy", table[:, 0])
    _, out, _ = say(capsys, "estimate", numbers, "--json", "--quiet")
    found = json.loads(out)
    assert found == json.loads(say(capsys, "estimate", numbers, "--json", "--quiet", "--seed", found["seed"])[1])


def test_json_names_the_columns_that_were_chosen(tmp_path, capsys, table):
    file = save(tmp_path / "table.npy", table)
    assert json.loads(say(capsys, "race", file, "--columns", "2,1", "--json")[1])["names"] == ["2", "1"]
    assert "best arm 1:" in say(capsys, "race", file, "--columns", "2,1")[1]
    file = save(tmp_path / "table.csv", table)
    assert json.loads(say(capsys, "race", file, "--json")[1])["names"] == ["a", "b", "c"]


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGPIPE and no exit status for it")
def test_nobody_reads_the_output_and_no_traceback_is_printed(tmp_path, table):
    file = save(tmp_path / "table.npy", table)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        done = subprocess.run([sys.executable, "-m", "fastrace.cli", "race", str(file)], stdout=pipe,
                              stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_number_outside_is_refused_in_words_of_the_command(tmp_path, capsys):
    file = tmp_path / "numbers.txt"
    file.write_text("0.5\n1.5\n")
    given = "estimate", file, "--order", "given", "--quiet"
    err = say(capsys, *given)[2]
    said = f"line 2 of {file} is 1.5; a number inside the support, 0 to 1, is needed: widen --support, or say --clip"
    assert said in err
    file.write_text("0.5\nnan\n")
    for options in ((), ("--clip",)):
        assert f"line 2 of {file} is nan; a finite number is needed: fill or drop such rows" in say(
            capsys, *given, *options)[2]


@pytest.mark.parametrize("name", ["t.npy", "t.csv", "t.parquet", "flat.npy"])
@pytest.mark.parametrize("order", ["random", "given"])
def test_a_missing_number_is_named_with_its_file_and_column_and_no_support_is_blamed(
    tmp_path, capsys, table, name, order
):
    table = table[:50] / 2.0
    table[41, 1] = np.nan
    file = save(tmp_path / name, table[:, 1] if name == "flat.npy" else table)
    column = () if name == "flat.npy" else ("--column", "1" if name == "t.npy" else "b")
    for more in ((), ("--clip",)):
        err = say(capsys, "estimate", file, "--order", order, "--epsilon", 1e-9, "--quiet", *column, *more)[2]
        assert str(file) in err and all(repr(part) in err for part in column[1:])
        assert "a finite number is needed: fill or drop such rows" in err or name == "t.csv"
        assert "widen" not in err and "--clip" not in err and err.count("\n") == 1
        if name == "t.csv":         # pandas writes a missing number as an empty cell
            assert "line 43" in err and "is empty; a finite number is needed: fill or drop such rows" in err


@pytest.mark.parametrize(("text", "line"), [
    ('r\n1\n""\n""\n1\n', 3), ('1\n""\n1\n', 2), ("r,s\n1,2\n,\n3,4\n", 3), ('""\n1\n1\n', 1), ("r\n1\n\n ''\n", 4)])
@pytest.mark.parametrize("door", ["file", "standard input"])
def test_an_entry_that_is_missing_is_no_empty_line(tmp_path, capsys, monkeypatch, text, line, door):
    """pandas writes a missing number in a table of one column as two quotes."""
    file = tmp_path / "t.csv"
    file.write_text(text)
    column = ("--column", "r" if text.startswith("r") else "0")
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    status, _, err = say(capsys, "estimate", *([file] if door == "file" else []), *column, "--quiet")
    assert status == 2 and f"line {line}" in err and ("is empty" in err or "a number is needed" in err)


def test_true_and_false_are_numbers(tmp_path, capsys, monkeypatch):
    """As in files of Arrow, and in tables that are raced or compared."""
    words = ["True", "false", "TRUE", "True", "False"] * 4
    for head, more in ((["r"], ["--column", "r"]), ([], ["--column", "0"]), ([], [])):
        file, text = tmp_path / "t.csv", "\n".join(head + words) + "\n"
        file.write_text(text)
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        for source in ([file], []):
            status, out, err = say(capsys, "estimate", *source, *more, "--quiet", "--json", "--epsilon", 1e-3)
            assert json.loads(out)["estimate"] == pytest.approx(0.6) and json.loads(out)["n_samples"] == 20, err
            assert status == (0 if source else 1)
    file.write_text("True,False\nFalse,True\n")
    status, _, err = say(capsys, "race", file)
    assert status == 2 and "starts with a row of numbers" in err


def test_a_file_without_numbers_is_refused(tmp_path, capsys):
    for name, content in (("empty.csv", ""), ("empty.txt", "\n\n")):
        file = tmp_path / name
        file.write_text(content)
        for more in ((), ("--order", "given"), ("--column", "0"), ("--json",)):
            assert say(capsys, "estimate", file, *more) == (2, "", f"fastrace: {file} holds no numbers\n")
    np.save(tmp_path / "empty.npy", np.zeros(0))
    status, out, err = say(capsys, "estimate", tmp_path / "empty.npy")
    assert (status, out) == (2, "") and "empty.npy holds no numbers" in err


@pytest.mark.parametrize(("text", "more"), [("", ()), ("\n \n", ()), ("", ("--json",)), ("a\n", ("--column", "a"))])
def test_standard_input_without_numbers_is_refused(capsys, monkeypatch, text, more):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert say(capsys, "estimate", *more) == (2, "", "fastrace: standard input holds no numbers\n")


def test_numbers_that_end_are_no_running_rule(tmp_path, capsys):
    file = tmp_path / "few.txt"
    file.write_text("0.5\n0.25\n")
    status, out, err = say(capsys, "estimate", file, "--order", "given", "--json", "--quiet")
    assert status == 1 and json.loads(out)["stopped_by"] == "exhausted" and "the numbers ended" in err
    out = say(capsys, "estimate", file, "--order", "given", "--quiet")[1]
    assert "not stopped: the rewards ended after 2" in out and "running" not in out
    file.write_text("0.5\n0.25\nbad\n")
    status, out, _ = say(capsys, "estimate", file, "--order", "given", "--json", "--quiet")
    assert status == 2 and json.loads(out)["stopped_by"] == "exhausted"


def test_columns_of_one_name_are_refused_unless_one_is_chosen(tmp_path, capsys):
    pytest.importorskip("pandas")
    file = tmp_path / "twins.csv"
    file.write_text("a,a,b\n" + "1,2,3\n2,3,4\n" * 30)
    said = f"{file} has 2 columns named 'a'; choose columns by number, or give each a name of its own"
    for columns in ((), ("--columns", "a,b"), ("--columns", "a"), ("--columns", "0,1")):
        assert say(capsys, "race", file, *columns) == (2, "", f"fastrace: {said}\n")
    status, out, _ = say(capsys, "race", file, "--columns", "1,2", "--json")
    assert status == 0 and json.loads(out)["names"] == ["a", "b"]
    for order in ("random", "given"):
        status, out, err = say(capsys, "estimate", file, "--column", "a", "--order", order)
        assert (status, out) == (2, "") and f"line 1 of {said}" in err
        out = say(capsys, "estimate", file, "--column", "1", "--order", order, "--support", 0, 9, "--quiet")[1]
        assert "estimate" in out


def test_help_and_version_need_no_library():
    for argument in ("--help", "--version"):
        code = f"""
import sys
from fastrace import cli
try:
    cli.main([{argument!r}])
except SystemExit as end:
    assert end.code == 0
print(sorted({{name.partition('.')[0] for name in sys.modules}} & {{'numpy', 'scipy', 'pandas', 'rich'}}))
"""
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert out.splitlines()[-1] == "[]"


def test_ctrl_c_while_libraries_load_is_silent(tmp_path, table):
    file = save(tmp_path / "table.npy", table)
    for hurried in ("numpy", "fastrace._core", "fastrace.races.racing"):
        code = f"""
import sys

class Hurry:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {hurried!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Hurry)
from fastrace import cli
sys.exit(cli.main(["race", {str(file)!r}]))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", ""), hurried


def test_race_prints_json_that_equals_the_result(tmp_path, capsys, table):
    file = save(tmp_path / "table.npy", table)
    status, out, _ = say(capsys, "race", file, "--seed", 1, "--delta", 0.01, "--json")
    found = json.loads(out)
    expected = fr.race(table, delta=0.01, rng=1)
    assert status == 0
    assert found["best"] == expected.best == 1
    assert found["pulls"] == expected.pulls.tolist()
    assert found["stopped_by"] == expected.stopped_by
    assert found["fraction_read"] == expected.fraction_read


def test_options_reach_the_race(tmp_path, capsys, table):
    file = save(tmp_path / "table.npy", table)
    status, out, _ = say(capsys, "race", file, "--bound", "serfling", "--support", 0, 1.2, "--order", "given",
                         "--seed", 3, "--json")
    expected = fr.race(table, bound="serfling", support=(0, 1.2), order="given", rng=3)
    assert status == 0
    assert json.loads(out)["bound"] == "serfling"
    assert json.loads(out)["pulls"] == expected.pulls.tolist()


def test_bad_files_and_options_exit_with_2_and_one_line(tmp_path, capsys, table):
    flat = tmp_path / "flat.npy"
    np.save(flat, table[:, 0])
    text = tmp_path / "table.txt"
    text.write_text("1 2", encoding="utf-8")
    whole = save(tmp_path / "table.npy", table)
    for arguments, said in [
        (["race", tmp_path / "none.npy"], "none.npy: No such file"),
        (["race", flat], "shape (5000,)"),
        (["race", text], "say --delimiter ' ' --no-header"),
        (["race", tmp_path / "table.xlsx"], "ends in '.xlsx'; .npy, .csv, .tsv, .txt (also with .gz), .parquet"),
        (["race", whole, "--delta", 2], "delta is 2.0"),
        (["race", whole, "--bound", "betting"], "needs support"),
        (["demo", "--draws", 0], "--draws is 0"),
        (["demo", "--data", flat], "shape (5000,)"),
    ]:
        status, out, err = say(capsys, *arguments)
        assert (status, out) == (2, ""), arguments
        assert err.startswith("fastrace: ") and said in err and err.count("\n") == 1, err


def test_columns_of_words_are_named(tmp_path, capsys):
    pytest.importorskip("pandas")
    file = tmp_path / "table.csv"
    file.write_text("a,city\n1,Ulm\n2,Bonn\n", encoding="utf-8")
    status, _, err = say(capsys, "race", file)
    assert status == 2
    assert "not numbers: city" in err and "--columns, such as --columns a\n" in err
    assert say(capsys, "race", file, "--columns", "a")[0] == 0


def test_columns_are_chosen_by_name_or_number(tmp_path, capsys, table):
    for name, best in (("table.npy", "2"), ("table.csv", "c"), ("table.parquet", "c")):
        file = save(tmp_path / name, table + [0.0, 0.0, 0.1])
        for columns in ("0,2", "2,0") if name.endswith("npy") else ("a,c", "0,2", " c , a"):
            status, out, _ = say(capsys, "race", file, "--columns", columns, "--seed", 1)
            assert status == 0
            if not name.endswith("npy"):
                assert f"best arm {best}:" in out
    for columns, said in (("a,d", "has no column 'd'; there are a, b, c"), ("a,a", "twice"), ("a,3", "'3'")):
        status, _, err = say(capsys, "race", file, "--columns", columns)
        assert status == 2 and said in err


def test_an_index_does_not_win_in_silence(tmp_path, capsys, table):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(table, columns=list("abc"))
    n = len(frame)
    for name, index in (
        ("id", np.random.default_rng(1).permutation(n)), ("Unnamed: 0", np.arange(n)), ("when", np.arange(n) + 2000),
        ("Index", np.arange(n)[::-1]), ("step", np.arange(float(n))),
    ):
        file = tmp_path / "indexed.csv"
        frame.assign(**{name: index}).to_csv(file, index=False)
        status, out, err = say(capsys, "race", file)
        assert (status, out) == (2, "") and repr(name) in err and "--columns a,b,c" in err and err.count("\n") == 1
        status, out, _ = say(capsys, "race", file, "--columns", "a,b,c", "--seed", 1)
        assert status == 0 and "best arm b:" in out
        status, out, _ = say(capsys, "race", file, "--columns", f"a,{name}", "--seed", 1)
        assert status == 0 and f"best arm {name}:" in out           # whoever names it, means it
    np.save(tmp_path / "indexed.npy", np.c_[np.arange(n), table])
    status, _, err = say(capsys, "race", tmp_path / "indexed.npy")
    assert status == 2 and "column '0'" in err and "--columns 1,2,3" in err
    for good in (table > 0.5, np.round(3 * table)):                 # counts and answers are no index
        frame = pd.DataFrame(good, columns=["id_score", "b", "c"])
        frame.to_csv(file, index=False)
        assert say(capsys, "race", file, "--seed", 1)[0] == 0


def test_missing_numbers_are_named(tmp_path, capsys, table):
    pytest.importorskip("pandas")
    table[4321, 1] = np.nan
    status, _, err = say(capsys, "race", save(tmp_path / "table.csv", table))
    assert status == 2 and "row 4321" in err and "column 'b'" in err
    assert say(capsys, "race", tmp_path / "table.csv", "--columns", "a,c", "--seed", 1)[0] == 0


def test_cells_that_a_race_might_not_read_are_checked(tmp_path, capsys, table):
    pytest.importorskip("pandas")
    table[4321, 1] = 3.5
    file = save(tmp_path / "table.csv", table)
    status, _, err = say(capsys, "race", file, "--support", 0, 2)
    assert status == 2 and "3.5 in row 4321" in err and "column 'b'" in err and "--support 0 2" in err
    assert say(capsys, "race", file, "--support", 0, 4)[0] == 0
    table[4321, 1] = np.inf
    status, _, err = say(capsys, "race", save(tmp_path / "table.csv", table))
    assert status == 2 and "inf in row 4321" in err
    status, _, err = say(capsys, "demo", "--quick", "--data", file, "--output", tmp_path / "demo.png")
    assert status == 2 and "inf in row 4321" in err


@pytest.mark.parametrize(("value", "words"), [(np.nan, "nan"), (np.inf, "inf"), (3.5, "3.5")])
def test_all_numbers_of_an_npy_file_are_checked(tmp_path, capsys, table, monkeypatch, value, words):
    table[4321, 1] = value
    file = save(tmp_path / "table.npy", table + [0.0, 0.0, 1.0])        # column 2 wins before row 4321 is read
    status, out, err = say(capsys, "race", file, "--support", 0, 2.2, "--seed", 1)
    assert (status, out) == (2, "") and f"{words} in row 4321, counted from 0, of column 1: " in err
    assert ("--support 0 2.2" if value == 3.5 else "finite numbers are needed") in err and err.count("\n") == 1
    assert say(capsys, "race", file, "--support", 0, 2.2, "--seed", 1, "--columns", "0,2")[0] == 0
    if value != 3.5:
        status, _, err = say(capsys, "demo", "--quick", "--data", file, "--output", tmp_path / "demo.png")
        assert status == 2 and f"{words} in row 4321" in err
    monkeypatch.setattr(running, "CELLS", 100)
    assert f"{words} in row 4321, counted from 0, of column 1: " in say(capsys, "race", file, "--support", 0, 2.2)[2]
    monkeypatch.setattr(running, "CHECKED", 1000)
    status, out, err = say(capsys, "race", file, "--support", 0, 2.2, "--seed", 1)
    assert status == 0 and "best arm 2" in out
    assert "only the numbers that are used are checked" in err and err.count("\n") == 1


def test_cells_may_miss_the_support_by_rounding_as_in_any_race(tmp_path, capsys, table):
    pytest.importorskip("pandas")
    values = np.clip(table, 0.0, 1.0)
    values[17, 1] = 1 + 1e-13
    assert say(capsys, "race", save(tmp_path / "table.csv", values), "--support", 0, 1, "--seed", 1)[0] == 0


def test_columns_with_a_comma_in_their_names_are_offered_by_number(tmp_path, capsys, table):
    pd = pytest.importorskip("pandas")
    file = tmp_path / "indexed.csv"
    pd.DataFrame(np.c_[np.arange(len(table)), table], columns=["id", "a,b", "c", "d"]).to_csv(file, index=False)
    status, _, err = say(capsys, "race", file)
    assert status == 2 and "--columns 1,c,d" in err


@pytest.mark.parametrize("other", ["id", "city"])
@pytest.mark.parametrize("names", [["first score", "b"], ["a,b", "it's $HOME"], ["-a", "b"], ["-a b", "c"],
                                   ["a  b", "\tc"], ["a*", "b\u00a0c"]])
def test_what_is_said_of_columns_can_be_pasted_into_a_shell(tmp_path, capsys, table, names, other):
    pd = pytest.importorskip("pandas")
    file, n = tmp_path / "t.csv", len(table)
    made = {"id": np.arange(n), **({} if other == "id" else {"city": ["Ulm"] * n})}
    pd.DataFrame(made | dict(zip(names, table.T[:2], strict=True))).to_csv(file, index=False)
    status, _, err = say(capsys, "race", file)
    assert status == 2 and repr(other)[1:-1] in err
    pasted = shlex.split(err.partition("--columns, such as ")[2])
    status, out, err = say(capsys, "race", file, *pasted, "--json")
    assert status == 0 and json.loads(out)["names"] == [name.strip() for name in names], err


@pytest.mark.parametrize("shape", ["(-4, 3)", "(-4, -3)", "(9999999999999999999999, 3)", "(True, 3)", "(1 << 62, 3)"])
def test_a_damaged_npy_file_is_one_line(tmp_path, capsys, shape):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    file = tmp_path / "damaged.npy"
    file.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(96))
    for command in ("race", "estimate"):
        status, out, err = say(capsys, command, file)
        assert (status, out) == (2, "") and err.count("\n") == 1 and "cannot be read as an npy file" in err
    for content in (b"", b"\x93NUMPY\x01\x00", b"not an array"):
        file.write_bytes(content)
        status, out, err = say(capsys, "race", file)
        assert (status, out) == (2, "") and err.count("\n") == 1


def test_a_missing_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    status, _, err = say(capsys, "demo")
    assert status == 2
    assert "needs rich" in err and "pip install rich" in err


def test_demo_on_the_users_table_prints_the_comparison_and_writes_the_picture(tmp_path, capsys, rng):
    pytest.importorskip("rich")
    pytest.importorskip("matplotlib")
    file = save(tmp_path / "factors.csv", rng.normal(size=(3000, 3)) * 0.02)
    picture = tmp_path / "out.png"
    status, out, _ = say(capsys, "demo", "--data", file, "--draws", 50, "--output", picture)
    assert status == 0
    assert "50 draws of the column" in out
    for line in ["terms read", "speed-up", "error promised", "draws that differ", "total variation"]:
        assert line in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_demo_on_prices(tmp_path, capsys):
    for name in ["arch", "rich", "matplotlib"]:
        pytest.importorskip(name)
    status, out, _ = say(capsys, "demo", "--draws", 20, "--output", tmp_path / "out.png")
    assert status == 0
    assert "order of an ARCH model" in out


def test_module_and_version():
    command = [sys.executable, "-m", "fastrace.cli"]
    run = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"fastrace {fr.__version__}\n"
    assert subprocess.run(command, capture_output=True).returncode == 2


def test_the_exit_status_says_whether_the_answer_holds_as_promised(tmp_path, capsys, table):
    file, lines = save(tmp_path / "t.npy", table), tmp_path / "t.txt"
    lines.write_text("0.25\n0.75\n" * 20)
    settled = ["race", file, "--support", 0, 1.2, "--seed", 1]
    assert say(capsys, *settled)[::2] == (0, "")
    status, out, err = say(capsys, *settled, "--max-rows", 20)
    assert status == 1 and "max_pulls was reached" in out and err == (
        "fastrace: stopped by --max-rows before the answer was known\n")
    assert say(capsys, *settled, "--max-rows", 20, "--json")[0] == 1
    assert say(capsys, *settled, "--columns", "1")[0] == 0          # one column leaves nothing to choose
    assert say(capsys, "estimate", lines, "--quiet", "--order", "given")[0] == 1
    assert say(capsys, "estimate", lines, "--quiet", "--max-samples", 10)[0] == 1
    table[np.arange(5000), np.arange(5000) % 3] = np.nan        # no row is whole, and no column silent
    np.save(tmp_path / "gaps.npy", table[:90])
    assert say(capsys, "race", tmp_path / "gaps.npy", "--missing", "drop")[0] == 2
    for command in ([], ["race"], ["estimate"], ["compare"], ["demo"]):
        with pytest.raises(SystemExit):
            cli.main([*command, "--help"])
        told = " ".join(capsys.readouterr().out.split())
        assert "Exit status: 0 with an answer that holds as promised; 1 without one" in told


def test_folders_are_no_files(tmp_path, capsys):
    status, _, err = say(capsys, "race", tmp_path)
    assert status == 2
    assert "is a folder" in err
    status, _, err = say(capsys, "demo", "--output", tmp_path / "none" / "picture.png")
    assert status == 2
    assert "folder does not exist" in err


def test_words_name_the_options_of_the_command(tmp_path, capsys, table):
    file = save(tmp_path / "table.npy", table)
    (tmp_path / "junk.npy").write_bytes(b"no array")
    (tmp_path / "latin.csv").write_bytes(b"a,b\n1,2\n\xe9,3\n")
    (tmp_path / "spaces.csv").write_text("a, b\n" + "1, 2\n3, 4\n" * 20)
    for arguments, words in (
        (("race", file, "--seed", -1), "--seed is -1; a whole number of at least 0 is needed"),
        (("estimate", "-"), "leave it out to read standard input"),
        (("race", "-"), "the path of a file is needed"),
        (("race", file, "--support", 1, 0), "--support is 1 0; LO <= HI is needed"),
        (("race", tmp_path / "latin.csv"), "is no text in UTF-8"),
    ):
        status, _, err = say(capsys, *arguments)
        assert status == 2 and words in err
    assert "one column to race, which leaves nothing to choose" in say(capsys, "race", file, "--columns", "1")[2]
    assert "allow_pickle" not in say(capsys, "race", tmp_path / "junk.npy")[2]
    assert say(capsys, "race", tmp_path / "spaces.csv", "--columns", "a,b", "--support", 0, 5)[0] == 0


def test_a_race_stops_near_ties_finds_several_and_writes_a_page(tmp_path, capsys, table):
    pytest.importorskip("matplotlib")
    file, page = save(tmp_path / "table.npy", table), tmp_path / "page.html"
    status, out, _ = say(capsys, "race", file, "--support", 0, 1.2, "--epsilon", 0.05, "--best", 2, "--names", "x,y,z",
                         "--max-rows", 2000, "--seed", 1, "--html", page)
    expected = fr.race(table, support=(0, 1.2), epsilon=0.05, n_best=2, names=["x", "y", "z"], rng=1,
                       max_pulls=2000 * table.shape[1])
    assert expected.stopped_by == "epsilon"
    assert status == 0 and str(expected) in out and f"  page {page}" in out
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and "<svg" in text and expected._repr_html_() in text
    assert "http-equiv" not in text and "<script" not in text
    for bad, words in [(("--names", "x,y"), "3 different names"), (("--max-rows", 0), "--max-rows is 0"),
                       (("--html", tmp_path / "none" / "page.html"), "folder does not exist")]:
        status, _, err = say(capsys, "race", file, *bad)
        assert status == 2 and words in err


@pytest.mark.parametrize("name", ["t.npy", "t.csv", "t.parquet"])
def test_a_race_takes_missing_numbers_as_it_is_told(tmp_path, capsys, table, name):
    pytest.importorskip("pandas")
    table[::40, 1] = np.nan
    file = save(tmp_path / name, table)
    for missing in ("drop", "worst"):
        status, out, _ = say(capsys, "race", file, "--support", 0, 1.2, "--seed", 3, "--missing", missing, "--json")
        expected = fr.race(table, support=(0, 1.2), missing=missing, rng=3)
        assert status == 0 and json.loads(out)["pulls"] == expected.pulls.tolist()
        assert json.loads(out)["n_missing"] == expected.n_missing
    status, _, err = say(capsys, "race", file, "--missing", "worst")
    assert status == 2 and "--support" in err
    status, _, err = say(capsys, "race", file, "--seed", 1)
    assert status == 2 and ("--missing drop" in err or name == "t.npy")
