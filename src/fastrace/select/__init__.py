"""The best m of n arms, from pulls that are independent and never end.

Faces and their loops: `selection` uses `_plans`, `adaptive` uses `_adapt` and `_allocate`, `lucb` uses `_lucb`; all of
these loops stand on `_selector`. `choosing` is the one call that picks a rule. Where pulls come from is
`fastrace.pulls`.
"""
