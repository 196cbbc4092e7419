# cython: cdivision=True
"""Moments of each column of a table, or of the differences of one column to each: any strides, no copy."""

from libc.math cimport isfinite
from libc.stdint cimport int64_t

from fastrace._base._signals cimport check_signals
from fastrace._math._moments cimport MOMENTS_BLOCK, running_extend, running_push, running_t

cdef extern from "_gather.h" nogil:
    void fr_gather_f64(const char *x, Py_ssize_t row_stride, Py_ssize_t arm_stride, const int64_t *rows, int64_t first,
                       Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) noexcept
    void fr_gather_f32(const char *x, Py_ssize_t row_stride, Py_ssize_t arm_stride, const int64_t *rows, int64_t first,
                       Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) noexcept

cdef enum:
    GROUP = 8                   # arms per sweep: a cache line of doubles, and their blocks stay in the second cache
    PUSHES = 4                  # rows up to which one at a time is faster than a block
    VALUES_PER_CHECK = 1 << 18  # between two looks at pending signals


cdef struct table_t:            # rows by arms
    const char *data
    Py_ssize_t row_stride, arm_stride, n_arms, leader      # leader: -1, or take its reward minus each arm's
    bint single
    double *block               # (GROUP + 2) * MOMENTS_BLOCK doubles: the leader, a group of arms, a difference


cdef inline void table_columns(const table_t *t, int64_t first, Py_ssize_t count, Py_ssize_t arm, Py_ssize_t n_arms,
                               double *room, const double **out) noexcept nogil:
    """out[j] = rewards of arm + j on rows first .. first + count - 1: where they lie, or copied to `room`."""
    cdef double *to[GROUP]
    cdef Py_ssize_t numbers[GROUP]
    cdef Py_ssize_t i, j
    cdef const char *start = t.data + first * t.row_stride
    cdef const float *narrow
    for j in range(n_arms):
        to[j] = room + j * MOMENTS_BLOCK
        out[j] = to[j]
        numbers[j] = arm + j
    if t.single and t.row_stride == sizeof(float):
        for j in range(n_arms):
            narrow = <const float *>(start + (arm + j) * t.arm_stride)
            for i in range(count):
                to[j][i] = narrow[i]
    elif t.single:
        fr_gather_f32(start, t.row_stride, t.arm_stride, NULL, 0, count, numbers, n_arms, to)
    elif t.row_stride == sizeof(double):
        for j in range(n_arms):
            out[j] = <const double *>(start + (arm + j) * t.arm_stride)
    else:
        fr_gather_f64(start, t.row_stride, t.arm_stride, NULL, 0, count, numbers, n_arms, to)


cdef inline bint table_accumulate(const table_t *t, int64_t first, Py_ssize_t n_rows, running_t *state) noexcept nogil:
    """Add rows to the state of each arm. False when one of them is then not finite."""
    cdef const double *columns[GROUP]
    cdef const double *lead[1]
    cdef const double *values
    cdef double *difference = t.block + (GROUP + 1) * MOMENTS_BLOCK
    cdef Py_ssize_t start = 0, count, arm, n_arms, i, j
    cdef bint finite = True
    while start < n_rows:
        count = min(<Py_ssize_t>MOMENTS_BLOCK, n_rows - start)
        if t.leader >= 0:
            table_columns(t, first + start, count, t.leader, 1, t.block, lead)
        arm = 0
        while arm < t.n_arms:
            n_arms = min(<Py_ssize_t>GROUP, t.n_arms - arm)
            table_columns(t, first + start, count, arm, n_arms, t.block + MOMENTS_BLOCK, columns)
            for j in range(n_arms):
                values = columns[j]
                if t.leader >= 0:
                    for i in range(count):
                        difference[i] = lead[0][i] - values[i]
                    values = difference
                if count > PUSHES:
                    running_extend(&state[arm + j], values, count)
                else:
                    for i in range(count):
                        running_push(&state[arm + j], values[i])
            arm += n_arms
        start += count
    for j in range(t.n_arms):
        finite = finite and isfinite(state[j].m2)
    return finite


cdef inline Py_ssize_t table_stretch(Py_ssize_t n_arms) noexcept nogil:
    """Rows between two looks at pending signals: whole blocks if the arms are few."""
    cdef Py_ssize_t rows = VALUES_PER_CHECK // n_arms
    return rows // MOMENTS_BLOCK * MOMENTS_BLOCK if rows >= MOMENTS_BLOCK else max(rows, <Py_ssize_t>16)


cdef inline int64_t table_run(const table_t *t, int64_t n_rows, running_t *state) except -2 nogil:
    """Add all rows. Return -1, or the first row of the stretch after which something is not finite."""
    cdef int64_t first = 0
    cdef Py_ssize_t count
    cdef Py_ssize_t stretch = table_stretch(t.n_arms)
    while first < n_rows:
        count = <Py_ssize_t>min(<int64_t>stretch, n_rows - first)
        if not table_accumulate(t, first, count, state):
            return first
        first += count
        if first < n_rows:
            check_signals()
    return -1
