"""Slow, plain twins of the compiled formulas and loops, one module per family."""
