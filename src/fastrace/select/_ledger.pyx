"""Which cells of a population a selection has read, so that none of them is paid for twice."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_build, guard_built
from fastrace.sources cimport Source

import numpy as np

from fastrace._base import _checks
from fastrace._base._answers import take_apart

cnp.import_array()

cdef int64_t MOST_CELLS = <int64_t>1 << 62      # that have a number
cdef int64_t MOST_BITS = <int64_t>1 << 33       # a GiB of marks
cdef int64_t NONE = -1


def keeps_rewards(source):
    """Whether rewards of a source are kept once they were read, as each is paid for or the marks would be too large."""
    return bool(source.reward_cost == np.inf or source.n_rows * source.n_arms > MOST_BITS)


cdef class Ledger(Source):
    """A population whose cells, a row of an arm each, are paid for once: it knows which have been read.

    Where reading is cheap, as in a table in memory, it marks cells by a bit each, 1/64 of a table of doubles, and
    memory is only taken for pages with marks. Where it is paid for, it `keeps` the rewards too, in 24 to 48 bytes per
    cell read, and never asks for one again. A ledger is saved without the population; `over` gives it one.

    Invariant: ``n_known[arm]`` counts the cells of the arm that are marked or kept. Only `fill`, `forget` and the
    rebuilding of a saved one change it.
    """

    cdef readonly object population
    cdef Source source
    cdef readonly bint keeps
    cdef readonly cnp.ndarray n_known
    cdef int64_t *known
    cdef cnp.ndarray _bits, _key, _value
    cdef uint8_t *bits              # cell c is bit c % 8 of byte c // 8; of ledgers that keep nothing
    cdef int64_t *key               # of a table of kept rewards, of `mask + 1` places: cell, or NONE
    cdef double *value
    cdef uint64_t mask
    cdef int64_t used

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def __init__(self, n_arms, n_rows, keeps):
        if n_arms * n_rows > MOST_CELLS:
            raise ValueError(f"the population has {n_rows} rows of {n_arms} arms; at most 2^62 cells can be told apart")
        super().__init__(n_arms, n_rows)
        guard_build(&self.guard, 1, self)
        self.keeps = keeps
        self.n_known = np.zeros(self.n_arms, np.int64)
        self.known = <int64_t *>cnp.PyArray_DATA(self.n_known)
        if keeps:
            self._make_room(64)
        else:
            self._bits = np.zeros((self.n_arms * self.n_rows + 7) // 8, np.uint8)
            self.bits = <uint8_t *>cnp.PyArray_DATA(self._bits)
        guard_built(&self.guard, 1)

    def over(self, Source population not None):
        """Read this population from now on; it must have as many rows and arms."""
        if population.n_rows != self.n_rows or population.n_arms != self.n_arms:
            raise ValueError("the ledger is of a population of another shape")
        self.population = self.source = population
        return self

    def __reduce__(self):
        if self.keeps:
            there = self._key >= 0
            order = np.argsort(self._key[there])
            return _rebuild_ledger.saved(self.n_arms, self.n_rows, True, self._key[there][order],
                                         self._value[there][order])
        cells = int(self.n_known.sum())
        if 64 * cells < self.n_arms * self.n_rows:
            bits = np.flatnonzero(self._bits)
            at, place = np.nonzero(np.unpackbits(self._bits[bits], bitorder="little").reshape(-1, 8))
            return _rebuild_ledger.saved(self.n_arms, self.n_rows, False, 8 * bits[at] + place, None)
        return _rebuild_ledger.saved(self.n_arms, self.n_rows, False, self._bits.copy(), None)

    def _restore(self, cells, values):
        """Take what `__reduce__` saved."""
        cdef int64_t[::1] cell
        cdef double[::1] reward
        cdef Py_ssize_t i
        n_cells = self.n_arms * self.n_rows
        if cells.dtype == np.uint8:
            if self.keeps or cells.shape != (self._bits.size,) or (n_cells % 8 and cells[-1] >> n_cells % 8):
                raise ValueError("its marks cannot be right")
            cells = np.flatnonzero(np.unpackbits(cells, bitorder="little"))
        if not (cells.ndim == 1 and cells.dtype == np.int64 and (np.diff(cells) > 0).all()
                and (not cells.size or (0 <= cells[0] and cells[-1] < n_cells))
                and (values is None) != self.keeps
                and (values is None or (values.dtype == np.float64 and values.shape == cells.shape))):
            raise ValueError("its cells cannot be right")
        cell = np.ascontiguousarray(cells)
        if self.keeps:
            reward = np.ascontiguousarray(values)
            for i in range(cell.shape[0]):
                self._keep(cell[i], reward[i])
        else:
            for i in range(cell.shape[0]):
                self._mark(cell[i])
        return self

    # Marks.

    cdef void _mark(self, int64_t cell) noexcept nogil:
        cdef uint8_t bit = <uint8_t>(1 << (cell & 7))
        if not self.bits[cell >> 3] & bit:
            self.bits[cell >> 3] |= bit
            self.known[cell // self.n_rows] += 1

    # Rewards that are kept: a table with open addressing, at most two thirds full.

    cdef int _make_room(self, int64_t size) except -1:
        """Let the table have `size` places, a power of two, all free."""
        self._key, self._value = np.full(size, NONE, np.int64), np.empty(size)
        self.key = <int64_t *>cnp.PyArray_DATA(self._key)
        self.value = <double *>cnp.PyArray_DATA(self._value)
        self.mask = <uint64_t>size - 1
        self.used = 0
        return 0

    cdef uint64_t _place(self, int64_t cell) noexcept nogil:
        """Where the cell is, or the free place where it would go."""
        cdef uint64_t at = (<uint64_t>cell * <uint64_t>0x9E3779B97F4A7C15)
        at = (at ^ (at >> 32)) & self.mask
        while self.key[at] != cell and self.key[at] != NONE:
            at = (at + 1) & self.mask
        return at

    cdef int _keep(self, int64_t cell, double reward) except -1:
        cdef uint64_t at = self._place(cell)
        if self.key[at] == cell:
            return 0
        if 3 * (self.used + 1) > 2 * <int64_t>(self.mask + 1):
            keys, values = self._key, self._value
            self._make_room(2 * <int64_t>(self.mask + 1))
            self._move(keys, values)
            at = self._place(cell)
        self.key[at] = cell
        self.value[at] = reward
        self.used += 1
        self.known[cell // self.n_rows] += 1
        return 0

    cdef int _move(self, cnp.ndarray keys, cnp.ndarray values) except -1:
        """Put what another table holds into this one."""
        cdef int64_t *key = <int64_t *>cnp.PyArray_DATA(keys)
        cdef double *value = <double *>cnp.PyArray_DATA(values)
        cdef Py_ssize_t i
        cdef uint64_t at
        for i in range(keys.shape[0]):
            if key[i] != NONE:
                at = self._place(key[i])
                self.key[at] = key[i]
                self.value[at] = value[i]
                self.used += 1
        return 0

    def forget(self, low, high, bint missing):
        """Let rewards that a rule has refused be asked for again: those outside [low, high] of their arm, and nan."""
        if not self.keeps:
            return
        there = self._key >= 0
        keys, values = self._key[there], self._value[there]
        arm = keys // self.n_rows
        slack = 1e-12 * (high - low)[arm]       # `stream_slack`
        with np.errstate(invalid="ignore"):
            good = (values >= low[arm] - slack) & (values <= high[arm] + slack)
        good |= missing & np.isnan(values)
        if good.all():
            return
        self._make_room(self._key.size)
        self._move(np.ascontiguousarray(keys[good]), np.ascontiguousarray(values[good]))
        self.n_known[:] = np.bincount(keys[good] // self.n_rows, minlength=self.n_arms)

    # Reading.

    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil:
        cdef Py_ssize_t i, j
        if self.source is None:
            with gil:
                raise ValueError("the ledger has no population to read; give it one by over(population)")
        if self.keeps:
            with gil:
                return self._fill_kept(rows, n_rows, arms, n_arms, out)
        self.source.fill(rows, n_rows, arms, n_arms, out)
        for j in range(n_arms):
            for i in range(n_rows):
                self._mark(<int64_t>arms[j] * self.n_rows + rows[i])
        return 0

    cdef int _fill_kept(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                        double **out) except -1:
        """Ask for the cells that have not been read, each once, then take all from the table.

        Arms that lack the same rows are asked for in one call; each call that answers is kept, whatever the next does.
        """
        cdef cnp.ndarray lacking = np.empty(n_rows, np.int64)
        cdef int64_t *lack = <int64_t *>cnp.PyArray_DATA(lacking)
        cdef Py_ssize_t i, j, n
        groups = {}
        for j in range(n_arms):
            n = 0
            for i in range(n_rows):
                if self.key[self._place(<int64_t>arms[j] * self.n_rows + rows[i])] == NONE:
                    lack[n] = rows[i]
                    n += 1
            if n > 0:
                groups.setdefault(lacking[:n].tobytes(), []).append(arms[j])
        for wanted, of in groups.items():
            self._ask(np.frombuffer(wanted, np.int64), of)
        for j in range(n_arms):
            for i in range(n_rows):
                out[j][i] = self.value[self._place(<int64_t>arms[j] * self.n_rows + rows[i])]
        return 0

    cdef int _ask(self, rows, of) except -1:
        """Read rows, some of them drawn more than once, of arms, and keep the rewards."""
        cdef cnp.ndarray row, block, arm = np.array(of, np.intp)
        cdef Py_ssize_t i, j, n, n_arms = arm.shape[0]
        cdef double **columns
        if rows.size > 1:
            first = np.unique(rows, return_index=True)[1]
            rows = rows[np.sort(first)]         # in the order of the draws
        row = np.array(rows)
        n = row.shape[0]
        block = np.empty((n_arms, n))
        columns = <double **>malloc(n_arms * sizeof(double *))
        if columns == NULL:
            raise MemoryError()
        try:
            for j in range(n_arms):
                columns[j] = <double *>cnp.PyArray_DATA(block) + j * n
            try:
                with nogil:
                    self.source.fill(<const int64_t *>cnp.PyArray_DATA(row), n,
                                     <const Py_ssize_t *>cnp.PyArray_DATA(arm), n_arms, columns)
            except Exception as error:      # of entries that are no numbers: the others were paid for
                apart = take_apart(error, self.source)
                for i, j in () if apart is None else np.argwhere(apart.read).tolist():
                    self._keep(<int64_t>of[j] * self.n_rows + <int64_t>row[i], apart.rewards[i, j])
                raise
            for j in range(n_arms):
                for i in range(n):
                    self._keep(<int64_t>of[j] * self.n_rows + (<int64_t *>cnp.PyArray_DATA(row))[i], columns[j][i])
        finally:
            free(columns)
        return 0


@_checks.rebuilds(1, Ledger)
def _rebuild_ledger(n_arms, n_rows, keeps, cells, values):
    """Rebuild a pickled `Ledger`, without its population."""
    if not (isinstance(n_arms, int) and isinstance(n_rows, int) and isinstance(keeps, bool)
            and isinstance(cells, np.ndarray) and (keeps or n_arms * n_rows <= MOST_BITS)):
        raise ValueError("it names no population")
    return Ledger(n_arms, n_rows, keeps)._restore(cells, values)
