"""What a formula makes of a frame: the outcome, tables of terms, offsets and grouping factors; needs formulae.

`designed` reads the rows of a model, and `NewRows` those to predict, as the first have set levels, knots and the like.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import io
import pickle
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace._models.grouping import Groups

__all__ = ["INTERCEPT", "Design", "NewRows", "Term", "designed"]

Array = NDArray[np.float64]
Scope = tuple[Mapping[str, Any], ...]  # where functions are looked up, the first first

# bambi has the functions in its formulas too, but for those of `np`
_FUNCTIONS = {"np": np, **{name: getattr(np, name) for name in ("log", "log2", "log10", "exp", "exp2", "abs")}}
_OUTCOMES = {  # what bambi has around outcomes, and what to do here
    "weighted": "leave it out, and give the whole numbers of times that rows count as weights=",
    "censored": "no model of outcomes that were cut off is to be had",
    "truncated": "no model of outcomes of which some were left out is to be had",
    "constrained": "no model of outcomes within bounds is to be had",
    "c": "a model has one outcome: write a formula for each",
}
_SMOOTH = "a spline such as bs(x, df=5) is the nearest to be had, or a GLM of basis functions of your own"
INTERCEPT = "Intercept"  # what formulae calls the constant
_ALONE, _ROUNDING = 8, 1e-9  # rows that are read alone, and by how much of the largest value they may differ
_LONGEST = 20  # columns that a message names


@dataclass(frozen=True)
class Term:
    """Columns of one term, with their names."""

    name: str
    labels: tuple[str, ...]
    table: Array  # of shape (n_rows, len(labels))
    intercept: bool = False
    interaction: bool = False
    categoric: bool = False  # words alone: every component is a category


@dataclass(frozen=True)
class Design:
    """Rows of a model: `trials` is None unless the outcome is successes out of trials, and `offset` without offsets.

    With `levels`, of an outcome in words, `y` holds their numbers.
    """

    outcome: str
    y: Array
    trials: Array | None
    terms: tuple[Term, ...]
    offset: Array | None
    groups: tuple[Groups, ...]
    effects: tuple[str, ...]  # of groups, as the formula has them: "1|g", "x|g"
    new_rows: NewRows
    levels: tuple[Any, ...] = ()


def designed(formula: str, frame: Any, scope: Scope = (), by_level: bool = False) -> Design:
    """The rows that a formula makes of a frame. Functions are those of formulae, of `scope` and `_FUNCTIONS`.

    With `by_level` the outcome is a column of words, whose levels are classes.
    """
    if not isinstance(formula, str) or not formula.split("~")[0].strip() or "~" not in formula:
        raise ValueError(f'formula is {_checks.shown(formula)}; words such as "y ~ x + (1 + x | g)" are needed')
    described = _described(formula)
    frame = _pandas(frame)
    if by_level:
        _refuse_unused(described.response.term.components[0], frame)
    frame, known = _columns_of(formula, frame, described.var_names)
    from formulae.environment import Environment
    from formulae.matrices import DesignMatrices

    # Columns go before variables of their names, which the model must not keep: these may be arrays of all rows.
    named = set(re.findall(r"[^\W\d]\w*", formula))
    env = Environment([{name: space[name] for space in (_FUNCTIONS, *scope[::-1]) for name in named
                        if name in space and (callable(space[name]) or name not in frame.columns)}])
    # Dummies of groups would take rows times groups numbers, so formulae makes the other terms alone.
    grouped, described.group_terms = list(described.group_terms), []
    try:
        with np.errstate(divide="ignore", invalid="ignore"):        # of logarithms; numbers are looked at afterwards
            made = DesignMatrices(described, frame, env)
            groups = _groups(grouped, frame, env)
    except KeyError as error:
        name = error.args[0] if error.args else None
        if isinstance(name, str) and name not in formula:           # of a function of the user's own
            raise
        raise ValueError(f"{formula!r} names {error}; the frame has {', '.join(known[:_LONGEST])}"
                         f"{', ...' if len(known) > _LONGEST else ''}, and no function of that name was found where "
                         f"from_formula was called") from error
    except (ValueError, TypeError) as error:
        if "unrecognized type" in str(error) or (isinstance(error, TypeError) and _kinds(frame)):
            raise ValueError(f"what {formula!r} names is not all numbers or words: "
                             f"{_kinds(frame) or error}") from error
        raise
    terms, offset = _terms(made.common, len(frame))
    common = [] if made.common is None else list(made.common.terms.values())
    whole = tuple(dict.fromkeys(_of_whole_columns(common, grouped, frame, env)))
    rows = NewRows(formula, common, grouped, env, {str(name): _kind(frame[name]) for name in frame.columns}, whole)
    effects = tuple(term.name for term in grouped)
    if by_level:
        codes, levels = _coded(made.response, frame)
        return Design(made.response.name, codes.astype(np.float64), None, terms, offset, groups, effects, rows, levels)
    y, trials = _outcome(made.response)
    return Design(made.response.name, y, trials, terms, offset, groups, effects, rows)


def _described(formula: str) -> Any:
    """The formula as formulae reads it. Refused is what formulae, or this package, would leave out in silence."""
    try:
        from formulae import model_description
        from formulae.parser import ParseError, Parser
        from formulae.resolver import ResolverError
        from formulae.scanner import ScanError, Scanner
        from formulae.terms.call_resolver import CallResolverError
    except ImportError as error:
        raise ImportError('models from formulas need formulae: python -m pip install "formulae>=0.5"') from error
    try:
        tokens = Scanner(formula).scan()
    except ScanError as error:
        raise ValueError(f"{formula!r} is not a whole formula: {error}") from error
    _refuse_bare_bars(formula, [token.kind for token in tokens])
    _refuse_repeats(formula)
    try:
        parser = Parser(tokens)
        parser.parse()
        described = model_description(formula)
    except (ParseError, ResolverError, CallResolverError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{formula!r} is not a whole formula: {error}") from error
    if described.response is None:      # formulae drops what it cannot take for one, such as "C(h)['a']"
        raise ValueError(f"{formula!r} has no outcome before the ~: name a column, one of its levels as in "
                         f"column['level'], a function of a column such as log(y), or p(successes, trials)")
    _refuse_rest(formula, tokens[parser.current : -1])
    response = described.response.term.components[0]
    name = _function(response)
    if name in _OUTCOMES:
        raise ValueError(f"the outcome {response.name!r} is made by {name}(), which bambi has and this package has "
                         f"not: {_OUTCOMES[name]}")
    for component in _components(described):
        if _function(component) == "hsgp":
            raise ValueError(f"{formula!r} holds {component.name}, a Gaussian process of bambi, which this package has "
                             f"not: {_SMOOTH}")
        if getattr(component, "reference", None) is not None:
            raise ValueError(f"{formula!r} holds {component.name}[{component.reference!r}] after the ~, where a level "
                             f"says nothing: write I({component.name} == {component.reference!r}) for whether "
                             f"{component.name!r} is that level, or T({component.name}, {component.reference!r}) to "
                             f"compare the others with it")
        if component.name == INTERCEPT:
            raise ValueError(f"{formula!r} names a column {INTERCEPT!r}, which is what the constant is called, so that "
                             f"it would take its place: give the column another name, with "
                             f"frame.rename(columns={{{INTERCEPT!r}: 'other'}}), or write 1 for a constant")
        if component.name == response.name:
            raise ValueError(f"{formula!r} has the outcome {response.name!r} after the ~ too, where it would foretell "
                             f"itself: leave it out there")
    for term in (*described.common_terms, *(term.expr for term in described.group_terms)):
        if hasattr(term, "components"):     # both terms of "h/x" hold one "h", whose names the second would change
            term.components = [copy.deepcopy(component) for component in term.components]
    for component in _components(described):
        _remember(getattr(component, "call", None))
    return described


def _remember(call: Any) -> None:
    """Let each `binary` of a call keep its level, and each `bs` the range of what it was made of."""
    if getattr(call, "callee", None) in _REMEMBERING:
        call.stateful_transform = _REMEMBERING[call.callee]()
    for part in (*getattr(call, "args", ()), *getattr(call, "kwargs", {}).values()):
        _remember(part)


class _Binary:
    """`binary` of formulae, which would take its level from the first rows that it sees each time."""

    def __init__(self) -> None:
        self.level: tuple[Any, ...] = ()

    def __call__(self, x: Any, success: Any = None) -> Any:
        if not self.level:
            from formulae.transforms import binary

            made = binary(x, success)           # refuses a level that no row has
            self.level = (sorted(x.unique().tolist())[0] if success is None else success,)
            return made
        return np.where(x == self.level[0], 1, 0)


class _Spline:
    """`bs` of formulae, which goes on without a word as the polynomials at its ends."""

    def __init__(self) -> None:
        from formulae.transforms import BSpline

        self.made = BSpline()
        self.ends: tuple[float, ...] = ()

    def __call__(self, x: Any, *args: Any, **given: Any) -> Any:
        basis, values = self.made(x, *args, **given), np.asarray(x)
        if not self.ends:
            called = inspect.signature(self.made).bind(x, *args, **given).arguments
            bounds = called.get("lower_bound"), called.get("upper_bound")
            self.ends = tuple(float(own if end is None else end) for own, end in
                              zip((values.min(), values.max()), bounds, strict=True))
        beyond = np.flatnonzero((values < self.ends[0]) | (values > self.ends[1]))
        if beyond.size:
            warnings.warn(f"a spline bs() of the formula has knots from {self.ends[0]:g} to {self.ends[1]:g}, and "
                          f"{counted(beyond.size, 'row')} beyond them, such as row {beyond[0]} with "
                          f"{values[beyond[0]]:g}: there it goes on as a polynomial that the rows say little about",
                          stacklevel=_checks.users_level())
        return basis


_REMEMBERING = {"binary": _Binary, "bs": _Spline}


def _refuse_bare_bars(formula: str, kinds: list[str]) -> None:
    """A bar outside parentheses, which formulae reads and then drops; or two of them."""
    depth = 0
    for kind, after in zip(kinds, [*kinds[1:], ""], strict=True):
        depth += (kind == "LEFT_PAREN") - (kind == "RIGHT_PAREN")
        if kind == "PIPE" and after == "PIPE":
            raise ValueError(f"{formula!r} is not a whole formula: write | for ||, since effects of groups are "
                             f"independent here as they are in bambi")
        if kind == "PIPE" and depth == 0:
            raise ValueError(f"{formula!r} has a | outside parentheses: write (1 | g) or (x | g) for effects of "
                             f"groups, and leave | out otherwise")


def _refuse_rest(formula: str, rest: list[Any]) -> None:
    """What formulae leaves out: it reads up to the first place that makes no sense."""
    if rest:
        words = " ".join(token.lexeme for token in rest)
        raise ValueError(f"{formula!r} makes no sense from {words!r} on, all of which would be left out. Terms have +, "
                         f"* or : between them, parentheses are opened before they are closed, and comparisons stand "
                         f"in I(), such as I(x > 3)")


def _refuse_repeats(formula: str) -> None:
    """Effects of groups that are written twice, of which formulae keeps one."""
    written = [part.replace(" ", "") for part in re.findall(r"\(([^()|]*\|[^()|]*)\)", formula)]
    twice = [part for k, part in enumerate(written) if part in written[:k]]
    if twice:
        raise ValueError(f"{formula!r} holds ({twice[0].replace('|', ' | ')}) twice: rows show the sum of such effects "
                         f"alone. Leave one of them out")


def _components(described: Any) -> Iterator[Any]:
    """Columns and calls of functions after the ~, those of effects of groups too."""
    for term in described.common_terms:
        yield from getattr(term, "components", ())
    for term in described.group_terms:
        yield from getattr(term.expr, "components", ())
        yield from term.factor.components


def _function(component: Any) -> str | None:
    """The function of a component that is a call of one."""
    return getattr(getattr(component, "call", None), "callee", None)


def _pandas(frame: Any, called: str = "frame", needed: str = "a model needs a row per outcome") -> Any:
    if hasattr(frame, "to_pandas"):
        frame = frame.to_pandas()
    if not (hasattr(frame, "iloc") and hasattr(frame, "columns")):
        advice = "collect() it" if hasattr(frame, "collect") else "such as pandas.DataFrame(columns_by_name)"
        raise TypeError(f"{called} is {_checks.shown(frame)} of type {type(frame).__name__}; a pandas.DataFrame whose "
                        f"columns the formula names is needed: {advice}")
    if not len(frame):
        raise ValueError(f"{called} has no rows; {needed}")
    return frame


def _columns_of(formula: str, frame: Any, wanted: Any) -> tuple[Any, list[str]]:
    """The columns that a formula names, with every value and no category without a row; and the names of all."""
    known = [repr(str(name)) for name in frame.columns]
    named = [name for name in dict.fromkeys(frame.columns) if name in wanted]
    frame = frame[named]
    twice = _checks.twice([str(name) for name in frame.columns])
    if twice is not None:
        raise ValueError(f"{formula!r} names a column of which the frame has several: {twice!r} stands "
                         f"{[str(name) for name in frame.columns].count(twice)} times, and once is needed")
    short = [f"{name!r} ({count})" for name, count in frame.isna().sum().items() if count]
    if short:
        rows = counted(int(frame.isna().any(axis=1).sum()), "row")
        raise ValueError(f"columns that {formula!r} names have missing values, in {rows} of {len(frame)}: "
                         f"{', '.join(short[:_LONGEST])}. A model needs all of them in every row: fill them, or drop "
                         f"those rows with frame.dropna(subset={named!r})")
    odd = [name for name, kind in frame.dtypes.items() if getattr(kind, "kind", "O") == "c"]
    if odd:
        raise ValueError(f"the column {odd[0]!r} is complex; real numbers are needed, such as its real part and its "
                         f"imaginary part as two columns")
    kept = {name: frame[name].cat.remove_unused_categories() for name in named if hasattr(frame[name].dtype, "ordered")}
    return (frame.assign(**kept) if kept else frame), known


def _kinds(frame: Any) -> str:
    """What those of a formula's columns are that are neither numbers nor words; empty if all are."""
    from pandas.api.types import infer_dtype

    odd = []
    for name, kind in frame.dtypes.items():
        if getattr(kind, "kind", "O") in "mM" or str(kind).startswith("period"):
            odd.append(f"{name!r} is {kind}: make it a number, such as days since the first, or a category")
        elif str(kind) == "object" and infer_dtype(frame[name]) != "string":
            odd.append(f"{name!r} holds objects ({infer_dtype(frame[name])}): make them all numbers or all words, with "
                       f"frame[{name!r}].astype(float) or .astype(str)")
    return "; ".join(odd[:_LONGEST])


