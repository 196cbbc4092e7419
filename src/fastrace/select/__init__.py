"""The best m of n arms, from pulls that are independent and never end.

Faces and their loops: `lucb` uses `_lucb` (intervals), `_pairs` (bets between two arms), `_unbounded` (the same without
a support) and `_paired` (rewards of common rounds), `adaptive` uses `_adapt`; `selection` is what all faces share,
`_selector` the frame of all loops. Of tables, `_tables` is what rules share, `_ledger` knows which cells were read, and
`_ending` when to read the rest. `choosing` is the one call that picks a rule. Rules to compare with are faces of
`fastrace.baselines`; their loops, `_plans` and `_allocate`, are here. Where pulls come from is `fastrace.pulls`.
"""
