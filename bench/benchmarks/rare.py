"""Many parameters for few rows, some columns of rare ones: posteriors that no expansion follows.

`mcmc.sample`, which chooses `mcmc.HMC` there, beside Hamiltonian Monte Carlo on a page of NumPy.
"""

import time

import numpy as np

from fastrace import mcmc

# Rows, columns, where the columns of 1 % ones begin, and the intercept that makes few outcomes 1.
TABLES = {"4,000 rows, 100 columns": (4_000, 100, 85, -3.0), "10,000 rows, 120 columns": (10_000, 120, 100, -3.5)}
PRIOR_SD = 2.0
CHAINS, TUNED, KEPT, STEPS = 8, 200, 500, 5  # of the page of NumPy


def table(name):
    n, dim, first, level = TABLES[name]
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, dim))
    X[:, 0], X[:, first:] = 1.0, rng.random((n, dim - first)) < 0.01
    theta = rng.normal(0.0, 0.15, dim)
    theta[0] = level
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ theta))).astype(float)


def model(name):
    return mcmc.GLM(*table(name), prior_sd=PRIOR_SD)


def by_numpy(name):
    """Effective draws, those of squares, seconds until chains are tuned, and of the rest: leapfrog.

    Units are those of the Hessian at the mode. All chains share each product with the rows. Tuning aims at .8
    accepted.
    """
    start = time.process_time()
    X, y = table(name)
    rng, theta = np.random.default_rng(1), np.zeros(X.shape[1])
    for _ in range(20):                                                 # Newton's method
        p = 1.0 / (1.0 + np.exp(-X @ theta))
        precision = X.T @ ((p * (1.0 - p))[:, None] * X) + np.eye(len(theta)) / PRIOR_SD**2
        theta = theta + np.linalg.solve(precision, X.T @ (y - p) - theta / PRIOR_SD**2)
    root = np.linalg.cholesky(np.linalg.inv(precision))

    def density(z):
        at = theta + z @ root.T
        eta = at @ X.T
        value = (y * eta - np.logaddexp(0.0, eta)).sum(axis=1) - np.square(at).sum(axis=1) / (2.0 * PRIOR_SD**2)
        return value, ((y - 1.0 / (1.0 + np.exp(-eta))) @ X - at / PRIOR_SD**2) @ root

    z, log_step, draws = rng.normal(size=(CHAINS, len(theta))), np.log(0.3), []
    value, slope = density(z)
    for t in range(TUNED + KEPT):
        if t == TUNED:
            tuned = time.process_time()
        step = np.exp(log_step) * rng.uniform(0.8, 1.2)
        velocity = rng.normal(size=z.shape)
        energy, at, pull = value - np.square(velocity).sum(axis=1) / 2.0, z, slope
        for _ in range(STEPS):
            velocity = velocity + step / 2.0 * pull
            at = at + step * velocity
            new, pull = density(at)
            velocity = velocity + step / 2.0 * pull
        accepted = np.exp(np.minimum(0.0, new - np.square(velocity).sum(axis=1) / 2.0 - energy))
        moved = rng.random(CHAINS) < accepted
        z, slope = np.where(moved[:, None], at, z), np.where(moved[:, None], pull, slope)
        value = np.where(moved, new, value)
        if t < TUNED:
            log_step += (accepted.mean() - 0.8) / (t + 1.0) ** 0.6
        else:
            draws.append(theta + z @ root.T)
    ended = time.process_time()
    kept = np.array(draws).transpose(1, 0, 2)
    effective = min(mcmc.effective_sample_size(kept[:, :, j]) for j in range(len(theta)))
    return effective, effective_of_squares(kept), tuned - start, ended - tuned


def effective_of_squares(draws):
    """Least effective number of draws of the squares of parameters about their means."""
    squares = np.square(draws - draws.mean(axis=(0, 1)))
    return min(mcmc.effective_sample_size(squares[:, :, j]) for j in range(draws.shape[2]))


class Rare:
    """Least effective number of draws of parameters and their squares a CPU second, set-up included."""

    params = (list(TABLES), ["sample", "numpy"])
    param_names = ["table", "way"]
    timeout = 120

    def track_effective_per_second(self, name, way):
        if way == "numpy":
            effective, squares, set_up, seconds = by_numpy(name)
            return min(effective, squares) / (set_up + seconds)
        start = time.process_time()
        trace = mcmc.sample(model(name), n_draws=2000, n_chains=2, rng=1, threads=1)
        took = time.process_time() - start
        return min(trace.ess().min(), effective_of_squares(trace.draws)) / took

    def track_gradients_per_step(self, name, way):
        if way == "numpy":
            return float(STEPS)
        return float(mcmc.sample(mcmc.HMC(model(name)), n_draws=300, n_chains=2, rng=1, threads=1).looks.mean())
