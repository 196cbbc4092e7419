"""What a row costs by source, beside the dull way: random and in order, compiled and Python."""

import ctypes

import numpy as np
from scipy import LowLevelCallable
from scipy.special import log_expit

from fastrace.control_variates import taylor_glm
from fastrace.likelihoods import GLMSource, PairSource
from fastrace.sources import ArraySource, CallableSource, CallbackSource

READ = 1 << 14      # rows per read: enough to hide the cost of the call from Python


class Array:
    """10^6 x 10 rewards: read READ rows, sum all of them."""

    params = (["float32", "float64"], ["C", "F"])
    param_names = ["dtype", "order"]

    def setup(self, dtype, order):
        rng = np.random.default_rng(20160619)
        self.values = np.asarray(rng.standard_normal((1_000_000, 10)), dtype=dtype, order=order)
        self.source = ArraySource(self.values)
        self.random = rng.integers(0, len(self.values), READ)
        self.ordered = np.arange(READ) + int(rng.integers(0, len(self.values) - READ))

    def time_random_rows(self, dtype, order):
        self.source.read(self.random)

    def time_rows_in_order(self, dtype, order):
        self.source.read(self.ordered)

    def time_random_rows_numpy(self, dtype, order):
        np.asarray(self.values[self.random], dtype=np.float64)

    def time_all_rows(self, dtype, order):
        self.source.totals()

    def time_all_rows_numpy(self, dtype, order):
        self.values.sum(axis=0, dtype=np.float64)


class Logistic:
    """log-likelihoods of two parameter vectors on 10^6 rows: all rows against NumPy and SciPy, and READ rows."""

    params = ([5, 20], ["float32", "float64"])
    param_names = ["p", "dtype"]

    def setup(self, p, dtype):
        rng = np.random.default_rng(20160619)
        self.X = rng.standard_normal((1_000_000, p)).astype(dtype)
        self.theta = 0.1 * rng.standard_normal((2, p))
        self.y = (rng.random(len(self.X)) < 0.5).astype(np.float64)
        self.sign = 2.0 * self.y - 1.0
        self.columns = self.theta.astype(dtype)
        self.source = GLMSource(self.X, self.y, self.theta)
        self.pair = PairSource(self.source)
        self.control = taylor_glm(self.source, self.theta.mean(axis=0), outliers=0.001)
        self.random = rng.integers(0, len(self.X) // 2, READ)
        self.ordered = np.arange(READ)

    def time_all_rows(self, p, dtype):
        self.pair.totals()

    def time_all_rows_numpy(self, p, dtype):
        low, high = (np.logaddexp(0.0, -self.sign * (self.X @ theta)).sum() for theta in self.columns)
        return low - high

    def time_all_rows_scipy(self, p, dtype):
        low, high = (log_expit(self.sign * (self.X @ theta)).sum() for theta in self.columns)
        return high - low

    def time_random_rows(self, p, dtype):
        self.pair.read(self.random)

    def time_rows_in_order(self, p, dtype):
        self.pair.read(self.ordered)

    def time_random_rows_numpy(self, p, dtype):
        X, sign = self.X[self.random], self.sign[self.random]
        low, high = (np.logaddexp(0.0, -sign * (X @ theta)) for theta in self.columns)
        return low - high

    def time_random_residuals(self, p, dtype):
        self.control.read(self.random)

    def time_shift_of_residuals(self, p, dtype):
        self.control.shifts()

    def time_new_parameters(self, p, dtype):
        self.source.set_theta(self.theta)


class Callback:
    """One compiled function called without the GIL against the same in Python, by rows per call."""

    params = [50, 256, 8192]
    param_names = ["rows"]

    def setup(self, rows):
        try:
            import numba
        except ImportError as error:
            raise NotImplementedError("numba is not installed") from error
        types = numba.types

        @numba.cfunc(types.int32(types.CPointer(types.float64), types.intp, types.CPointer(types.int64), types.intp,
                                 types.voidptr))
        def compiled(out, n_rows, rows, arm, data):
            for i in range(n_rows):
                out[i] = np.abs(rows[i] - 1000.0 * arm)
            return 0

        self.kept = compiled
        self.compiled = CallbackSource(LowLevelCallable(compiled.ctypes, ctypes.c_void_p(0)), 2, 1_000_000)
        self.python = CallableSource(lambda arms, rows: np.abs(rows[:, None] - 1000.0 * arms), 2, 1_000_000)
        self.rows = np.arange(rows)

    def time_compiled(self, rows):
        self.compiled.read(self.rows)

    def time_python(self, rows):
        self.python.read(self.rows)
