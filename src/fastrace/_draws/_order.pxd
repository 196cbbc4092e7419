# cython: cdivision=True
"""The order in which a race reads rows: a uniform permutation of [0, n), settled position by position.

Settling k positions costs O(k) time and memory, whatever n is: at most 64 bytes per position, beside 256 KiB. Small
populations keep a permutation that is re-shuffled in part and never reset. Large ones start each race from the identity
and keep in a hash table only what the shuffle has displaced, 28 to 56 bytes per position. A race that settles more than
an eighth of the positions takes 4 n bytes, at most 32 per position and 4 in the end, for a permutation that it keeps.
While it moves from one to the other it holds both.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from numpy.random cimport bitgen_t

from fastrace._draws._rng cimport bounded32

cdef extern from "_clones.h" nogil:
    void PREFETCH(const void *p)

cdef enum:
    ORDER_LIMIT = 0x7FFFFFFF    # rows up to which an order is kept; beyond, a keyed bijection
    ORDER_SMALL = 1 << 16       # rows up to which the permutation is there from the start
    ORDER_SPARSE = 8            # the share of rows, one in so many, from which on the permutation takes less memory
    ORDER_BATCH = 32            # positions drawn for at once, so that memory fetches their entries side by side

cdef struct displaced_t:
    uint32_t position
    uint32_t row
    uint32_t race               # entries of races gone by are free

cdef struct order_t:
    int64_t n
    uint32_t *code              # permutation[i] XOR i, so that zeroed memory is the identity; NULL while sparse
    uint32_t *settled           # sparse: the rows at positions 0, 1, ..., of this race
    int64_t room                # of `settled`
    displaced_t *table          # sparse: rows at positions not yet settled, where displaced
    uint32_t bits               # of the table's size
    uint32_t used
    uint32_t race


cdef inline int order_init(order_t *order, int64_t n) noexcept nogil:
    """Return 0, or -1 if memory is short. The struct must be zeroed or freed before."""
    order.n = n
    order.settled = NULL
    order.table = NULL
    order.code = NULL
    order.room = order.bits = order.used = order.race = 0
    if n <= ORDER_SMALL:
        order.code = <uint32_t *>calloc(n if n > 0 else 1, sizeof(uint32_t))
        return 0 if order.code != NULL else -1
    order.bits = 8
    order.table = <displaced_t *>calloc(1 << 8, sizeof(displaced_t))
    return 0 if order.table != NULL else -1


cdef inline void order_free(order_t *order) noexcept nogil:
    free(order.code)
    free(order.settled)
    free(order.table)
    order.code = NULL
    order.settled = NULL
    order.table = NULL


cdef inline int64_t order_row(const order_t *order, int64_t position) noexcept nogil:
    """The row at a position that has been settled."""
    if order.code == NULL:
        return <int64_t>order.settled[position]
    return <int64_t>(order.code[position] ^ <uint32_t>position)


cdef inline void order_reset(order_t *order, int64_t drawn) noexcept nogil:
    """Back to the identity after a race that settled `drawn` positions: what comes next depends on no race before.

    A position beyond those settled is out of place only if its own row is among them.
    """
    cdef int64_t i
    cdef uint32_t row
    if order.code == NULL:
        return                          # sparse: each race starts from the identity
    for i in range(drawn):
        row = order.code[i] ^ <uint32_t>i
        if row >= drawn:
            order.code[row] = 0
    for i in range(drawn):
        order.code[i] = 0


cdef inline uint32_t order_hash(uint32_t position, uint32_t bits) noexcept nogil:
    return (position * <uint32_t>2654435769) >> (32 - bits)


cdef inline displaced_t *order_slot(displaced_t *table, uint32_t bits, uint32_t race, uint32_t position) noexcept nogil:
    """The entry of a position, or the free one where it belongs."""
    cdef uint32_t mask = (<uint32_t>1 << bits) - 1
    cdef uint32_t at = order_hash(position, bits)
    while table[at].race == race and table[at].position != position:
        at = (at + 1) & mask
    return &table[at]


cdef inline int order_grow(order_t *order) noexcept nogil:
    cdef uint32_t bits = order.bits + 1, i
    cdef displaced_t *larger = <displaced_t *>calloc(<size_t>1 << bits, sizeof(displaced_t))
    if larger == NULL:
        return -1
    for i in range(<uint32_t>1 << order.bits):
        if order.table[i].race == order.race:
            order_slot(larger, bits, order.race, order.table[i].position)[0] = order.table[i]
    free(order.table)
    order.table = larger
    order.bits = bits
    return 0


cdef inline int order_keep(order_t *order, int64_t first) noexcept nogil:
    """Turn the hash table into a permutation; `first` positions are settled."""
    cdef uint32_t *code = <uint32_t *>calloc(order.n, sizeof(uint32_t))
    cdef displaced_t *entry
    cdef uint32_t i
    if code == NULL:
        return -1
    for i in range(<uint32_t>first):
        code[i] = order.settled[i] ^ i
    for i in range(<uint32_t>1 << order.bits):
        entry = &order.table[i]
        if entry.race == order.race and entry.position >= first:
            code[entry.position] = entry.row ^ entry.position
    order_free(order)
    order.code = code
    return 0


cdef inline int order_advance(order_t *order, bitgen_t *bits, int64_t first, int64_t count) noexcept nogil:
    """Settle positions first .. first + count - 1, given those before, by partial Fisher-Yates.

    `first` is 0 at the start of a race. Return 0, or -1 if memory is short; nothing is drawn then.
    """
    cdef uint32_t *code
    cdef uint32_t *longer
    cdef displaced_t *entry
    cdef uint32_t drawn[ORDER_BATCH]
    cdef uint32_t i, j, here
    cdef int64_t k, ahead, last = first + count
    if order.code == NULL:
        if first == 0:
            order.used = 0
            order.race += 1
            if order.race == 0:                     # after 2^32 races: what is old must not look new
                for i in range(<uint32_t>1 << order.bits):
                    order.table[i].race = 0
                order.race = 1
        if last > order.n // ORDER_SPARSE and order_keep(order, first):
            return -1
    if order.code != NULL:
        code = order.code
        for k in range(first, last):
            if (k - first) % ORDER_BATCH == 0:
                for ahead in range(k, min(k + ORDER_BATCH, last)):
                    drawn[ahead - k] = <uint32_t>ahead + bounded32(bits, <uint32_t>(order.n - ahead))
                    PREFETCH(&code[drawn[ahead - k]])
            i = <uint32_t>k
            j = drawn[(k - first) % ORDER_BATCH]
            here = code[i] ^ i
            code[i] = code[j] ^ j ^ i
            code[j] = here ^ j
        return 0
    if last > order.room:
        longer = <uint32_t *>realloc(order.settled, <size_t>(2 * last) * sizeof(uint32_t))
        if longer == NULL:
            return -1
        order.settled = longer
        order.room = 2 * last
    while 2 * (order.used + count) > <int64_t>1 << order.bits:
        if order_grow(order):
            return -1
    for k in range(first, last):
        if (k - first) % ORDER_BATCH == 0:
            for ahead in range(k, min(k + ORDER_BATCH, last)):
                j = <uint32_t>ahead + bounded32(bits, <uint32_t>(order.n - ahead))
                drawn[ahead - k] = j
                PREFETCH(&order.table[order_hash(<uint32_t>ahead, order.bits)])
                PREFETCH(&order.table[order_hash(j, order.bits)])
        i = <uint32_t>k
        j = drawn[(k - first) % ORDER_BATCH]
        entry = order_slot(order.table, order.bits, order.race, i)
        here = entry.row if entry.race == order.race else i
        entry = order_slot(order.table, order.bits, order.race, j)
        if entry.race != order.race:
            entry.race = order.race
            entry.position = j
            entry.row = j
            order.used += 1
        order.settled[i] = entry.row
        entry.row = here
    return 0
