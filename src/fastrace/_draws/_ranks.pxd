# cython: cdivision=True
"""Who is first: a tree of losers (Knuth 1998, sec. 5.4.1) over items 0 .. size - 1, ties to the lower number.

``tree[0]`` is the item with the largest key, ``tree[at]`` the one that lost at inner node `at` on its way up. When the
first item's key changes, its path alone is played again: the nodes on it are known beforehand and no branch depends on
a key, so that it takes half the time of a binary heap.
"""

cdef struct rank_t:
    double key
    Py_ssize_t item


cdef inline void ranks_replay(rank_t *tree, Py_ssize_t size, double key) noexcept nogil:
    """Give the first item a new key, larger or smaller; O(log size)."""
    cdef Py_ssize_t item = tree[0].item, at = (item + size) // 2, other_item
    cdef double other_key
    cdef bint beaten
    while at > 0:
        other_key = tree[at].key
        other_item = tree[at].item
        beaten = (other_key > key) | ((other_key == key) & (other_item < item))
        tree[at].key = key if beaten else other_key
        tree[at].item = item if beaten else other_item
        key = other_key if beaten else key
        item = other_item if beaten else item
        at //= 2
    tree[0].key = key
    tree[0].item = item


cdef inline void ranks_clear(rank_t *tree, Py_ssize_t size) noexcept nogil:
    """An empty tree, to be filled by one `ranks_enter` for each item."""
    cdef Py_ssize_t at
    for at in range(size):
        tree[at].item = -1


cdef inline void ranks_enter(rank_t *tree, Py_ssize_t size, Py_ssize_t item, double key) noexcept nogil:
    """Let an item climb until it meets nobody: it waits there for the winner of the other side. No key is nan."""
    cdef Py_ssize_t at = (item + size) // 2
    cdef rank_t climbing, waiting
    climbing.key = key
    climbing.item = item
    while at > 0:
        waiting = tree[at]
        if waiting.item < 0:
            tree[at] = climbing
            return
        if waiting.key > climbing.key or (waiting.key == climbing.key and waiting.item < climbing.item):
            tree[at] = climbing
            climbing = waiting
        at //= 2
    tree[0] = climbing


cdef inline double kth_largest(double *x, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
    """The k-th largest of n numbers, k = 1 .. n, none of them nan; their order is lost. O(n) on average.

    Hoare (1961).
    """
    cdef Py_ssize_t low = 0, high = n - 1, i, j, want = k - 1
    cdef double pivot
    while low < high:
        pivot = x[(low + high) // 2]
        i = low
        j = high
        while i <= j:
            while x[i] > pivot:
                i += 1
            while x[j] < pivot:
                j -= 1
            if i <= j:
                x[i], x[j] = x[j], x[i]
                i += 1
                j -= 1
        if want <= j:
            high = j
        elif want >= i:
            low = i
        else:
            break
    return x[want]
