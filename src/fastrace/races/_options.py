"""Options that several races take: each is checked here, with one wording, and nowhere else."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace._math._half_widths import BOUNDS as RULES
from fastrace._math._half_widths import RIGOROUS

BOUNDS = ("auto", *RULES)
MOST_ROWS = 2**62


def population(n_arms: int, n_rows: int) -> tuple[int, int]:
    """Numbers of arms and of rows."""
    arms = _checks.integer(n_arms, "n_arms", 1, "a race needs arms")
    rows = _checks.integer(n_rows, "n_rows", 0, "a population cannot have fewer than 0 rows")
    if rows > MOST_ROWS:
        raise ValueError(f"n_rows is {n_rows}; at most 2^62 rows can be counted")
    return arms, rows


def bound(value: str, supported: bool, offered: tuple[str, ...] = BOUNDS) -> str:
    """The bound behind a name; "auto" is betting if there is a support, else the normal rule."""
    name = _checks.choice(value, "bound", offered)
    if name == "auto":
        name = "betting" if supported else "normal"
    if name in RIGOROUS and not supported:
        raise ValueError(
            f"bound is {value!r} and support is None; a rigorous bound needs support=(low, high), an interval that "
            f"holds every reward, because nothing else limits what unread rows can be"
        )
    return name


def first_look(value: int) -> int:
    """Rows of the first look."""
    return _checks.integer(value, "first_look", 2, "one row has no variance")


def growth(value: float | None, rule: str) -> float:
    """Factor between looks; 1.1 for betting, whose looks are free, and else 2 by default."""
    factor = (1.1 if rule == "betting" else 2.0) if value is None else _checks.real(value, "growth")
    if not 1.0 < factor <= 1e6:
        raise ValueError(f"growth is {value!r}; a factor above 1 is needed, so that looks move on")
    return factor


def access(value: str) -> str:
    """How rows are read."""
    return _checks.choice(value, "access", ("random", "shuffled"))


def scan_advantage(value: float | None) -> float | None:
    """Cost of a row read at random over one read in order; None leaves it to the source."""
    if value is None:
        return None
    if not _checks.real(value, "scan_advantage") >= 1.0:
        raise ValueError(f"scan_advantage is {value}; at least 1 is needed: rows in order cost no more")
    return float(value)


def strict(value: str) -> bool:
    """Whether rewards outside the support are refused."""
    return _checks.choice(value, "outside", _checks.OUTSIDE) == "raise"


def constants(value: ArrayLike | None, name: str, n_arms: int) -> NDArray[np.float64]:
    """One constant per arm, finite or -inf, not all -inf; zeros for None."""
    values = _checks.arm_values(0.0 if value is None else value, name, n_arms)
    if np.isnan(values).any() or (values == math.inf).any():
        raise ValueError(f"{name} is {value!r}; finite numbers are needed, or -inf for an arm that cannot win")
    if (values == -math.inf).all():
        raise ValueError(f"{name} is -inf for every arm; at least one arm must be possible")
    return values
