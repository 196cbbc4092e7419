"""Boosting by filtering: each round reads only as many examples as its stopping rules need.

`filterboost` is the face and `_rounds` its rounds; `_committee` and `_bins` hold what they keep, `_boost.pyx` the
loops, `_edges.pyx` the race of edges, whose rules are those of `fastrace.streams`.
"""

from fastrace.boosting._bins import Stump
from fastrace.boosting.filterboost import FilterBoostClassifier

__all__ = ["FilterBoostClassifier", "Stump"]
