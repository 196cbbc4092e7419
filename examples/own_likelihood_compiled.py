"""Your own likelihood as compiled code: a C function, raced without the interpreter.

The terms are those of `own_likelihood.py`. A compiled callback gets a block of row numbers and writes one number
for each. Parameters and data lie in one array: those of the chain and of the proposal in front. A `numba.cfunc`
of the same form works too.

The dull way, NumPy, wins where a step reads many rows at once: it costs the same then.
"""

import argparse
import ctypes
import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from own_likelihood import student_terms
from scipy import LowLevelCallable

from fastrace import mcmc
from fastrace.sources import CallbackSource

C_SOURCE = """
#include <math.h>
#include <stdint.h>
int terms(double *out, intptr_t n_rows, const int64_t *rows, intptr_t arm, void *data)
{
    const double *theta = (const double *)data + 2 * arm, *y = (const double *)data + 4;
    for (intptr_t i = 0; i < n_rows; i++) {
        double z = (y[rows[i]] - theta[0]) * exp(-theta[1]);
        out[i] = -theta[1] - 2.5 * log1p(0.25 * z * z);
    }
    return 0;
}
"""


def compiled(folder):
    """The function of a shared library."""
    (folder / "own.c").write_text(C_SOURCE)
    compiler = [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-shared", "-fPIC"]
    subprocess.run([*compiler, "-o", folder / "own.so", folder / "own.c", "-lm"], check=True)
    function = ctypes.CDLL(str(folder / "own.so")).terms
    function.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_int64),
                         ctypes.c_ssize_t, ctypes.c_void_p]
    return function


def main(plot=None):
    y = 1.0 + 2.0 * np.random.default_rng(9).standard_t(4.0, 300_000)
    (terms, derivatives), rates = student_terms(y), {}
    with tempfile.TemporaryDirectory() as folder:
        function, alive = compiled(Path(folder)), []

        def make():                             # each chain has parameters and data of its own
            alive.append(np.concatenate([np.zeros(4), y]))      # the callback holds an address, not the array
            callback = LowLevelCallable(function, ctypes.c_void_p(alive[-1].ctypes.data))
            return CallbackSource(callback, 2, len(y)), alive[-1][:4].reshape(2, 2)

        numpy_model = mcmc.FunctionModel(terms, 2, len(y), derivatives=derivatives)
        for way, model in (("NumPy", numpy_model), ("C", mcmc.SourceModel(make, derivatives=derivatives))):
            kernel = mcmc.RacingMetropolis(model, control_variate=model.reference())
            start = time.process_time()
            mcmc.sample(kernel, n_draws=2000, n_chains=1, n_tune=0, rng=1)
            rates[way] = 2000 / (time.process_time() - start)
            print(f"{way:6s} {rates[way]:9.0f} steps a second")
    if plot:
        from matplotlib import pyplot

        pyplot.figure(figsize=(5, 4)).gca().bar(list(rates), list(rates.values()))
        pyplot.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
