# cython: cdivision=True
"""Draw one of n arms in proportion to weights that change between draws: a sum tree, O(log n) a draw or a change.

For weights that stay, `_alias` draws in O(1).
"""


cdef struct sum_tree_t:
    Py_ssize_t size             # a power of 2, at least the number of arms
    double *sum                 # sum[1] of all; sum[k] = sum[2k] + sum[2k + 1]; the weights from sum[size] on


cdef inline Py_ssize_t sum_tree_size(Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t size = 1
    while size < n:
        size *= 2
    return size


cdef inline void sum_tree_build(sum_tree_t *tree) noexcept nogil:
    """Add up, after the weights have been written."""
    cdef Py_ssize_t k
    for k in range(tree.size - 1, 0, -1):
        tree.sum[k] = tree.sum[2 * k] + tree.sum[2 * k + 1]


cdef inline void sum_tree_set(sum_tree_t *tree, Py_ssize_t arm, double weight) noexcept nogil:
    """Change a weight. Sums are added again, never corrected by differences: no drift."""
    cdef Py_ssize_t k = tree.size + arm
    tree.sum[k] = weight
    k //= 2
    while k > 0:
        tree.sum[k] = tree.sum[2 * k] + tree.sum[2 * k + 1]
        k //= 2


cdef inline Py_ssize_t sum_tree_find(const sum_tree_t *tree, double *at) noexcept nogil:
    """The arm that owns the point `at` in [0, sum[1]); on return `at` counts from where its share begins.

    Never an arm of weight 0, whatever rounding does.
    """
    cdef Py_ssize_t k = 1
    cdef double left, x = at[0]
    cdef bint right
    while k < tree.size:
        k *= 2
        left = tree.sum[k]
        right = (x >= left) & (tree.sum[k + 1] > 0.0)
        x -= left if right else 0.0
        k += right
    at[0] = x
    return k - tree.size
