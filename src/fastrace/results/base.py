"""What every answer can do: print as a short table, show it in a notebook, export it, and draw itself."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace._base._words import counted, number, short

MOST_ROWS = 10          # of a printed table
MOST_DRAWN = 30         # arms of a panel


class Table(NamedTuple):
    """Cells as they are printed. A row that is one string stands alone, such as "... 3 more arms"."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str] | str]


class Column(NamedTuple):
    """A column of a printed table: its head, a value per row, how a value is written, and the least width."""

    head: str
    values: Any
    spec: str = ".5g"
    width: int = 12

    def cell(self, row: int) -> str:
        """The value of one row, "-" where there is none."""
        value = self.values[row]
        return f"{value if isinstance(value, str) else number(value, self.spec):>{self.width}}"


class Result:
    """Base of all answers.

    An answer is a frozen dataclass. It prints as a short table, shows the same table in a notebook, and has the methods
    below. Its fields are documented in its own class. Two answers of one class are equal if all their fields are,
    arrays entry by entry; nan equals nan here, so that an answer equals its pickled copy. A race to go on with, which
    some answers have, is no part of the answer: neither `to_dict` nor a comparison sees it.
    """

    __slots__ = ()
    _derived: ClassVar[tuple[str, ...]] = ()        # properties that `to_dict` adds to the fields
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values that ``json.dumps`` accepts.

        Returns
        -------
        dict
            Every field by its name, and what follows from them: `n_read` of answers about several arms,
            `fraction_read` of a decision, `stopped` of a mean. Arrays and tuples are lists, NumPy numbers are Python
            numbers. JSON has no nan and no infinity: both are None. So are the names of arms that have none;
            `to_frame` numbers such arms from 0.
        """
        return {name: plain(getattr(self, name)) for name in (*parts(self), *self._derived)}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(same(getattr(self, name), getattr(other, name)) for name in parts(self))

    def __hash__(self) -> int:
        return hash((type(self), getattr(self, "stopped_by", "")))     # equal answers ended alike

    def to_frame(self) -> Any:
        """Return a table with one row per arm; answers about a single quantity have one row.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            Of pandas where it is installed, of polars otherwise.

        Raises
        ------
        ImportError
            If neither is installed.
        """
        columns = self._columns()
        try:
            import pandas
        except ImportError:
            pass
        else:
            return pandas.DataFrame(columns)
        try:
            import polars
        except ImportError as error:
            raise ImportError("to_frame needs pandas or polars: python -m pip install pandas") from error
        return polars.DataFrame(columns)

    def plot(self, what: str = "all", ax: Any = None) -> Any:
        """Draw the answer.

        Parameters
        ----------
        what : str, default "all"
            One panel by its name, or all of them. Answers about arms have "means" (each mean with its interval) and
            "pulls" (what was read of each arm); a selection that keeps a trace has "trace" as well. Each arm has a line
            of its own, of the same colour in each panel, the best on top. Of more than 30 arms the first 30 are drawn,
            and the axis says how many are left out.
        ax : matplotlib Axes, or sequence of them for "all", optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes, or list of them for "all"
            What was drawn on, one per panel.

        Raises
        ------
        ValueError
            If there is no panel of this name.
        ImportError
            If Matplotlib is not installed.
        """
        return draw(self._panels(), what, ax, self._panel_hint(what), self._height())

    def __str__(self) -> str:
        table = self._table()
        heads = ["  ".join(table.heads)] if table.heads else []
        rows = [row if isinstance(row, str) else "  ".join(row) for row in table.rows]
        return "\n".join([self._title(), *heads, *rows, *self._notes()])

    def _repr_html_(self) -> str:
        table = self._table()
        heads = "".join(f"<th>{html.escape(text.strip())}</th>" for text in table.heads)
        rows = []
        for row in table.rows:
            if isinstance(row, str):
                rows.append(f'<tr><td colspan="{len(table.heads) or 1}">{html.escape(row.strip())}</td></tr>')
            else:
                first, *others = (html.escape(" ".join(text.split())) for text in row)
                rows.append(f"<tr><th>{first}</th>{''.join(f'<td>{text}</td>' for text in others)}</tr>")
        body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        notes = "".join(f"<p>{html.escape(text.strip())}</p>" for text in self._notes())
        return f"<p>{html.escape(self._title())}</p>{body}{notes}"

    # What an answer says of itself.

    def _title(self) -> str:
        """The first line of the printed answer."""
        raise NotImplementedError

    def _table(self) -> Table:
        """The lines under the title."""
        return Table((), ())

    def _notes(self) -> list[str]:
        """The lines under the table."""
        return [f"warning: {text}" for text in getattr(self, "warnings", ())]

    def _columns(self) -> dict[str, Any]:
        """The columns of `to_frame`: here one row, a pair of numbers as two columns."""
        found: dict[str, Any] = {}
        for part in dataclasses.fields(self):
            value = getattr(self, part.name)
            if part.name == "interval":
                found |= {"lower": [value[0]], "upper": [value[1]]}
            elif isinstance(value, (bool, int, float, str)):
                found[part.name] = [value]
        return found

    def _panels(self) -> Mapping[str, Callable[[Any], None]]:
        """The panels of `plot`: functions that draw on axes, by name."""
        raise NotImplementedError

    def _height(self) -> float:
        """Height of a panel in inches."""
        return 2.8

    def _panel_hint(self, what: str) -> str:
        """Why there is no panel of this name, for the end of an error."""
        return ""


class ArmsResult(Result):
    """Base of answers about several arms."""

    __slots__ = ()
    best: Any
    names: tuple[str, ...] | None

    _derived: ClassVar[tuple[str, ...]] = ("n_read",)
    _noun: ClassVar[str] = "arm"
    _per_arm: ClassVar[tuple[str, ...]] = ("mean", "lower", "upper", "pulls")   # fields of shape (n_arms,) to export
    _out_label: ClassVar[str] = "left the race"
    _first: ClassVar[str] = "largest mean"
    _value: ClassVar[str] = "mean"          # what arms are ranked by
    _mean_label: ClassVar[str] = "mean reward and interval"
    _read: ClassVar[str] = "pulls"          # what was read of each arm

    @property
    def n_read(self) -> int:
        """Rewards read, of all arms together."""
        return int(getattr(self, self._read).sum())

    def _name(self, arm: int) -> str:
        return str(arm) if self.names is None else self.names[arm]

    def _leader(self) -> str:
        """Who is the best, in words; nobody is before the first reward."""
        if not self.n_read and not getattr(self, "stopped_by", ""):
            return "no reward yet"
        return f"best {'arms' if np.size(self.best) > 1 else 'arm'} {self._named(self.best)}"

    def _named(self, arms: Any) -> str:
        """The names of some arms in words, the first ten of them."""
        arms = np.atleast_1d(arms)
        return ", ".join(self._name(int(arm)) for arm in arms[:10])

    def _chosen(self) -> NDArray[np.bool_]:
        """Whether each arm is among the best."""
        return np.isin(np.arange(self._size()), np.atleast_1d(self.best))

    def _kept(self) -> NDArray[np.bool_]:
        """Whether each arm is still in the race."""
        active = getattr(self, "active", None)
        return np.ones(self._size(), bool) if active is None else np.isin(np.arange(self._size()), active)

    def _size(self) -> int:
        return int(getattr(self, self._value).size)

    def _order(self) -> NDArray[np.intp]:
        """Arms as they are printed and drawn: the largest value first, arms without a value last."""
        value = getattr(self, self._value)
        return np.argsort(np.where(np.isnan(value), np.inf, -value), kind="stable")

    def _listed(self) -> list[int | str]:
        """The arms in the printed table, and lines for those left out."""
        order = self._order()
        shown: list[int | str] = [int(arm) for arm in order[: n_shown(order.size)]]
        rest = order.size - len(shown)
        return [*shown, f"  ... {counted(rest, f'more {self._noun}')}"] if rest else shown

    def _mark(self, arm: int) -> str:
        return "*" if arm in np.atleast_1d(self.best) else " "

    def _printed(self) -> list[Column]:
        """The columns of the printed table after the arm's name."""
        of: Any = self
        return [Column("mean", of.mean), Column("lower", of.lower), Column("upper", of.upper),
                Column("pulls", of.pulls, "d", 10)]

    def _table(self) -> Table:
        listed = self._listed()
        columns = self._printed()
        names = {arm: short(self._name(arm)) for arm in listed if isinstance(arm, int)}
        width = max(len(self._noun), *map(len, names.values()))
        rows = [arm if isinstance(arm, str) else
                [f"{self._mark(arm)} {names[arm]:>{width}}", *(column.cell(arm) for column in columns)]
                for arm in listed]
        return Table([f"  {self._noun:>{width}}", *(f"{column.head:>{column.width}}" for column in columns)], rows)

    def _columns(self) -> dict[str, Any]:
        names = range(self._size()) if self.names is None else self.names
        sets = {"best": self._chosen()} | ({"active": self._kept()} if hasattr(self, "active") else {})
        return {self._noun: list(names), **sets, **{name: getattr(self, name) for name in self._per_arm}}

    def _panels(self) -> Mapping[str, Callable[[Any], None]]:
        return {"means": self._draw_means, self._read: self._draw_read}

    def _interval(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper end of what is drawn around each mean."""
        return self.lower, self.upper       # type: ignore[attr-defined]

    def _drawn(self) -> NDArray[np.intp]:
        """The arms that are drawn, from the top."""
        return self._order()[:MOST_DRAWN]

    def _height(self) -> float:
        return max(2.8, 1.2 + 0.22 * self._drawn().size)

    def _groups(self) -> list[tuple[NDArray[np.bool_], str, str, int]]:
        """Which lines hold arms that left, arms that are left, and the best: with colour, label and layer."""
        order = self._drawn()
        best, kept = self._chosen()[order], self._kept()[order]
        groups = [(~kept & ~best, "0.6", self._out_label, 2), (kept & ~best, "C0", "still in the race", 2),
                  (best, "C1", "best", 3)]
        return [group for group in groups if group[0].any()]

    def _draw_means(self, ax: Any) -> None:
        order, value = self._drawn(), getattr(self, self._value)
        lower, upper = self._interval()
        for group, colour, label, layer in self._groups():
            arms = order[group]
            error = np.maximum([value[arms] - lower[arms], upper[arms] - value[arms]], 0.0)
            ax.errorbar(value[arms], np.flatnonzero(group), xerr=np.where(np.isfinite(error), error, 0.0), fmt="o",
                        color=colour, capsize=2, label=label, zorder=layer)
        self._finish(ax, self._mean_label)

    def _draw_read(self, ax: Any) -> None:
        order, read = self._drawn(), getattr(self, self._read)
        for group, colour, label, layer in self._groups():
            ax.barh(np.flatnonzero(group), read[order[group]], height=0.9, color=colour, label=label, zorder=layer)
        self._finish(ax, self._read)

    def _finish(self, ax: Any, label: str) -> None:
        order = self._drawn()
        line = 72.0 * ax.get_window_extent().height / ax.figure.dpi / order.size       # points
        ax.set_yticks(np.arange(order.size), [short(self._name(int(arm)), 30) for arm in order],
                      fontsize=min(10.0, 0.8 * line))
        rest = self._size() - order.size
        left_out = f"\n{counted(rest, f'more {self._noun}')} not drawn" if rest else ""
        ax.set(xlabel=label, ylabel=f"{self._noun}, {self._first} first{left_out}", ylim=(order.size - 0.4, -0.6))
        ax.legend()


class ComparedResult(ArmsResult):
    """Base of answers that compare all arms with the first of the best."""

    __slots__ = ()
    mean: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    stopped_by: str
    epsilon: float
    differences: NDArray[np.float64] | None
    cost: float | None
    n_unused: int
    n_failed: int

    _derived: ClassVar[tuple[str, ...]] = (*ArmsResult._derived, "verdict")

    @property
    def verdict(self) -> tuple[str, ...]:
        """What is known of each arm, in a word or two.

        "better", "worse", "equivalent", "good enough", "not better", "not known yet" or "no rival".

        An arm is worse if it left the race, or, of answers that have no arms in a race, if by `differences` it is worse
        than all of `best`. It is equivalent if its interval in `differences` lies within `epsilon`, or if every row was
        read and its mean is exactly that of the last of `best`. One of `best` is better if all other arms are worse, or
        tie with a smaller mean, and equivalent if all of those are worse or equivalent. If the run stopped because no
        arm can be better by `epsilon` or more, `best` are at least good enough, and the other arms at most not better:
        by `epsilon` or more. What a stop decided may be wrong with probability `delta`, and so may `differences`.
        Where all arms were asked for (``stopped_by`` is "single"), none has a rival, whatever is known of their means.
        """
        best, epsilon = np.atleast_1d(self.best), self.epsilon
        size = self.mean.size
        others = np.ones(size, bool)
        others[best] = False
        if not others.any():
            return ("no rival",) * size
        decided = self._decided()
        worse = others.copy() if decided == "best" else self._beaten()
        near = np.zeros(size, bool)
        last = self.mean[best].min()
        tied = np.zeros(size, bool)
        if self.stopped_by == "exact":
            tied = (self.lower == self.upper) & (self.mean == last) & worse
            worse &= ~tied
        if self.differences is not None and epsilon > 0.0:
            near = (self.differences[:, 0] >= -epsilon) & (self.differences[:, 1] <= epsilon) & ~worse
        near |= tied
        unknown = "not better" if decided == "epsilon" else "not known yet"
        found = np.where(worse, "worse", np.where(near, "equivalent", unknown)).astype(object)
        if worse[others].all():
            found[best] = "better"
        elif (worse | near)[others].all():
            found[best] = "equivalent"
        else:
            found[best] = "good enough" if decided == "epsilon" else "not known yet"
        if not worse[others].all() and epsilon == 0.0 and tied.any():
            found[best[self.mean[best] > last]] = "better"
        return tuple(found.tolist())

    def _decided(self) -> str:
        """What the stop decided: "best", "epsilon" (`best` are within epsilon of it), or nothing yet."""
        return "best" if self.stopped_by in ("bound", "exact") else "epsilon" if self.stopped_by == "epsilon" else ""

    def _payments(self) -> list[str]:
        """What all rewards cost, and which of them were paid for in vain, in words."""
        said = [] if self.cost is None else [f"  cost {self.cost:g}"]
        if self.n_unused:
            said.append(f"  {counted(self.n_unused, 'reward', ',')} asked for ahead and not used")
        if self.n_failed:
            said.append(f"  {counted(self.n_failed, 'call', ',')} failed, and had to be paid for all the same")
        return said

    def _beaten(self) -> NDArray[np.bool_]:
        """Whether each arm is known to be worse than all of `best`."""
        return ~self._kept()

    def _columns(self) -> dict[str, Any]:
        found = super()._columns()
        if self.differences is not None:
            found |= {"difference_lower": self.differences[:, 0], "difference_upper": self.differences[:, 1]}
        return found | {"verdict": list(self.verdict)}


def n_shown(n: int, most: int = MOST_ROWS) -> int:
    """How many of n lines to print: `most`, or one more rather than a line that says that one is left out."""
    return n if n <= most + 1 else most


def same(a: Any, b: Any) -> bool:
    """Whether two fields of answers are equal: arrays and tuples entry by entry, nan to nan."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if type(a) is not type(b) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a is b or bool(a == b) or (isinstance(a, float) and isinstance(b, float) and a != a and b != b)


def parts(answer: Any) -> list[str]:
    """The fields that are part of an answer, or of another dataclass."""
    return [part.name for part in dataclasses.fields(answer) if part.compare]


def plain(value: Any) -> Any:
    """The same for JSON: arrays and tuples as lists, dataclasses and named tuples as dicts, nan as None."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in parts(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def draw(
    panels: Mapping[str, Callable[[Any], None]], what: str, ax: Any, hint: str = "", height: float = 2.8
) -> Any:
    """Draw one panel by its name, or all of them; see `Result.plot`."""
    if what == "all":
        given = _new_panels(len(panels), height) if ax is None else np.atleast_1d(np.asarray(ax, dtype=object))
        for paint, panel in zip(panels.values(), given, strict=False):
            paint(panel)
        return list(given)
    if what not in panels:
        raise ValueError(f"what is {what!r}; one of all, {', '.join(panels)} is needed{hint}")
    panel = _new_panels(1, max(4.8, height))[0] if ax is None else ax
    panels[what](panel)
    return panel


def _new_panels(count: int, height: float) -> list[Any]:
    """Axes under one another in a new figure, each of this height in inches."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: python -m pip install matplotlib") from error
    figure = plt.figure(layout="tight", figsize=(9.0 if count > 1 else 6.4, height * count))
    return [figure.add_subplot(count, 1, k + 1) for k in range(count)]
