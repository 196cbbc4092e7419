"""Random numbers and orders: draws from bit generators, orders of rows, alias tables, heaps, trees of sums.

Headers, and two compiled modules: `_row_order.pyx` for streams that read a table in random order, `_duels.pyx` for arms
that are compared on the same rounds.
"""