def _kind(column: Any) -> str:
    """What a column holds, as far as functions of formulae tell kinds apart; "" for words and categories of these."""
    kind = column.dtype
    if hasattr(kind, "categories") and hasattr(kind, "ordered"):
        kind = kind.categories.dtype
    if isinstance(kind, np.dtype) and kind.kind in "mM":
        return "dates" if kind.kind == "M" else "times"        # of whichever unit
    if getattr(kind, "kind", "O") in "fiub":
        return "numbers"
    if hasattr(kind, "tz") or str(kind).startswith("period"):
        return "dates with a time zone" if hasattr(kind, "tz") else "periods"
    from pandas.api.types import infer_dtype

    held = infer_dtype(column)
    return "numbers" if held in ("integer", "floating", "mixed-integer-float", "boolean", "decimal") else ""


def _require_kind(column: Any, name: str, needed: str) -> None:
    """Refuse a column of new rows that would be read as numbers of another meaning, or not at all."""
    held = _kind(column)
    if held != needed:
        raise ValueError(f"the column {name!r} of X is of dtype {column.dtype} and holds {held or 'words'}; "
                         f"{needed or 'words'}, as in the rows of the model, are needed")


def _outcome(response: Any) -> tuple[Array, Array | None]:
    """Outcomes, and of successes out of trials the trials."""
    y = np.asarray(response.design_matrix, dtype=np.float64)
    part = response.term.term.components[0]
    level: Any = getattr(part, "reference", None)
    levels: Any = getattr(part, "levels", None)
    if level is not None and levels is None:
        raise ValueError(f"the outcome {part.name!r} is numbers, which have no level {level!r}: leave it out, or make "
                         f"the column words, with .astype(str)")
    if level is not None and level not in list(levels):
        words = "" if all(isinstance(own, str) for own in levels) else ", which .astype(str) makes words"
        raise ValueError(f"the outcome {response.name!r} has no level {level!r}, so it would be 0 in every row; its "
                         f"levels are {', '.join(map(repr, levels))}{words}")
    if response.kind == "proportion":
        return np.ascontiguousarray(y[:, 0]), np.ascontiguousarray(y[:, 1])
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1 or (levels is not None and level is None):
        has = f"{y.shape[1]} columns" if y.ndim > 1 else "one level"
        name = "column" if hasattr(part, "call") else response.name
        raise ValueError(f"the outcome {response.name!r} has {has}; one number a row is needed: write "
                         f"\"{name}['level'] ~ ...\" for whether an outcome in words is that level")
    _require_real(y, f"the outcome {response.name!r}")
    return y, None


