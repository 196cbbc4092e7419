"""Options that several races take: each is checked here, with one wording, and nowhere else."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _callers, _checks, _frames
from fastrace._math._half_widths import BOUNDS as RULES
from fastrace._math._half_widths import RIGOROUS

BOUNDS = ("auto", *RULES)
MOST_ROWS = 2**62
ORDERS = {"random": "random", "shuffled": "given"}      # what `access` was called, and what `order` calls it
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RaceOptions:
    """Options of races, said once: whatever spells these options also takes them as ``options=``.

    `race`, `FiniteRace`, `race_sums`, `UnequalRace`, `AcceptTest` and its functions, `DiscreteSampler`,
    `model_selection.race_predictions` and the racing kernels of `mcmc` do. What is None keeps the default of the race
    that takes the options, and what a call spells itself goes before them. A race refuses an option that it does not
    have: kernels have no `support`, for instance, since their models give it.

    Parameters
    ----------
    delta : float, optional
        Probability that the answer is wrong, in (0, 1).
    bound : str, optional
        "auto", or a name in `FiniteRace`.
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every reward.
    first_look : int, optional
        Rows of the first look, at least 2.
    growth : float, optional
        Factor between looks, above 1.
    order : {"random", "given"}, optional
        Whether rows are read at random places, or in order because they stand in random order. For a race that calls
        this ``access``, "given" is its "shuffled".
    student : bool, optional
        Whether the normal rule uses Student's quantiles.
    skewness_guard : bool, optional
        Whether the normal rule allows for skewed rewards.
    tail_guard : bool, optional
        Whether the normal rule waits where few large rewards may carry a mean.
    scan_advantage : float, optional
        Cost of a row read at a random place over one read in order, at least 1.
    outside : {"raise", "warn"}, optional
        What a reward outside `support` does.

    Raises
    ------
    ValueError
        If an option is out of range; by the race that takes the options if it lacks one of them.
    TypeError
        If an option is of a wrong type.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> careful = fr.RaceOptions(delta=0.001, bound="serfling", support=(0, 1.1))
    >>> values = np.random.default_rng(0).random((100_000, 4)) + [0.0, 0.0, 0.1, 0.0]
    >>> fr.race(values, options=careful, rng=1).best
    2
    >>> fr.race(values, options=careful, delta=0.05, rng=1).delta
    0.05
    """

    delta: float | None = None
    bound: str | None = None
    support: _checks.Support | None = None
    first_look: int | None = None
    growth: float | None = None
    order: str | None = None
    access: str | None = None
    student: bool | None = None
    skewness_guard: bool | None = None
    tail_guard: bool | None = None
    scan_advantage: float | None = None
    outside: str | None = None

    def __post_init__(self) -> None:
        checks: dict[str, Callable[[Any], Any]] = {
            "delta": lambda value: _checks.probability(value, "delta"),
            "bound": lambda value: _checks.choice(value, "bound", BOUNDS),
            "first_look": first_look,
            "growth": lambda value: growth(value, ""),
            "order": order,
            "access": access,
            "scan_advantage": scan_advantage,
            "outside": strict,
            "support": _ends,
            "student": lambda value: _checks.flag(value, "student"),
            "skewness_guard": lambda value: _checks.flag(value, "skewness_guard"),
            "tail_guard": lambda value: _checks.flag(value, "tail_guard"),
        }
        with _callers.options_of("RaceOptions"):
            for name, value in self.given().items():
                checks[name](value)

    def given(self) -> dict[str, Any]:
        """What is not None, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def __repr__(self) -> str:
        return f"RaceOptions({', '.join(f'{name}={value!r}' for name, value in self.given().items())})"


