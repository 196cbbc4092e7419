"""Which coefficients of a logistic model are in it: effective draws a CPU second of the set, set-up counted.

`VariableSelection` stands beside what one writes in NumPy in an afternoon, which reads all rows for each coefficient
that it tries, and beside PyMC: Bernoulli indicators by `BinaryGibbsMetropolis`, times normal coefficients by NUTS.
`python -m benchmarks.variable_selection` in bench/ prints all. Draws of the rivals are few: it takes minutes for them.
"""

import argparse
import functools
import time
import warnings

import numpy as np

from fastrace import mcmc

N_ROWS, N_COLUMNS, SLAB, SHARE = 100_000, 20, 0.3, 0.3
SLABS = {"normal": mcmc.Normal(0.0, SLAB), "student-t": mcmc.StudentT(4.0, 0.0, SLAB)}


@functools.lru_cache(maxsize=1)
def problem(n_rows=N_ROWS):
    """Columns, of which the first is constant, and outcomes; some of the coefficients are hardly to be told from 0."""
    rng = np.random.default_rng(20161128)
    X = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, N_COLUMNS))])
    beta = np.concatenate([[-0.5], np.linspace(0.0, 0.06, N_COLUMNS)])
    return X, (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-X @ beta))).astype(float)


def kernel_of(slab, X, y):
    prior = {"x0": mcmc.Normal(0.0, 2.5)} | {f"x{j}": SLABS[slab] for j in range(1, X.shape[1])}
    return mcmc.VariableSelection(mcmc.GLM(X, y, prior=prior), SHARE)


def by_numpy(X, y, n_sweeps, rng, slab=SLAB, share=SHARE):
    """Sweeps over coefficients: one that is in goes out, or comes in, by Metropolis-Hastings on all rows; then a walk.

    A value comes in from a normal density about the maximum of a Newton step in it, given all others.
    """
    n, p = X.shape
    beta, draws = np.zeros(p), np.empty((n_sweeps, p))
    eta = X @ beta
    squares = np.square(X).T.copy()

    def log_likelihood(eta):
        return y @ eta - np.logaddexp(0.0, eta).sum()

    def proposal(j, rest):
        """Mean and precision of the normal density of coefficient j, expanded where it is 0."""
        q = 1.0 / (1.0 + np.exp(-rest))
        precision = squares[j] @ (q * (1.0 - q)) + slab**-2
        return X[:, j] @ (y - q) / precision, precision

    here = log_likelihood(eta)
    for t in range(n_sweeps):
        for j in range(p):
            rest = eta - X[:, j] * beta[j]
            mean, precision = proposal(j, rest)
            new = 0.0 if beta[j] and j else mean + rng.standard_normal() / np.sqrt(precision)

            def leave(b, j=j, mean=mean, precision=precision):
                """Log prior over proposal of a value that is in; of 0 nothing."""
                width = 2.5 if j == 0 else slab
                if b == 0.0 and j:
                    return 0.0
                return (-0.5 * (b / width) ** 2 - np.log(width) + 0.5 * precision * (b - mean) ** 2
                        - 0.5 * np.log(precision) + (np.log(share / (1.0 - share)) if j else 0.0))

            moved = rest + X[:, j] * new
            there = log_likelihood(moved)
            if np.log(rng.random()) < there - here + leave(new) - leave(beta[j]):
                beta[j], eta, here = new, moved, there
        draws[t] = beta
    return draws


def by_pymc(X, y, n_draws, seed):
    import pymc as pm

    with pm.Model():
        inside = pm.Bernoulli("inside", SHARE, shape=X.shape[1] - 1)
        b = pm.Normal("b", 0.0, SLAB, shape=X.shape[1] - 1)
        base = pm.Normal("base", 0.0, 2.5)
        pm.Bernoulli("y", logit_p=base + X[:, 1:] @ (inside * b), observed=y)
        trace = pm.sample(n_draws, tune=n_draws, chains=1, cores=1, random_seed=seed, progressbar=False)
    return trace.posterior["inside"].to_numpy()[0]


def least_ess(inside):
    """Of the indicators that are not nearly always or never in, and of their number; draws of shape (n, p)."""
    undecided = inside[:, np.abs(inside.mean(axis=0) - 0.5) < 0.45].astype(float)
    return min(mcmc.effective_sample_size(column) for column in (*undecided.T, inside.sum(axis=1).astype(float)))


class SpikeAndSlab:
    params = ["normal", "student-t"]
    param_names = ["slab"]
    timeout = 600

    def setup(self, slab):
        self.X, self.y = problem()
        self.kernel = kernel_of(slab, self.X, self.y)
        self.state = self.kernel.init(None, 1)

    def time_thousand_steps(self, slab):
        self.kernel.run(np.random.default_rng(1), self.state, 1000)

    def track_rows_a_step(self, slab):
        return float(self.kernel.run(np.random.default_rng(1), self.state, 1000)[1].rows.mean())

    def track_effective_draws_a_step(self, slab):
        draws = self.kernel.run(np.random.default_rng(1), self.state, 5000)[1].draws
        return least_ess(draws[:, 1:] != 0.0) / 5000.0


class ByNumpy:
    """A sweep of the dull way."""

    timeout = 600

    def setup(self):
        self.X, self.y = problem()

    def time_sweep(self):
        by_numpy(self.X, self.y, 1, np.random.default_rng(1))


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draws", type=int, default=20_000, help="of ours; rivals make --sweeps")
    options.add_argument("--sweeps", type=int, default=200)
    options.add_argument("--pymc", type=int, default=300, help="draws of PyMC, and as many that tune; 0: none")
    asked = options.parse_args()
    X, y = problem()
    warnings.simplefilter("ignore")

    def show(name, make):
        began = time.process_time()
        inside, more = make()
        seconds = time.process_time() - began
        ess = least_ess(inside)
        print(f"{name}: {ess:.0f} effective of {len(inside)} draws in {seconds:.2f} CPU s, {ess / seconds:.3g} a "
              f"second; mean size {inside.sum(axis=1).mean():.2f}{more}", flush=True)

    for slab in SLABS:
        def ours(slab=slab):
            kernel = kernel_of(slab, X, y)
            _, steps = kernel.run(np.random.default_rng(1), kernel.init(None, 1), asked.draws)
            return steps.draws[:, 1:] != 0.0, f"; {kernel.decision}, {steps.rows.mean():.0f} rows a step"
        show(f"VariableSelection, {slab} slab", ours)
    show("NumPy, normal slab", lambda: (by_numpy(X, y, asked.sweeps, np.random.default_rng(1))[20:, 1:] != 0.0, ""))
    if asked.pymc:
        show("PyMC, normal slab", lambda: (by_pymc(X, y, asked.pymc, 1) != 0, ""))


if __name__ == "__main__":
    main()
