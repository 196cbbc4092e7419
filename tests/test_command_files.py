"""Files that the commands read: text with its first line, lines and separators, compressed and binary forms."""

import io
import json
from decimal import Decimal

import numpy as np
import pytest

from command_line import save, say, three_columns
from fastrace.commands import running


@pytest.fixture
def table(rng):
    return three_columns(rng)


@pytest.mark.parametrize(("text", "words"), [
    ("", "cannot be read as a table"),
    ("a,b\n1,2\n1,2,3\n", "cannot be read as a table"),
    ("1.5,2.5\n3.5,4.5\n", "starts with a row of numbers"),
    ("a,b\n", "no rows under its header"),
    ("a;b\n1;2\n", "commas must separate"),
    ("a,b\n1,2\n1,x\n", "columns that are not numbers: b (its row 1, counted from 0, holds 'x')"),
    ("a,b\n1,2,3\n4,5,6\n", "more cells in its rows than columns in its header"),
    ("a,b\n0,2,3\n1,5,6\n", "more cells in its rows than columns in its header"),
    ("a,b\n1,2,3,4\n4,5,6,7\n", "more cells in its rows than columns in its header"),
])
def test_a_csv_that_is_no_table_is_named(tmp_path, capsys, text, words):
    file = tmp_path / "odd.csv"
    file.write_text(text)
    status, _, err = say(capsys, "race", file)
    assert status == 2
    assert "odd.csv" in err
    assert words in err


@pytest.mark.parametrize(("text", "column", "quick"), [
    ("a,b\n1,0.1\n2,0.30000000000000004\n", "b", True), ("a,b\n1,0.5\n2,0.25\n", "1", True),
    ("1,0.5\n2,0.25\n", "1", True), ("\ufeffa,b\n1,0.5\n", "a", True), ("a, b\n1, 0.5 \n2,\"0.25\"\n", "b", True),
    ('w,b\n"x\ny, z",0.5\n"x ""y""",1e-3\n', "b", True), ("a,b\n1,0.5\n\n2,0.25\n", "b", True),
    ("a,b\n1,True\n2,false\n", "b", None), ("a,b\n1,+0.5\n", "b", None), ("a,a\n1,0.5\n", "1", True),
    ("a;b\n1;0.5\n", "b", True), ("b\n0.5\n0.25\n", "b", True), ("a,b\r\n1,0.5\r\n2,0.75\r\n", "b", True),
])
def test_numbers_by_blocks_are_those_line_by_line(tmp_path, text, column, quick):
    """Of Arrow, where the file is plain; else `None` says that it is not."""
    pytest.importorskip("pyarrow")
    file, sign, counts = tmp_path / "t.csv", ";" if ";" in text else ",", []
    file.write_text(text, encoding="utf-8", newline="")
    with running._open(file) as lines:
        numbers, wanted = map(list, zip(*running._numbers(lines, column, sign, file), strict=True))
    found = running.numbers_of_csv(file, *running._first_line(file, column, sign), sign, counts.append)
    assert quick is None or (found is not None) == quick
    if found is not None:
        assert found.tolist() == wanted and counts[-1] == len(wanted)
    values, name_of = running._column_of(file, column, sign, lambda done: None)
    assert values.tolist() == wanted
    assert [name_of(row) for row in range(len(wanted))] == [f"line {n} of {file}, column {column!r}," for n in numbers]