def _refuse_unused(part: Any, frame: Any) -> None:
    """Refuse levels of an outcome that no row has, of which a class would have its prior alone."""
    if hasattr(part, "call") or list(frame.columns).count(part.name) != 1:
        return
    column = frame[part.name]
    if not hasattr(column.dtype, "categories"):
        return
    unused = [level for level, count in column.value_counts(sort=False).items() if not count]
    if unused:
        some = ", ".join(map(repr, unused[:_LONGEST]))
        raise ValueError(f"the outcome {part.name!r} has levels without a row: {some}. Leave them out with "
                         f"frame[{part.name!r}].cat.remove_unused_categories(). Of classes that the prior alone speaks "
                         f"of, Softmax(X, y, n_classes=...) makes a model")


def _coded(response: Any, frame: Any) -> tuple[NDArray[np.intp], tuple[Any, ...]]:
    """The number of each row's level, and the levels, in the order that formulae has them."""
    from pandas import Categorical

    part = response.term.term.components[0]
    name = response.name
    if hasattr(part, "call"):
        raise ValueError(f"the outcome {name!r} is made by a function; a column of words, whose levels are the "
                         f"classes, is needed: make it a column of the frame")
    if getattr(part, "reference", None) is not None:
        raise ValueError(f"the outcome {name!r} is whether {part.name!r} is one level; name the column alone, whose "
                         f"levels are the classes, or take GLM.from_formula for that level")
    if part.levels is None:
        raise ValueError(f"the outcome {name!r} holds numbers or truth values; words, whose levels are the classes, "
                         f"are needed: frame.astype({{{name!r}: 'category'}}) makes a level of each number. "
                         f"GLM.from_formula takes outcomes that are numbers")
    levels = tuple(part.levels)
    if len(levels) < 2:
        raise ValueError(f"the outcome {name!r} is {levels[0]!r} in every row; two levels at least are needed")
    codes = Categorical(frame[part.name], categories=list(levels)).codes
    return np.asarray(codes, dtype=np.intp), levels


