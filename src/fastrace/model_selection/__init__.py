"""Choose the learner that is best on all rows without training every learner on all of them."""

from fastrace.model_selection._daub import DAUB
from fastrace.model_selection._halving import (
    ASHA,
    DAUBHalving,
    FixedSubset,
    Hyperband,
    RandomChoice,
    SuccessiveHalving,
)
from fastrace.model_selection._results import Evaluation, SelectionResult
from fastrace.model_selection._scheduler import Scheduler

__all__ = [
    "ASHA",
    "DAUB",
    "DAUBHalving",
    "Evaluation",
    "FixedSubset",
    "Hyperband",
    "RandomChoice",
    "Scheduler",
    "SelectionResult",
    "SuccessiveHalving",
]
