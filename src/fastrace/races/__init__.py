"""Races over finite populations: the largest mean, a mean against a threshold, the largest sum, one exact draw.

Faces and their loops: `racing` uses `fastrace._core` and `_memory`; `acceptance` uses `_threshold`; `unequal` uses
`_unequal`; `lil_ucb` uses `_lil`; `sampling` draws by races of `_core`. `_weighted` draws rows by their weights.
Streams without an end are in `fastrace.streams`.
"""