def _terms(common: Any, n: int) -> tuple[tuple[Term, ...], Array | None]:
    """The common terms, and the sum of the offsets."""
    terms: list[Term] = []
    offset: Array | None = None
    for term in ({} if common is None else common.terms).values():
        if term.kind == "offset":
            offset = np.asarray(term.data, dtype=np.float64).reshape(n) + (0.0 if offset is None else offset)
            continue
        kinds = [component.kind for component in getattr(getattr(term, "term", term), "components", ())]
        labels, table = _table(term, n)
        terms.append(Term(term.name, labels, table, term.kind == "intercept", term.kind == "interaction",
                          bool(kinds) and all(kind == "categoric" for kind in kinds)))
    return tuple(terms), offset


def _table(term: Any, n: int) -> tuple[tuple[str, ...], Array]:
    """The columns of a term and their names."""
    table, labels = np.asarray(term.data, dtype=np.float64).reshape(n, -1), tuple(term.labels)
    if not table.shape[1]:
        raise ValueError(f"the term {term.name!r} has one level, which the intercept stands for already: leave it out")
    for label, column in zip(labels, table.T, strict=True):
        _require_real(column, f"the column {label!r}")
    return labels, table


def _new_table(term: Any, frame: Any) -> tuple[tuple[str, ...], Array]:
    """The same of new rows: made as the rows of the model have set."""
    table = np.asarray(term.eval_new_data(frame), dtype=np.float64).reshape(len(frame), -1)
    labels = tuple(f"{term.name}[{k}]" if table.shape[1] > 1 else term.name for k in range(table.shape[1]))
    for label, column in zip(labels, table.T, strict=True):
        _require_real(column, f"the column {label!r} of X")
    return labels, table


