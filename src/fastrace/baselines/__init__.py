"""Rules that exist to be compared with: the plans and competitors of the papers, and a rule for a fixed budget.

Use `fastrace.LUCB` or `fastrace.select_best` to select, and these to see what the choice is worth. `Direct`,
`MedianElimination`, `Incremental` and `Halving` fix their pulls beforehand; `OCBA` and `SubsetRace` are what ADAPT was
compared with; `KLLUCB` is LUCB with bounds for rewards 0 and 1, wider elsewhere; `SAR` spends a budget.
"""

from fastrace.baselines._adaptive import KLLUCB, OCBA, SAR, SubsetRace
from fastrace.baselines._fixed import Direct, Halving, Incremental, MedianElimination

__all__ = ["KLLUCB", "OCBA", "SAR", "Direct", "Halving", "Incremental", "MedianElimination", "SubsetRace"]