@pytest.mark.parametrize("arrow", [True, False])
@pytest.mark.parametrize("text", ["0.1\n0.2\n5\n", '"0.1"\n0.2\n5\n', "a\n0.2\n5\n", '"a"\n0.2\n5\n'])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path, capsys, monkeypatch, text, arrow):
    """Neither the first number, which would be taken for a name then, nor a name."""
    if not arrow:
        monkeypatch.setattr(running, "numbers_of_csv", lambda *given: None)
    file, numbers = tmp_path / "t.csv", [float(line) for line in text.replace('"', "").split() if line != "a"]
    file.write_text("\ufeff" + text, encoding="utf-8")
    values, name_of = running._column_of(file, "a" if "a" in text else "0", ",", lambda done: None)
    assert values.tolist() == numbers
    assert name_of(len(values) - 1) == f"line 3 of {file}, column {'a' if 'a' in text else '0'!r},"
    status, out, err = say(capsys, "estimate", file, "--support", 0, 1, "--quiet")
    assert (status, out) == (2, "") and f"line 3 of {file}, column '0', is 5.0" in err
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufeff" + text))
    status, out, err = say(capsys, "estimate", "--column", "0", "--support", 0, 9, "--json", "--quiet")
    assert json.loads(out)["n_samples"] == len(numbers)


@pytest.mark.parametrize("text", ["a,b\n1,0.5\n2\n", "a,b\n1,0.5\n2,0.5,3\n", "a,b\n1,0.5\n2,\n", "a,b\n1,0.5\n2,x\n",
                                  "a,b\n1,0.5\n2,1_0\n"])
def test_what_is_wrong_with_a_line_is_said_however_the_file_is_read(tmp_path, capsys, text):
    pytest.importorskip("pyarrow")
    file = tmp_path / "t.csv"
    file.write_text(text)
    assert running.numbers_of_csv(file, 1, 2, True, ",", lambda done: None) is None
    status, out, err = say(capsys, "estimate", file, "--column", "b", "--quiet")
    assert (status, out) == (2, "") and "line 3 of" in err and err.count("\n") == 1


def test_a_number_that_does_not_fit_has_its_line(tmp_path, capsys):
    """Also where blocks of the file know nothing of lines."""
    file = tmp_path / "t.csv"
    file.write_text("a,b\n1,0.5\n\n2,7\n3,0.5\n")
    status, out, err = say(capsys, "estimate", file, "--column", "b", "--quiet")
    assert (status, out) == (2, "") and f"line 4 of {file}, column 'b', is 7.0" in err


@pytest.mark.parametrize("sign", [";", "tab", "\\t"])
def test_columns_may_be_separated_by_what_one_likes(tmp_path, capsys, table, sign):
    pd = pytest.importorskip("pandas")
    file, between = tmp_path / "t.csv", ";" if sign == ";" else "\t"
    frame = pd.DataFrame(table, columns=[*"abcd"[: table.shape[1]]])
    frame.to_csv(file, index=False, sep=between)
    plain = save(tmp_path / "plain.csv", table)
    arguments = "--support", 0, 2, "--seed", 1, "--json"
    wanted = say(capsys, "race", plain, *arguments)[1]
    status, out, _ = say(capsys, "race", file, "--delimiter", sign, *arguments)
    assert status == 0 and json.loads(out)["mean"] == json.loads(wanted)["mean"]
    status, _, err = say(capsys, "race", file, *arguments)
    assert status == 2 and f"or say --delimiter {chr(39) + sign + chr(39) if sign == ';' else 'tab'}" in err
    status, out, _ = say(capsys, "estimate", file, "--delimiter", sign, "--column", "b", "--support", 0, 2, "--quiet",
                         "--seed", 1)
    assert status == 0
    frame.assign(arm=np.where(np.arange(len(frame)) % 2, "x", "y")).to_csv(file, index=False, sep=between)
    status, out, _ = say(capsys, "compare", file, "--arm", "arm", "--reward", "a", "--delimiter", sign)
    assert status == 0 and "x" in out
    for command in ("race", "estimate"):
        status, _, err = say(capsys, command, file, "--delimiter", "::")
        assert status == 2 and "--delimiter is '::'; one character that separates columns, or tab, is needed" in err