def _require_real(column: Array, called: str) -> None:
    odd = np.flatnonzero(~np.isfinite(column))
    if odd.size:
        raise ValueError(f"{called} is {column[odd[0]]} in row {odd[0]}, and not finite in "
                         f"{counted(odd.size, 'row')}; every row needs a real number: mend or drop those rows")


def _groups(terms: list[Any], frame: Any, env: Any, new: bool = False) -> tuple[Groups, ...]:
    """Grouping factors: each with all of its effects, which are independent; of `new` rows levels are those known."""
    collected: dict[str, list[Any]] = {}
    for term in terms:
        collected.setdefault(term.factor.name, []).append(term)
    found = []
    for name, own in collected.items():
        slopes = [term.expr for term in own if hasattr(term.expr, "components")]
        intercept = len(slopes) < len(own)
        tables: list[Array] = []
        labels: list[str] = []
        for expr in slopes:
            if not new:
                expr.set_type(frame, env)
                expr.set_data(not intercept)            # of words, all levels where there is no intercept
            names, table = _new_table(expr, frame) if new else _table(expr, len(frame))
            tables.append(table)
            labels += names
        codes = tuple(_codes(component, frame, env) for component in own[0].factor.components)
        slopes_of_rows: Any = np.column_stack(tables) if tables else None
        if tables and not new:      # of new rows they stand in the same order, under names of formulae
            slopes_of_rows = dict(zip(labels, slopes_of_rows.T, strict=True))
        found.append(Groups(codes if len(codes) > 1 else codes[0], slopes_of_rows, intercept, correlated=False,
                            name=name))
    return tuple(found)


