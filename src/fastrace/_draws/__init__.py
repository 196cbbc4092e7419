"""Random numbers and orders: draws from bit generators, orders of rows, alias tables, heaps, trees of sums.

`_row_order.pyx` is the one compiled module, for streams that read a table in random order. Bounds and rewards are not
known here.
"""
