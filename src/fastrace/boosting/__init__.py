"""Boosting by filtering: each round reads only as many examples as its stopping rules need.

`filterboost` is the face and `_rounds` its rounds; `_committee` and `_bins` hold what they keep, `_boost.pyx` the
loops, `_edges.pyx` the race of edges, whose rules are those of `fastrace.streams`.
"""

try:
    from fastrace.boosting._bins import Stump
    from fastrace.boosting.filterboost import FilterBoostClassifier
except ImportError as error:
    if not (error.name or "").startswith(("sklearn", "joblib")):
        raise
    raise ImportError('fastrace.boosting needs scikit-learn 1.6: python -m pip install "scikit-learn>=1.6"') from error

__all__ = ["FilterBoostClassifier", "Stump"]
