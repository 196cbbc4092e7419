"""Benchmarks for asv: each class times ours beside the dull way, and counts what was read."""