def _codes(component: Any, frame: Any, env: Any) -> Any:
    """The group of each row, by one column or call of a function; in order as formulae has them."""
    if not hasattr(component, "call"):
        values = frame[component.name]
    else:
        component.set_type(frame, env)
        values = component.call.eval(frame, component.env)
        if getattr(values, "contrast", None) is not None and type(values.contrast).__name__ != "Treatment":
            raise ValueError(f"groups are those of {component.name!r}, whose contrasts say nothing of groups: name the "
                             f"column alone")
        if getattr(values, "levels", None) is not None:
            from pandas import Categorical

            values = Categorical(values.data, categories=values.levels, ordered=True)
        values = getattr(values, "data", values) if hasattr(values, "contrast") else values
    if getattr(getattr(values, "dtype", None), "ordered", False):
        return values
    values = np.asarray(values)
    return values.astype(str) if values.dtype == bool else values       # called True and False, not 1 and 0


def _of_whole_columns(common: list[Any], grouped: list[Any], frame: Any, env: Any) -> Iterator[str]:
    """Terms whose values in a row are others where the row stands alone: those of new rows would not be the model's.

    Rows with the least and the largest value tell: a mean, a rank or a running sum of one row is not that of all.
    """
    for term in [*common, *(term.expr for term in grouped)]:
        if any(hasattr(part, "call") for part in getattr(getattr(term, "term", term), "components", ())):
            table = np.asarray(term.data, dtype=np.float64).reshape(len(frame), -1)
            rows = np.unique([table.argmin(axis=0), table.argmax(axis=0)])[:_ALONE]
            if _differ(term.eval_new_data, table, frame, rows):
                yield term.name
    for component in (part for term in grouped for part in term.factor.components if hasattr(part, "call")):
        groups = np.asarray(_codes(component, frame, env))
        rows = np.unique([0, int(np.argmax(groups != groups[0]))])
        if _differ(partial(_codes, component, env=env), groups, frame, rows):
            yield component.name


def _differ(made: Callable[[Any], Any], whole: NDArray[Any], frame: Any, rows: NDArray[np.intp]) -> bool:
    """Whether a row alone has other values than among all; where it has none, those rows together."""
    scale = float(np.abs(whole).max(initial=0.0)) if whole.dtype.kind == "f" else 0.0

    def differs(own: NDArray[np.intp]) -> bool:
        found, wanted = np.asarray(made(frame.iloc[own])), whole[own]
        if wanted.dtype.kind != "f":
            return not np.array_equal(found.reshape(wanted.shape), wanted)
        return not np.allclose(np.asarray(found, np.float64).reshape(wanted.shape), wanted, 0.0, _ROUNDING * scale)

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for parts in ([rows[k : k + 1] for k in range(len(rows))], [rows]):
            try:
                return any(differs(part) for part in parts)
            except Exception:       # of a function of the user's own, which may need several rows
                continue
    return True


