"""Choose the learner that is best on all rows without training every learner on all of them.

`schedulers` decide who is trained next on how many rows, from scores alone; `searches` are scikit-learn searches that
train for them, or that race trained models over held-out rows. Scores of rows (`_row_scores`), the race of predictions
that exist already (`_race_predictions`), penalties, files of rows and pictures stand here. `_sklearn` is the one file
that uses private names of scikit-learn. Nothing here is compiled: the races are those of `fastrace.races`.
"""

from typing import Any

from fastrace.model_selection._displays import RegretDisplay, SelectionCurveDisplay
from fastrace.model_selection._parquet_rows import ParquetRows
from fastrace.model_selection._penalties import (
    RootPenalty,
    gap_penalty,
    max_discrepancy_penalty,
    norm_ball_penalty,
    rademacher_penalty,
    vc_penalty,
)
from fastrace.model_selection._race_predictions import race_predictions
from fastrace.model_selection._results import Evaluation, LearnerResult
from fastrace.model_selection._row_scores import RowScore
from fastrace.model_selection.schedulers._baselines import ASHA, FixedSubset, Hyperband, RandomChoice
from fastrace.model_selection.schedulers._budgeted import BudgetedUCB, CoarseGrid, cover
from fastrace.model_selection.schedulers._daub import DAUB
from fastrace.model_selection.schedulers._halving import DAUBHalving, SuccessiveHalving
from fastrace.model_selection.schedulers._scheduler import Scheduler

__all__ = [
    "ASHA",
    "BudgetedUCB",
    "CoarseGrid",
    "DAUB",
    "DAUBHalving",
    "DAUBSearchCV",
    "Evaluation",
    "FixedSubset",
    "Hyperband",
    "LearnerResult",
    "ParquetRows",
    "RacingSearchCV",
    "RandomChoice",
    "RegretDisplay",
    "RootPenalty",
    "RowScore",
    "Scheduler",
    "SelectionCurveDisplay",
    "SuccessiveHalving",
    "cover",
    "gap_penalty",
    "max_discrepancy_penalty",
    "norm_ball_penalty",
    "race_predictions",
    "rademacher_penalty",
    "vc_penalty",
]

# What needs scikit-learn is imported when it is asked for.
SEARCHES = {"DAUBSearchCV": "searches._daub_search", "RacingSearchCV": "searches._racing_search"}


def __getattr__(name: str) -> Any:
    if name not in SEARCHES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{SEARCHES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("sklearn", "joblib"):
            raise
        raise ImportError(f'{name} needs scikit-learn: python -m pip install "scikit-learn>=1.6"') from error


def __dir__() -> list[str]:
    return sorted([*globals(), *SEARCHES])
