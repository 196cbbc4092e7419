"""Formulas: scalars in, scalar out, no state beyond a struct that the caller owns.

A header holds one family of formulas; `c/` holds what must be vectorised by hand. `_half_widths.pyx` and
`_quantile.pyx` bring formulas to NumPy for `fastrace.bounds`. No loop over rewards and no generator lives here.
"""