@pytest.mark.parametrize("text", ["a;b, in s;c\n1;2;3\n2;3;4\n", "a;b;c\n1,5;2;3\n2,5;3;4\n", "a;b\n1,5;2,5\n1,5;3\n",
                                  '"a, b";b;c\n\n1;2;3\n2;3;4\n', "a;b;c;d, e\n1,5;2;3;4\n2;3;4;5\n"])
def test_commas_in_names_or_numbers_do_not_hide_what_separates_the_columns(tmp_path, capsys, monkeypatch, text):
    file = tmp_path / "t.csv"
    file.write_text(text)
    for command in (["race"], ["race", "--no-header"], ["estimate", "--column", "b"], ["estimate"],
                    ["compare", "--arm", "a", "--reward", "b"], ["estimate", "--column", "b", "--order", "given"]):
        status, out, err = say(capsys, command[0], file, *command[1:])
        assert (status, out) == (2, "") and "say --delimiter ';'\n" in err, err
    for column in "b", "1":
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        status, out, err = say(capsys, "estimate", "--column", column, "--quiet")
        assert (status, out) == (2, "") and "say --delimiter ';'\n" in err, err


def test_a_semicolon_in_names_or_words_is_allowed(tmp_path, capsys, table):
    pd = pytest.importorskip("pandas")
    file = tmp_path / "t.csv"
    frame = pd.DataFrame(table[:, :2], columns=["a; in s", "b"]).assign(arm=["u;v", "x;y"] * (len(table) // 2))
    frame.to_csv(file, index=False)
    assert say(capsys, "race", file, "--columns", "a; in s,b")[0] == 0
    assert say(capsys, "estimate", file, "--column", "b", "--support", 0, 2)[0] == 0
    assert say(capsys, "compare", file, "--arm", "arm", "--reward", "b")[0] == 0


WRITE = {
    "t.tsv": lambda frame, path: frame.to_csv(path, sep="\t", index=False),
    "t.txt": lambda frame, path: frame.to_csv(path, index=False),
    "t.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "t.TSV.gz": lambda frame, path: frame.to_csv(path, sep="\t", index=False, compression="gzip"),
    "packed.csv": lambda frame, path: frame.to_csv(path, index=False, compression="gzip"),
    "t.feather": lambda frame, path: frame.to_feather(path),
    "t.arrow": lambda frame, path: streamed(frame, path),
    "t.parquet": lambda frame, path: frame.to_parquet(path),
}


def streamed(frame, path):
    """In the form of a stream, which pandas does not read."""
    import pyarrow

    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    with pyarrow.ipc.new_stream(str(path), table.schema) as file:
        file.write_table(table)


@pytest.mark.parametrize("name", WRITE)
def test_all_commands_read_all_files(tmp_path, capsys, table, name):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(table, columns=list("abc")).assign(arm=np.where(np.arange(len(table)) % 2, "x", "y"))
    frame.to_csv(tmp_path / "plain.csv", index=False)
    WRITE[name](frame, tmp_path / name)
    assert name != "packed.csv" or (tmp_path / name).read_bytes()[:2] == b"\x1f\x8b"
    for command in (["race", "--columns", "a,b,c"], ["estimate", "--column", "b", "--quiet"],
                    ["estimate", "--column", "2", "--quiet", "--order", "given"],
                    ["compare", "--arm", "arm", "--reward", "0"]):
        more = [*command[1:], "--support", 0, 2, "--json", *(["--seed", 1] if command[0] == "race" or len(command) == 4
                                                            and command[0] == "estimate" else [])]
        wanted, found = (say(capsys, command[0], tmp_path / file, *more) for file in ("plain.csv", name))
        assert found == wanted and found[0] == 0
    status, out, err = say(capsys, "estimate", tmp_path / name, "--quiet")
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert ("choose one with --column" in err) != (name == "t.txt")


def test_numbers_of_a_compressed_file_are_estimated(tmp_path, capsys, table):
    """One per line, as from standard input."""
    import gzip

    text = "\n".join(map(repr, table[:, 0].tolist()))
    (tmp_path / "t.txt").write_text(text)
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(text.encode()))
    for more in (["--order", "given"], ["--seed", 1]):
        wanted, found = (say(capsys, "estimate", tmp_path / name, "--json", "--quiet", *more)
                         for name in ("t.txt", "t.txt.gz"))
        assert found == wanted and wanted[0] == 0


@pytest.mark.parametrize("name", ["t.csv.gz", "t.txt.gz"])
def test_a_damaged_compressed_file_is_one_line(tmp_path, capsys, name):
    import gzip

    packed = gzip.compress(b"a,b\n" + b"0.25,0.5\n" * 20_000)
    for content in (packed[:-20], packed[:40] + b"\0\0\0" + packed[43:]):
        (tmp_path / name).write_bytes(content)
        for command in (["race"], ["estimate", "--column", "b"], ["estimate", "--column", "b", "--order", "given",
                                                                  "--epsilon", 1e-9]):
            status, _, err = say(capsys, command[0], tmp_path / name, *command[1:])
            assert status == 2 and "cannot be unpacked" in err, command


def test_binary_files_are_not_unpacked(tmp_path, capsys, table):
    (tmp_path / "t.npy.gz").write_bytes(save(tmp_path / "t.npy", table).read_bytes())
    for command in ("race", "estimate"):
        status, _, err = say(capsys, command, tmp_path / "t.npy.gz")
        assert status == 2 and "as only text may be here: unpack it" in err


def test_a_first_row_of_data_is_not_lost_as_names(tmp_path, capsys):
    pytest.importorskip("pandas")
    file = tmp_path / "t.csv"
    rows = [f"{'xy'[k % 2]},{(k * k) % 7 / 8},{(k * k) % 5 / 8}" for k in range(2000)]
    file.write_text("\n".join(rows))
    named = tmp_path / "named.csv"
    named.write_text("\n".join(["arm,a,b", *rows]))
    race = "race", "--columns", "1,2", "--support", 0, 1, "--seed", 1, "--json"
    compare = "compare", "--arm", 0, "--reward", 1, "--support", 0, 1, "--json"
    for command, *more in (race, compare):
        status, out, err = say(capsys, command, file, *more)
        assert (status, out) == (2, "") and "has the number 0.0 in its first line" in err
        assert "--no-header if that line holds data, or --header if it names the columns" in err
        wanted = json.loads(say(capsys, command, named, *more)[1])
        status, out, _ = say(capsys, command, file, *more, "--no-header")
        found = json.loads(out)
        assert status == 0 and found.pop("names") == (["1", "2"] if command == "race" else ["x", "y"])
        wanted.pop("names")
        assert found == wanted
    assert json.loads(say(capsys, *compare[:1], file, *compare[1:], "--no-header")[1])["pulls"] == [1000, 1000]
    years = tmp_path / "years.csv"
    years.write_text("\n".join(["2019,2020", *("0.25,0.5" for _ in range(50))]))
    assert "starts with a row of numbers" in say(capsys, "race", years)[2]
    status, out, _ = say(capsys, "race", years, "--header", "--json")
    assert status == 0 and json.loads(out)["names"] == ["2019", "2020"]


@pytest.mark.parametrize("order", ["random", "given"])
def test_an_estimate_takes_the_first_line_as_it_is_told(tmp_path, capsys, order):
    file = tmp_path / "t.csv"
    file.write_text("0.5,1\n" + "0.5,0.25\n" * 99)

    def mean(*more):
        options = "--json", "--quiet", "--method", "nas", "--order", order, *more
        status, out, err = say(capsys, "estimate", file, *options)
        return (json.loads(out)["n_samples"], json.loads(out)["estimate"]) if status < 2 else err

    assert mean("--column", 1)[0] == mean("--column", 1, "--no-header")[0] == 100
    assert mean("--column", 1, "--header") == mean("--column", "1", "--header") == (99, 0.25)
    assert "the number of the column, from 0, is needed" in mean("--column", "b", "--no-header")
    file.write_text("0.5\n" + "0.25\n" * 99)
    assert mean()[0] == 100 and mean("--header") == (99, 0.25)
    file.write_text("x,1\n" + "y,0.25\n" * 99)          # 1 may be a name or a reward
    assert "has the number 1 in its first line" in mean("--column", 1)
    assert mean("--column", 1, "--no-header")[0] == 100 and mean("--column", 1, "--header") == (99, 0.25)
    file.write_text("x,2019\n" + "y,0.25\n" * 99)       # there is no column 2019 but by name
    assert mean("--column", 2019) == (99, 0.25)


@pytest.mark.parametrize("name", ["table.parquet", "table.feather"])
def test_decimals_are_numbers(tmp_path, capsys, name):
    pa, parquet, feather = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet", "pyarrow.feather"))
    rewards = np.random.default_rng(0).integers(0, 90_000, (800, 2)) + [0, 10_000]
    made = {arm: pa.array([Decimal(int(k)).scaleb(-5) for k in rewards[:, j]], pa.decimal128(12, 5))
            for j, arm in enumerate("ab")}
    made["arm"] = pa.array([Decimal("1.10"), None, Decimal("2.00"), Decimal("2.00")] * 200, pa.decimal128(4, 2))
    file, plain = tmp_path / name, save(tmp_path / "plain.parquet", rewards / 1e5, "ab")
    write = {"table.parquet": parquet.write_table, "table.feather": feather.write_feather}[name]
    write(pa.table(made), file)
    arguments = "--support", 0, 1, "--seed", 1, "--json"
    for command in (["race", "--columns", "a,b"], ["estimate", "--column", "b"]):
        (status, out, _), wanted = (say(capsys, command[0], held, *command[1:], *arguments) for held in (file, plain))
        assert status == 0 and json.loads(out) == json.loads(wanted[1])
    status, _, err = say(capsys, "race", file, *arguments)
    assert status == 2 and "has no number in row 1, counted from 0, of column 'arm'" in err
    status, _, err = say(capsys, "compare", file, "--arm", "arm", "--reward", "a", "--support", 0, 1)
    assert status == 2 and "column 'arm' has 200 missing entries" in err
    huge = pa.table({"a": pa.array([Decimal(2**53 + 1)] * 9, pa.decimal128(20, 0)), "b": pa.array([1.0] * 9)})
    write(huge, tmp_path / f"huge{file.suffix}")
    status, _, err = say(capsys, "race", tmp_path / f"huge{file.suffix}")
    assert status == 2 and "column 'a' holds Decimal('9007199254740993'), which no float64 holds" in err


@pytest.mark.parametrize("between", [" ", "   "])
def test_spaces_between_columns_are_hinted_at(tmp_path, capsys, between):
    file = tmp_path / "t.txt"
    file.write_text("\n".join(map(between.join, [["old", "new"], *[["0.1", "0.9"], ["0.2", "0.8"]] * 100])))
    status, _, err = say(capsys, "race", file, "--support", 0, 1)
    one = ", with one space between two columns" if len(between) > 1 else ""
    assert status == 2 and err.endswith(f"commas must separate the columns, or say --delimiter ' '{one}\n")
    status, _, err = say(capsys, "estimate", file, "--support", 0, 1)
    assert status == 2 and "choose a column with --column, and say --delimiter ' ' if spaces separate them" in err
    if not one:
        assert say(capsys, "race", file, "--support", 0, 1, "--delimiter", " ")[0] == 0
        assert say(capsys, "estimate", file, "--support", 0, 1, "--delimiter", " ", "--column", "new")[0] == 0
    file.write_text("the answer\nyes please\nno thanks\n")        # words, which no spaces separate
    status, _, err = say(capsys, "race", file, "--support", 0, 1)
    assert status == 2 and "columns that are not numbers: the answer" in err
