# cython: cdivision=True
"""Indexed binary heaps: the first of a set of arms by a key that changes, O(log size) per change.

With `sign` +1 the top has the largest key, ties to the lower number; with -1 the smallest, ties to the higher number:
among arms in decreasing order of their keys, ties in order of their numbers, the first and the last.
"""

cdef struct heap_t:
    Py_ssize_t *item            # arms, the top first
    Py_ssize_t *place           # of an arm in `item`; heaps over disjoint sets may share it
    const double *key           # of an arm
    Py_ssize_t size
    double sign


cdef inline bint precedes(const double *key, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Whether arm a comes before arm b: larger key, or the lower number at a tie."""
    return key[a] > key[b] or (key[a] == key[b] and a < b)


cdef inline bint _above(const heap_t *heap, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    return precedes(heap.key, a, b) if heap.sign > 0 else precedes(heap.key, b, a)


cdef inline void _put(heap_t *heap, Py_ssize_t at, Py_ssize_t arm) noexcept nogil:
    heap.item[at] = arm
    heap.place[arm] = at


cdef inline void heap_down(heap_t *heap, Py_ssize_t at) noexcept nogil:
    """Move the arm at a place down to where its key belongs."""
    cdef Py_ssize_t arm = heap.item[at], child = 2 * at + 1
    while child < heap.size:
        if child + 1 < heap.size and _above(heap, heap.item[child + 1], heap.item[child]):
            child += 1
        if not _above(heap, heap.item[child], arm):
            break
        _put(heap, at, heap.item[child])
        at = child
        child = 2 * at + 1
    _put(heap, at, arm)


cdef inline void heap_sift(heap_t *heap, Py_ssize_t at) noexcept nogil:
    """Move the arm at a place up or down to where its key belongs."""
    cdef Py_ssize_t arm = heap.item[at], parent
    while at > 0:
        parent = (at - 1) // 2
        if not _above(heap, arm, heap.item[parent]):
            break
        _put(heap, at, heap.item[parent])
        at = parent
    _put(heap, at, arm)
    heap_down(heap, at)


cdef inline void heap_order(heap_t *heap) noexcept nogil:
    """Make a heap of the first `size` entries of `item`, in any order; O(size)."""
    cdef Py_ssize_t at
    for at in range(heap.size):
        heap.place[heap.item[at]] = at
    for at in range(heap.size // 2 - 1, -1, -1):
        heap_down(heap, at)             # nothing may move up yet: what is above is not in order


cdef inline void heap_exchange(heap_t *one, heap_t *other) noexcept nogil:
    """Exchange the tops of two heaps."""
    cdef Py_ssize_t arm = one.item[0]
    _put(one, 0, other.item[0])
    _put(other, 0, arm)
    heap_sift(one, 0)
    heap_sift(other, 0)
