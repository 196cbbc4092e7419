# cython: cdivision=True
"""Draw one of n arms in proportion to weights: an alias table for many draws from the same weights, a sum tree for
weights that change between draws."""


cdef struct alias_t:
    Py_ssize_t size
    double *share               # of its own cell that an arm keeps, in [0, 1]
    Py_ssize_t *other           # the arm that owns the rest of the cell
    Py_ssize_t *work


cdef inline void alias_build(alias_t *table, const double *weight, double total) noexcept nogil:
    """Make a table of weights >= 0 that add up to `total` > 0; O(n). Vose (1991)."""
    cdef Py_ssize_t n = table.size, i, few, n_few = 0, n_many = 0, many
    for i in range(n):
        table.share[i] = weight[i] * (n / total)
        table.other[i] = i
        if table.share[i] < 1.0:
            table.work[n_few] = i
            n_few += 1
        else:
            n_many += 1
            table.work[n - n_many] = i
    while n_few > 0 and n_many > 0:
        n_few -= 1
        few = table.work[n_few]
        many = table.work[n - n_many]
        table.other[few] = many
        table.share[many] = (table.share[many] + table.share[few]) - 1.0
        if table.share[many] < 1.0:
            n_many -= 1
            table.work[n_few] = many
            n_few += 1
    # What rounding leaves over is full.
    for i in range(n_few):
        table.share[table.work[i]] = 1.0
    for i in range(n_many):
        table.share[table.work[n - 1 - i]] = 1.0


cdef inline Py_ssize_t alias_draw(const alias_t *table, double uniform) noexcept nogil:
    """An arm, from one uniform number in [0, 1)."""
    cdef double x = uniform * table.size
    cdef Py_ssize_t cell = <Py_ssize_t>x
    return cell if x - cell < table.share[cell] else table.other[cell]


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
