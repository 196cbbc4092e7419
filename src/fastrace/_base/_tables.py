"""Tables in files, for the command: npy, text such as csv, also compressed, and what Arrow writes."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import re
import shlex
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from fastrace._base import _checks, _frames
from fastrace._base._words import one_line

TEXTS = (".csv", ".tsv", ".tab", ".txt")
FRAMES = (".parquet", ".feather", ".arrow", ".ipc")
TRUTHS = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}       # as pandas reads them
NEEDED = ".npy, .csv, .tsv, .txt (also with .gz), .parquet, .feather or .arrow"
OTHERS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}      # signs between columns, as the command takes them
BLOCK = 1 << 22             # bytes of a csv file that are read at a time
MAGIC = b"\x93NUMPY"        # of an npy file
GZIP = b"\x1f\x8b"          # what a compressed file begins with


def kind_of(path: Path) -> str:
    """The suffix that says what a file holds, without that of compressed ones."""
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return name.suffix.lower()


def is_text(path: Path) -> bool:
    """Whether a file holds lines."""
    return kind_of(path) not in (".npy", *FRAMES)


def delimiter_of(path: Path | None) -> str:
    """What separates the columns of a text file, unless the user says what does."""
    return "\t" if path is not None and kind_of(path) in (".tsv", ".tab") else ","


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Any]:
    """The bytes of a file, unpacked where it is compressed."""
    with path.open("rb") as file:
        try:
            yield gzip.GzipFile(fileobj=file) if file.peek(len(GZIP)).startswith(GZIP) else file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} cannot be unpacked: {one_line(error)}") from error


@contextlib.contextmanager
def text_of(path: Path, encoding: str = "utf-8", errors: str = "strict") -> Iterator[io.TextIOWrapper]:
    """The text of a file, unpacked where it is compressed, its ends of lines as they are."""
    with unpacked(path) as file, io.TextIOWrapper(file, encoding, errors, newline="") as text:
        yield text


def numbers_of_csv(
    path: Path, place: int, n_columns: int, header: bool, delimiter: str, show: Callable[[int], None]
) -> np.ndarray[Any, Any] | None:
    """The numbers of one column of a csv file, as Arrow reads them; None without Arrow, or where a line stops it.

    The caller then reads the file line by line, and accepts such a line or says what is wrong with it. `show` gets the
    number of rows read so far.
    """
    try:
        from pyarrow import ArrowInvalid, csv, float64
    except ImportError:
        return None
    names = [str(number) for number in range(n_columns)]
    blocks, count, decoder = [], 0, codecs.getincrementaldecoder("utf-8")()
    try:
        with unpacked(path) as file:            # bytes that are no text may stand in other columns
            while part := file.read(BLOCK):
                decoder.decode(part)
            decoder.decode(b"", True)
        with unpacked(path) as file, csv.open_csv(
            file, read_options=csv.ReadOptions(column_names=names, skip_rows=int(header), block_size=BLOCK),
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(include_columns=[names[place]], null_values=[],
                                               column_types={names[place]: float64()}),
        ) as reader:
            for batch in reader:
                blocks.append(batch.column(0).to_numpy(zero_copy_only=False))
                count += len(blocks[-1])
                show(count)
    except (ArrowInvalid, UnicodeError):
        return None
    return np.concatenate(blocks) if blocks else np.zeros(0)


def load_table(
    path: Path, columns: str | None = None, gaps: str = "", delimiter: str = ",", header: bool | None = None
) -> tuple[Any, list[str]]:
    """The table in a file and the names of its columns: an npy file memory-mapped, others a frame of numbers only.

    Cells may be empty if `gaps` is "allowed"; else it is what to say besides where one is.
    `columns` names the columns to use, separated by commas. A column that looks like an index is refused unless it is
    named there: its running numbers would win any race.
    """
    table = load(path, delimiter, header=header)
    if table.ndim != 2:
        raise ValueError(f"{path} holds an array of shape {table.shape}; a table, rows x arms, is needed")
    names = [str(name) for name in getattr(table, "columns", range(table.shape[1]))]
    chosen = list(range(len(names))) if columns is None else places(columns, names, path)
    _refuse_twins(path, [names[place] for place in chosen])
    if columns is not None:
        if isinstance(table, np.ndarray):
            return table[:, chosen], [names[place] for place in chosen]
        table = table.iloc[:, chosen]
    elif isinstance(table, np.ndarray):
        _refuse_index(path, names, [table[:_frames.RUNNING, place] for place in range(table.shape[1])])
        return table, names
    import pandas as pd

    words = [str(name) for name, kind in table.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
    if words:
        column = table.iloc[:, [str(name) for name in table.columns].index(words[0])]
        bad = (pd.to_numeric(column, errors="coerce").isna() & column.notna()).to_numpy()
        row = int(bad.argmax())
        others = [place for k, place in enumerate(chosen) if names[place] not in words and not _frames.index_like(
            names[place], table.iloc[:_frames.RUNNING, k].to_numpy())]
        held = f" (its row {row}, counted from 0, holds {column.iloc[row]!r})" if bad.any() else ""
        raise ValueError(
            f"{path} has columns that are not numbers: {some(words)}{held}; "
            + (f"choose others with --columns, such as {_asked_for(others, names)}" if others else
               "there are no others")
        )
    if columns is None:
        _refuse_index(path, names, [table.iloc[:_frames.RUNNING, place].to_numpy() for place in range(table.shape[1])])
    missing = table.isna().to_numpy()
    if missing.any() and gaps == "allowed":
        table = table.astype(np.float64)        # types of pandas that know of missing values say so otherwise
    elif missing.any():
        row, place = (int(k[0]) for k in np.nonzero(missing))
        raise ValueError(
            f"{path} has no number in row {row}, counted from 0, of column {table.columns[place]!r}; fill or drop such "
            f"rows, or leave the column out with --columns{gaps}"
        )
    return table, [str(name) for name in table.columns]


def load(
    path: Path, delimiter: str = ",", column: str | None = None, texts: Collection[str] = (),
    header: bool | None = None,
) -> Any:
    """What a file holds, whatever its shape; of a file of Arrow the `column`, if it has one of that name.

    `texts` are columns of labels, by name or number: those of a csv file stay text, since 1.1 and 1.10 are two labels,
    and NA is one.
    `header` says whether its first line names the columns; None, that it does unless a number stands there.
    """
    suffix = kind_of(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a file ending in {NEEDED} is needed")
    if suffix not in (".npy", *TEXTS, *FRAMES):
        raise ValueError(f"{path} ends in {suffix or 'nothing'!r}; {NEEDED} is needed")
    if not is_text(path) and path.suffix.lower() == ".gz":
        raise ValueError(f"{path} is compressed, as only text may be here: unpack it")
    if suffix == ".npy":
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError(f"{path} cannot be read as an npy file: it is no array as numpy.save writes them")
        try:
            table = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, TypeError, OverflowError, EOFError) as error:
            raise ValueError(f"{path} cannot be read as an npy file: {one_line(error)}") from error
        if table.ndim not in (1, 2) or table.dtype.kind not in "fiub":
            raise ValueError(
                f"{path} holds an array of shape {table.shape} and dtype {table.dtype}; a table of numbers, rows x "
                f"arms, is needed"
            )
        return table
    if suffix in TEXTS:
        refuse_other_sign(path, delimiter)
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(f"{suffix} files need pandas: python -m pip install pandas pyarrow") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            if suffix in TEXTS:
                spelled: Any = {"sep": delimiter, "index_col": False, "header": None if header is False else "infer"}
                kept = _kept(texts, path, delimiter, header)
                with unpacked(path) as file:
                    frame = pd.read_csv(file, converters=dict.fromkeys(kept, _marked), **spelled)
                for place in kept:
                    frame.isetitem(place, frame.iloc[:, place].str[1:].replace("", np.nan))
            elif suffix == ".parquet":
                frame = pd.read_parquet(path, columns=_of_parquet(path, column))
            else:
                frame = _of_arrow(path, column)
            if suffix in FRAMES:
                _read_decimals(frame, texts)
    except pd.errors.ParserWarning as error:        # without index_col, pandas would take the first cells for an index
        raise ValueError(
            f"{path} has more cells in its rows than columns in its header, so that names and numbers do not match: "
            f"name every column in the first line"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8: save it as UTF-8, or unpack it") from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a table: {one_line(error)}") from error
    if suffix in TEXTS and header is False:
        frame.columns = [str(name) for name in frame.columns]
    elif suffix in TEXTS:
        frame.columns = _header(path, [str(name) for name in frame.columns], delimiter)
        first = str(frame.columns[0])
        other = next((sign for sign in OTHERS if sign in first), " " if _in_words(first, frame) else "")
        if frame.shape[1] == 1 and other in first and other not in ("", delimiter) and (len(frame) or other == " "):
            say = OTHERS.get(other, "' '" + " --no-header" * all(map(spells_number, first.split())))
            if "  " in " ".join([first, *map(str, frame.iloc[:1, 0])]):
                say += ", with one space between two columns"
            raise ValueError(f"{path} has one column, named {first!r}; "
                             f"{'commas' if delimiter == ',' else repr(delimiter)} must separate the columns, or say "
                             f"--delimiter {say}")
        _refuse_numbers(path, list(frame.columns), header)
    if not len(frame):
        raise ValueError(f"{path} has no rows under its header")
    return frame


def sign_hint(text: str, delimiter: str) -> str:
    """What to say besides of a text that holds another sign than the one between columns; nothing if it holds none."""
    word = next((word for sign, word in OTHERS.items() if sign in text and sign not in (",", delimiter)), None)
    return "" if word is None else f"; if {word} separates the columns, say --delimiter {word}"


def refuse_other_sign(path: Path, delimiter: str) -> None:
    """Refuse a text file whose first two lines show that something else than commas separates its columns.

    They hold a sign equally often, and commas less often, as in names, or not equally often, as in decimal commas.
    """
    if delimiter != ",":
        return
    with text_of(path, "utf-8-sig", "surrogateescape") as lines:
        two = list(itertools.islice((re.sub('"[^"]*"', "", line) for line in lines if line.strip()), 2))
    if len(two) < 2:
        return
    commas = [line.count(",") for line in two]
    for sign, word in OTHERS.items():
        held = two[0].count(sign)
        if sign != "," and 0 < held == two[1].count(sign) and (commas[0] != commas[1] or held > commas[0]):
            raise ValueError(f"{path} has {held} {word} in each of its first two lines, as if that separated the "
                             f"columns; commas must separate them, or say --delimiter {word}")


def _in_words(first: str, frame: Any) -> bool:
    """Whether spaces seem to separate columns: numbers stand in the first line, or as many words as in the second."""
    words = first.split()
    second = str(frame.iloc[0, 0]).split() if len(frame) else []
    return all(map(spells_number, words)) or len(words) == len(second) > 1 and any(map(spells_number, second))


def places(columns: str, names: list[str], path: Path) -> list[int]:
    """Where the columns of a list separated by commas are: by name first, then by number from 0."""
    found = []
    for word in [columns] if columns in names else [part.strip() for part in columns.split(",")]:
        if names.count(word) > 1:
            raise ValueError(twice(str(path), word, names.count(word)))
        if word in names:
            found.append(names.index(word))
        elif word.isdecimal() and int(word) < len(names):
            found.append(int(word))
        else:
            raise ValueError(f"{path} has no column {word!r}; there are {some(names)}")
    if len(set(found)) < len(found):
        raise ValueError(f"{columns!r} names a column twice; each can be used once")
    return found


def _kept(texts: Collection[str], path: Path, delimiter: str, header: bool | None) -> list[int]:
    """Numbers of the columns of a csv file that stay text; none if one is not there, which is refused afterwards."""
    if not texts:
        return []
    names = [str(place) if header is False else name.strip() or f"Unnamed: {place}"
             for place, name in enumerate(_first_row(path, delimiter))]
    with contextlib.suppress(ValueError):
        return [places(text, names, path)[0] for text in texts]
    return []


def _marked(cell: str) -> str:
    """A label behind a mark, so that pandas does not take NA, null and the like for missing."""
    return "=" + cell.strip()


def twice(where: str, name: str, count: int) -> str:
    """What to say of a name that several columns have."""
    return f"{where} has {count} columns named {name!r}; choose columns by number, or give each a name of its own"


def data_or_names(where: str, number: str, alone: bool = False) -> str:
    """What to say of a first line that may be either, for a `number` in it; `alone`, where it holds nothing else."""
    holds = "starts with a row of numbers" if alone else f"has the number {number} in its first line"
    return (f"{where} {holds}, where names of the columns are expected: say --no-header if that line holds data, or "
            f"--header if it names the columns")


def _refuse_numbers(path: Path, names: list[str], header: bool | None) -> None:
    """Refuse a first line with numbers among its names, which may be a row of data, unless it is said to be a header.
    """
    numbers = [] if header else [name for name in names if spells_number(name)]
    if not numbers:
        return
    raise ValueError(data_or_names(str(path), numbers[0], len(numbers) == len(names)))


def _of_arrow(path: Path, column: str | None) -> Any:
    """The frame in a file of Arrow, in either of its forms."""
    try:
        from pyarrow import ArrowInvalid, ipc, memory_map
    except ImportError as error:
        raise ImportError(f"{path.suffix} files need pyarrow: python -m pip install pyarrow") from error
    with memory_map(str(path)) as source:
        try:
            table = ipc.open_file(source).read_all()
        except ArrowInvalid:
            source.seek(0)
            table = ipc.open_stream(source).read_all()
        one = column is not None and table.column_names.count(column) == 1
        return (table.select([column]) if one else table).to_pandas()


def _read_decimals(frame: Any, texts: Collection[str]) -> None:
    """Make numbers of columns of decimals, as pandas makes objects of them; those of labels stay as they are."""
    for place, name in enumerate(map(str, frame.columns)):
        column = frame.iloc[:, place]
        if column.dtype == object and name not in texts and str(place) not in texts:
            held = column.dropna()
            if len(held) and all(isinstance(value, Decimal) for value in held):
                frame.isetitem(place, _checks.numbers_of(column, f"column {name!r}"))


def _of_parquet(path: Path, column: str | None) -> list[str] | None:
    """The one column to read of a parquet file, or None for all: they go by number, or by names that are not there."""
    if column is None:
        return None
    try:
        from pyarrow import parquet
    except ImportError:         # pandas reads it some other way
        return None
    names = parquet.read_schema(path).names
    return [column] if names.count(column) == 1 else None


def _header(path: Path, named: list[str], delimiter: str) -> list[str]:
    """The names of the columns of a csv file as they stand in it: pandas renames the second of two that are equal."""
    written = _first_row(path, delimiter)
    pairs = zip(written if len(written) == len(named) else named, named, strict=True)
    return [name.strip() or other.strip() for name, other in pairs]


def _first_row(path: Path, delimiter: str) -> list[str]:
    """The cells of the first line of a csv file that is not empty."""
    with text_of(path, "utf-8-sig") as lines:
        return next((row for row in csv.reader(lines, delimiter=delimiter) if any(row)), [])


def _refuse_twins(path: Path, names: list[str]) -> None:
    """Refuse arms that an answer could not tell apart."""
    double = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if double is not None:
        raise ValueError(twice(str(path), double, names.count(double)))


def _refuse_index(path: Path, names: list[str], heads: list[Any]) -> None:
    """Refuse a column that looks like an index."""
    for name, head in zip(names, heads, strict=True):
        why = _frames.index_like(name, head)
        if not why or len(names) < 2:
            continue
        others = [place for place, other in enumerate(names) if other != name]
        others = [place for place in others if not _frames.index_like(names[place], heads[place])] or others
        raise ValueError(f"column {name!r} of {path} {why}, and is probably not an arm: choose the columns with "
                         f"--columns, such as {_asked_for(others, names)}")


def _asked_for(chosen: list[int], names: list[str]) -> str:
    """How to ask a shell for these columns, or for the last of too many: by number where a name would be misread."""
    words = [names[place] if names.count(names[place]) == 1 and "," not in names[place] and names[place].isprintable()
             and names[place] == " ".join(names[place].split()) != "" else str(place) for place in chosen]
    said = ",".join(words)
    said = shlex.quote(said if len(said) <= 60 else words[-1])
    return f"--columns={said}" if said.startswith(("-", "'-")) else f"--columns {said}"


def some(names: list[str]) -> str:
    """The first names of a list."""
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def spells_number(name: Any) -> bool:
    """Whether the text of a name is a number, by `number_in`."""
    try:
        number_in(str(name))
    except ValueError:
        return False
    return True


def number_in(text: str) -> float:
    """The number that a text is, True being 1 and False 0; a ValueError if it is none."""
    spelled = TRUTHS.get(text.strip())
    return float(text) if spelled is None else spelled
