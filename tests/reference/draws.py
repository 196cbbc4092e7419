"""Draws one at a time from the bit generator, through its ctypes door."""

import math


def next_uint32(rng):
    interface = rng.bit_generator.ctypes
    return int(interface.next_uint32(interface.state)) & 0xFFFFFFFF


def bounded(rng, n):
    """Uniform integer in [0, n) for n < 2**32, by Lemire's multiplication."""
    while True:
        product = next_uint32(rng) * n
        if product % 2**32 >= (2**32 - n) % n:
            return product >> 32


def gumbel(rng):
    return -math.log(rng.standard_exponential())


class Order:
    """A permutation that is re-shuffled in part, and never reset."""

    def __init__(self, n):
        self.rows = list(range(n))

    def advance(self, rng, first, last):
        for i in range(first, last):
            j = i + bounded(rng, len(self.rows) - i)
            self.rows[i], self.rows[j] = self.rows[j], self.rows[i]
        return self.rows[first:last]


class Window:
    """Consecutive rows from a random start, round the end."""

    def __init__(self, n):
        self.n, self.start = n, None

    def advance(self, rng, first, last):
        if first == 0:
            self.start = bounded(rng, self.n)
        return [(self.start + i) % self.n for i in range(first, last)]
