"""A log-likelihood of one's own, four ways: NumPy, Numba, C and Cython, in races and in chains of full passes.

The model: n numbers with Student-t errors of 4 degrees of freedom about an unknown centre, and an unknown scale. Each
way gives the same terms; `fastrace.mcmc` asks for those rows that a decision needs. With the derivatives of the terms,
which are asked for once, at the mode, a race reads a handful.

    python examples/own_terms.py            # a million numbers
    python examples/own_terms.py --quick
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import LowLevelCallable

from fastrace import mcmc
from fastrace.sources import CallbackSource

# Parameters and data lie in one array: centre and log scale of the chain, those of the proposal, then the numbers.
C_SOURCE = """
#include <math.h>
#include <stdint.h>
int terms(double *out, intptr_t n_rows, const int64_t *rows, intptr_t arm, void *data)
{
    const double *theta = (const double *)data + 2 * arm, *y = (const double *)data + 4;
    double inverse = exp(-theta[1]);
    for (intptr_t i = 0; i < n_rows; i++) {
        double z = (y[rows[i]] - theta[0]) * inverse;
        out[i] = -theta[1] - 2.5 * log1p(0.25 * z * z);
    }
    return 0;
}
"""

CYTHON_SOURCE = """
# cython: language_level=3, cdivision=True, boundscheck=False
from libc.math cimport exp, log1p

cdef api int terms(double *out, Py_ssize_t n_rows, const Py_ssize_t *rows, Py_ssize_t arm, void *data) noexcept nogil:
    cdef const double *theta = <const double *>data + 2 * arm
    cdef const double *y = <const double *>data + 4
    cdef double inverse = exp(-theta[1]), z
    cdef Py_ssize_t i
    for i in range(n_rows):
        z = (y[rows[i]] - theta[0]) * inverse
        out[i] = -theta[1] - 2.5 * log1p(0.25 * z * z)
    return 0
"""


def terms(y):
    """The terms in NumPy."""

    def of(theta, rows):
        z = (y[rows] - theta[0]) * np.exp(-theta[1])
        return -theta[1] - 2.5 * np.log1p(0.25 * z * z)

    return of


def derivatives(y):
    """Gradients and Hessians of the terms; asked for when the model is set up, so NumPy will do."""

    def of(theta, rows):
        s = np.exp(-theta[1])
        z = (y[rows] - theta[0]) * s
        once, twice = -5.0 * z / (4.0 + z * z), -5.0 * (4.0 - z * z) / (4.0 + z * z) ** 2
        hessian = np.empty((len(rows), 2, 2))
        hessian[:, 0, 0] = s * s * twice
        hessian[:, 0, 1] = hessian[:, 1, 0] = s * (once + z * twice)
        hessian[:, 1, 1] = z * once + z * z * twice
        return np.stack([-s * once, -1.0 - z * once], axis=1), hessian

    return of


def compiler():
    """A C compiler, or None."""
    return shutil.which(os.environ.get("CC", "cc").split()[0]) or shutil.which("gcc")


def by_numba(folder):
    """A `cfunc`, as a function of the address of its data."""
    import numba

    types = numba.types
    form = types.int32(types.CPointer(types.float64), types.intp, types.CPointer(types.int64), types.intp,
                       types.CPointer(types.float64))

    @numba.cfunc(form)
    def function(out, n_rows, rows, arm, data):
        centre, log_scale = data[2 * arm], data[2 * arm + 1]
        inverse = np.exp(-log_scale)
        for i in range(n_rows):
            z = (data[4 + rows[i]] - centre) * inverse
            out[i] = -log_scale - 2.5 * np.log1p(0.25 * z * z)
        return 0

    signature = "int (double *, intptr_t, int64_t *, intptr_t, void *)"
    return lambda address: LowLevelCallable(function.ctypes, address, signature)


def by_c(folder):
    """A shared library."""
    if compiler() is None:
        raise ImportError("no C compiler was found")
    (folder / "own.c").write_text(C_SOURCE)
    library = folder / "own.so"
    subprocess.run([compiler(), "-O2", "-shared", "-fPIC", "-o", library, folder / "own.c", "-lm"], check=True)
    function = ctypes.CDLL(str(library)).terms
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_int64),
                         ctypes.c_ssize_t, ctypes.c_void_p]
    return lambda address: LowLevelCallable(function, address)


def by_cython(folder):
    """A function that an extension exports. One that cimports `fastrace.sources.Source` does too."""
    import Cython  # noqa: F401

    if compiler() is None:
        raise ImportError("no C compiler was found")
    (folder / "own_terms_cython.pyx").write_text(CYTHON_SOURCE)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    subprocess.run([sys.executable, "-m", "cython", "-3", folder / "own_terms_cython.pyx"], check=True)
    subprocess.run([compiler(), "-O2", "-shared", "-fPIC", "-I", sysconfig.get_paths()["include"], "-o",
                    folder / f"own_terms_cython{suffix}", folder / "own_terms_cython.c", "-lm"], check=True)
    sys.path.insert(0, str(folder))
    import own_terms_cython

    return lambda address: LowLevelCallable.from_cython(own_terms_cython, "terms", address)


def callback_model(y, callback_of):
    """A model over a compiled function: each chain has parameters and data of its own."""
    alive = []

    def make():
        data = np.concatenate([np.zeros(4), y])
        alive.append(data)      # the callback holds an address, not the array
        return CallbackSource(callback_of(ctypes.c_void_p(data.ctypes.data)), 2, len(y)), data[:4].reshape(2, 2)

    return mcmc.SourceModel(make, derivatives=derivatives(y))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10^5 numbers and short chains")
    parser.add_argument("--rows", type=int, help="how many numbers")
    options = parser.parse_args(arguments)
    n_rows = options.rows or (100_000 if options.quick else 1_000_000)
    n_draws = 500 if options.quick else 5000
    rng = np.random.default_rng(1)
    y = 1.0 + 2.0 * rng.standard_t(4.0, n_rows)
    print(f"{n_rows} numbers; centre 1, log scale {np.log(2.0):.4f}")
    print(f"{'terms in':>8} {'chain':>10} {'centre':>8} {'log scale':>9} {'ess/s':>8} {'us/step':>9} {'rows/step':>10}")
    with tempfile.TemporaryDirectory() as name:
        for way, build in (("NumPy", None), ("Numba", by_numba), ("C", by_c), ("Cython", by_cython)):
            try:
                model = (mcmc.FunctionModel(terms(y), 2, n_rows, derivatives=derivatives(y)) if build is None
                         else callback_model(y, build(Path(name))))
            except ImportError as error:
                print(f"{way:>8} left out: {error}")
                continue
            reference = model.reference()
            for label, kernel, n in (
                ("race", mcmc.RacingMetropolis(model, control_variate=reference), n_draws),
                ("full pass", mcmc.Metropolis(model, control_variate=reference), n_draws // 50),
            ):
                started = time.process_time()
                trace = mcmc.sample(kernel, n_draws=n, n_chains=1, n_tune=0, rng=1)
                spent = time.process_time() - started
                centre, log_scale = trace.draws.mean(axis=(0, 1))
                print(f"{way:>8} {label:>10} {centre:8.4f} {log_scale:9.4f} {trace.ess().min() / spent:8.0f} "
                      f"{1e6 * spent / n:9.1f} {trace.rows.mean():10.0f}", flush=True)


if __name__ == "__main__":
    main()