class NewRows:
    """What a formula makes of new rows: of their predictors alone, by the levels, knots and means of the model's rows.

    It keeps no rows. With a model it is saved as bytes, which are read where new rows come: a model is read without
    formulae, and where a function of the formula cannot be pickled only this is lost.
    """

    def __init__(
        self, formula: str, common: list[Any], grouped: list[Any], env: Any, known: Mapping[str, str],
        whole: tuple[str, ...],
    ) -> None:
        self.formula, self._whole = formula, whole
        terms = [*common, *grouped]
        named = {name for term in terms for name in term.var_names}
        measured = {name for term in [*common, *(term.expr for term in grouped)] for name in term.var_names}
        self._kinds = {name: kind for name, kind in known.items() if name in measured}
        self.columns = tuple(name for name in known if name in named)
        for term in [*common, *(term.expr for term in grouped), *(term.factor for term in grouped)]:
            term.data = None
            for component in getattr(term, "components", ()):
                kind = getattr(component._intermediate_data, "kind", None)      # of an offset, which is asked for it
                component.value, component._intermediate_data = None, SimpleNamespace(kind=kind)
        self.has_offset = any(term.kind == "offset" for term in common)
        self.has_groups = bool(grouped)
        self._parts: tuple[list[Any], list[Any], Any] | None = (common, grouped, env)
        self._saved: bytes | str = b""

    _kinds: Mapping[str, str] = MappingProxyType({})     # of columns, but for groups; of saved models maybe none

    def __getstate__(self) -> dict[str, Any]:
        saved = self._saved if self._parts is None else _pickled(self._parts)
        return {**self.__dict__, "_parts": None, "_saved": saved}

    def read(self, X: Any) -> tuple[Array, Array | None, dict[str, Groups] | None] | None:
        """The table of a frame or dict of columns, its offset and groups; None where it lacks a column named."""
        if isinstance(X, Mapping):
            from pandas import DataFrame

            if X and all(np.ndim(values) == 0 for values in X.values()):
                name, value = next(iter(X.items()))
                raise ValueError(f"X has single values in place of columns, such as {_checks.shown(value)} of {name!r}"
                                 f"; a list with a value for each row is needed, of one row [{_checks.shown(value)}]")
            X = DataFrame(dict(X))
        frame = _pandas(X, "X", "at least one row to predict is needed")
        if not set(self.columns) <= {str(name) for name in frame.columns}:
            return None
        if self._whole:
            raise ValueError(f"{self.formula!r} holds {', '.join(map(repr, self._whole))}, made of a whole column: of "
                             f"new rows the values would be those of other means, ranks, sums or the like. Write "
                             f"scale(x) or center(x), which keep what they took from the model's rows, or make it a "
                             f"column of the frame before; or give X the columns of the formula's design")
        frame, _ = _columns_of(self.formula, frame, self.columns)
        for name, kind in self._kinds.items():
            _require_kind(frame[next(own for own in frame.columns if str(own) == name)], name, kind)
        common, grouped, env = self._loaded()
        tables, offset = [], None
        try:
            with np.errstate(divide="ignore", invalid="ignore"):
                for term in common:
                    _, table = _new_table(term, frame)
                    if term.kind == "offset":
                        offset = table[:, 0] + (0.0 if offset is None else offset)
                    else:
                        tables.append(table)
                groups = _groups(grouped, frame, env, new=True)
        except ValueError as error:
            if "not present in the" in str(error):      # words of formulae
                raise ValueError(f"{error} The model has no coefficient for them: leave these rows out, or make the "
                                 f"model of rows that have every level") from error
            raise
        return np.column_stack(tables), offset, {str(group.name): group for group in groups} or None

    def _loaded(self) -> tuple[list[Any], list[Any], Any]:
        if self._parts is None:
            words = (f"the model was made by {self.formula!r} and saved, and what the formula makes of new rows ")
            if isinstance(self._saved, str):
                raise ValueError(f"{words}could not be saved with it ({self._saved}): make the model again by "
                                 f"from_formula, or give X the columns of its design")
            try:
                self._parts = _Reader(io.BytesIO(self._saved)).load()
            except Exception as error:
                raise ValueError(f"{words}cannot be read here ({type(error).__name__}: {error}): make the model again "
                                 f"by from_formula, or give X the columns of its design") from error
        assert self._parts is not None
        return self._parts


class _Writer(pickle.Pickler):
    """Modules that a formula names, such as np, by their names."""

    def persistent_id(self, value: Any) -> str | None:
        return value.__name__ if isinstance(value, ModuleType) else None


class _Reader(pickle.Unpickler):
    def persistent_load(self, name: str) -> ModuleType:
        return importlib.import_module(name)


def _pickled(parts: Any) -> bytes | str:
    """The bytes, or why there are none."""
    out = io.BytesIO()
    try:
        _Writer(out).dump(parts)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return out.getvalue()