def takes_options(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Decorate a race that spells options and has a parameter `options`: those go where the caller spelled none."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def filled(*args: Given.args, **spelled: Given.kwargs) -> Answer:
        if "access" in spelled and "order" in signature.parameters:
            _ordered(spelled)
        options = spelled.get("options")
        if options is None:
            return function(*args, **spelled)
        with _callers.options_of(type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__):
            given = _given(options, signature)
        try:
            said = signature.bind_partial(*args, **spelled).arguments
        except TypeError:                   # arguments that do not fit: Python says so, by the name of the race
            return function(*args, **spelled)
        return function(*args, **spelled, **{name: value for name, value in given.items() if name not in said})

    return filled


def _ordered(spelled: dict[str, Any]) -> None:
    """Take `access`, the former name of `order`."""
    if "order" in spelled:
        raise TypeError("order and access both came; access is the former name of order")
    value = access(spelled.pop("access"))
    warnings.warn(f"access={value!r} is now order={ORDERS[value]!r}", FutureWarning, stacklevel=4)
    spelled["order"] = ORDERS[value]


def _given(options: Any, signature: inspect.Signature) -> dict[str, Any]:
    """What options say to a race of this signature."""
    if not isinstance(options, RaceOptions):
        raise TypeError(f"options is of type {type(options).__name__}; RaceOptions(...) is needed")
    given = options.given()
    if "order" in given and "order" not in signature.parameters and "access" in signature.parameters:
        given["access"] = {new: old for old, new in ORDERS.items()}[given.pop("order")]
    elif "access" in given and "order" in signature.parameters:
        _ordered(given)
    foreign = [name for name in given if name not in signature.parameters]
    if foreign:
        raise ValueError(f"options has {', '.join(foreign)}, which this race does not have; leave out what it lacks")
    return given


def _ends(support: Any) -> None:
    """Check a support whose number of arms is not known yet."""
    size = np.broadcast(*support).size if isinstance(support, (tuple, list)) and len(support) == 2 else 1
    _checks.support_bounds(support, size)


def population(n_arms: int, n_rows: int) -> tuple[int, int]:
    """Numbers of arms and of rows."""
    arms = _checks.integer(n_arms, "n_arms", 1, "a race needs arms")
    rows = _checks.integer(n_rows, "n_rows", 0, "a population cannot have fewer than 0 rows")
    if rows > MOST_ROWS:
        raise ValueError(f"n_rows is {n_rows}; at most 2^62 rows can be counted")
    return arms, rows


def bound(value: str, supported: bool, offered: tuple[str, ...] = BOUNDS, rigorous: str = "betting") -> str:
    """The bound behind a name; "auto" is the `rigorous` one if there is a support, else the normal rule."""
    name = _checks.choice(value, "bound", offered)
    if name == "auto":
        name = rigorous if supported else "normal"
    if name in RIGOROUS and not supported:
        raise ValueError(
            f"bound is {value!r} and support is None; a rigorous bound needs support=(low, high), an interval that "
            f"holds every reward, because nothing else limits what unread rows can be"
        )
    return name


def first_look(value: int) -> int:
    """Rows of the first look."""
    return _checks.integer(value, "first_look", 2, "one row has no variance")


def growth(value: float | None, rule: str, of_bets: float = 1.1) -> float:
    """Factor between looks; `of_bets` for betting, whose looks are free, and else 2 by default."""
    factor = (of_bets if rule == "betting" else 2.0) if value is None else _checks.real(value, "growth")
    if not 1.0 < factor <= 1e6:
        raise ValueError(f"growth is {value!r}; a factor above 1 is needed, so that looks move on")
    return factor


def access(value: str) -> str:
    """How rows are read."""
    return _checks.choice(value, "access", ("random", "shuffled"))


def order(value: str) -> str:
    """How rows of a population are read."""
    return _checks.choice(value, "order", ("random", "given"))


def scan_advantage(value: float | None) -> float | None:
    """Cost of a row read at random over one read in order; None leaves it to the source."""
    if value is None:
        return None
    if not _checks.real(value, "scan_advantage") >= 1.0:
        raise ValueError(f"scan_advantage is {value}; at least 1 is needed: rows in order cost no more")
    return float(value)


def missing(value: str, variance: str, low: NDArray[np.float64] | None, high: NDArray[np.float64] | None) -> str:
    """What becomes of a missing reward."""
    found = _checks.missing(value, low is not None)
    if found == "drop" and variance == "marginal":
        raise ValueError("missing is 'drop' and variance is 'marginal'; a row is dropped for all arms at once, "
                         "by comparing pairs")
    if found == "drop" and low is not None and high is not None and not low.max() <= high.min():
        raise ValueError("missing is 'drop' and the supports of the arms have no number in common; one support that "
                         "holds the rewards of all arms is needed, as a dropped row is a tie")
    return found


def proxy(
    value: ArrayLike, n_arms: int, n_rows: int, bound: str, missing: str, advantage: float,
    names: Sequence[str] | None = None,
) -> NDArray[np.float64]:
    """Scores of all rows, of shape (n_rows, 1) or (n_rows, n_arms), less their means, which are then known exactly.

    Columns of a table go by the `names` of the arms, where both have names.

    A coefficient may make scores range as widely as the rewards, and rounding of their mean with them: so they count
    from their first row before they are averaged.
    """
    for name, given, refused, why in (
        ("bound", bound, bound != "betting", "only bets keep their promise while coefficients are learned: give "
                                             "support, and leave bound out"),
        ("missing", missing, missing == "drop", "dropped rows change the population whose scores are known: take "
                                                "missing='worst'"),
        ("scan_advantage", advantage, advantage > 1.0, "a proxy is for rewards that are dear, of which none is read "
                                                       "twice: leave scan_advantage out"),
    ):
        if refused:
            raise ValueError(f"{name} is {given!r} and proxy is given; {why}")
    if names is not None and n_arms > 1:
        value = _frames.columns_of(value, names, "proxy", "arms")
    table = _frames.as_table(value, "proxy", "a table of scores")
    if table.dtype.kind not in "fiub":
        raise TypeError(f"proxy has dtype {table.dtype}; scores must be real numbers")
    if table.shape not in ((n_rows,), (n_rows, 1), (n_rows, n_arms)):
        raise ValueError(f"proxy has shape {table.shape}; a score per row, of shape ({n_rows},), or per row and arm, "
                         f"of shape ({n_rows}, {n_arms}), is needed")
    if not n_rows:
        raise ValueError("proxy is given and n_rows is 0; a proxy is of rows")
    scores = np.array(table, dtype=np.float64).reshape(n_rows, -1)
    if not np.isfinite(scores).all():
        row, column = np.argwhere(~np.isfinite(scores))[0]
        raise ValueError(f"proxy has {scores[row, column]} at row {row}, column {column}; every row needs a finite "
                         f"score, because their mean over all rows must be known")
    with np.errstate(over="ignore", invalid="ignore"):
        scores -= scores[0].copy()
        scores -= scores.mean(axis=0)
    if not np.isfinite(scores).all():
        raise ValueError("the scores of proxy lie farther apart than a double can say; divide them by a number")
    return scores


def strict(value: str) -> bool:
    """Whether rewards outside the support are refused."""
    return _checks.choice(value, "outside", _checks.OUTSIDE) == "raise"


def constants(
    value: ArrayLike | None, name: str, n_arms: int, names: Sequence[str] | None = None
) -> NDArray[np.float64]:
    """One constant per arm, finite or -inf, not all -inf; zeros for None. A series goes by the `names` of the arms."""
    values = _checks.arm_values(0.0 if value is None else _frames.of_arms(value, names, name), name, n_arms)
    if np.isnan(values).any() or (values == math.inf).any():
        raise ValueError(f"{name} is {_checks.shown(value)}; finite numbers are needed, or -inf for an arm that "
                         f"cannot win")
    if (values == -math.inf).all():
        raise ValueError(f"{name} is -inf for every arm; at least one arm must be possible")
    return values
