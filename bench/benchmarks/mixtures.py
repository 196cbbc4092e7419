"""Mixtures of regressions over groups of rows: labels alone, and the whole mixture, in CPU time a sweep.

`python -m benchmarks.mixtures` in bench/ prints all of it side by side, each kernel in turn, in one run.
"""

import functools
import time

import numpy as np

from fastrace import mcmc
from fastrace.likelihoods import GLMSource

# family: groups, rows of each, classes, columns; and how far classes are apart, a standard deviation of a coefficient
SHAPES = {"logistic": (100, 10_000, 20, 20), "student-t": (60, 10_000, 8, 5)}
SHAPES |= {f"{family}, scales unknown": (60, 10_000, 4, 5) for family in ("gaussian", "student-t")}
APART = {"logistic": (0.005, 0.01, 0.03, 0.1), "student-t": (0.5, 0.05, 0.01)}
SWEEPS = {"surrogate": 200, "surrogate, exact": 20, "race": 3, "numpy": 3}


@functools.lru_cache(maxsize=1)
def problem(family, apart, rows=None):
    """Rows in the order of groups, and the parameters of the classes."""
    n_groups, size, n_classes, dim = SHAPES[family]
    size = rows or size
    rng = np.random.default_rng([20160624, n_groups, dim])
    theta = rng.standard_normal(dim) / np.sqrt(dim) + apart * rng.standard_normal((n_classes, dim))
    label, X = rng.integers(n_classes, size=n_groups), rng.standard_normal((n_groups * size, dim))
    X[:, 0] = 1.0
    eta = np.concatenate([X[g * size:(g + 1) * size] @ theta[label[g]] for g in range(n_groups)])
    if family == "logistic":
        y = rng.random(len(X)) < 1.0 / (1.0 + np.exp(-eta))
    else:
        noise = rng.standard_normal(len(X)) if family.startswith("gaussian") else rng.standard_t(4.0, len(X))
        scale = np.exp(0.3 * rng.standard_normal(n_classes)) if "unknown" in family else np.ones(n_classes)
        y = eta + scale[np.repeat(label, size)] * noise
    return X, np.asarray(y, dtype=float), np.repeat(np.arange(n_groups), size), theta


def model_of(family, X, y):
    if "unknown" in family:
        prior = {f"x{j}": mcmc.Normal(0.0, 2.5) for j in range(X.shape[1])}
        return mcmc.GLM(X, y, family.split(",")[0], prior=prior, scale_prior=mcmc.HalfStudentT(4.0, 1.0))
    return mcmc.GLM(X, y, family, **({} if family == "logistic" else {"scale": 1.0}), prior_sd=2.5)


def by_numpy(family, X, y, group, theta, rng):
    """Labels given the parameters, from the sums over all rows, by one product of matrices."""
    eta = X @ theta.T
    terms = y[:, None] * eta - np.logaddexp(0.0, eta) if family == "logistic" \
        else -2.5 * np.log1p((y[:, None] - eta) ** 2 / 4.0)
    sums = np.add.reduceat(terms, np.flatnonzero(np.diff(group, prepend=-1)), axis=0)
    return (sums + rng.gumbel(size=sums.shape)).argmax(axis=1)


def gaussian_by_numpy(X, y, group, n_classes, rng, by_rows):
    """A function for one exact sweep over labels, parameters, scales and weights of Gaussian regressions.

    Labels come from a pass over all rows, or from products of the groups' columns and outcomes, which are summed once.
    """
    first, d = np.flatnonzero(np.diff(group, prepend=-1)), X.shape[1]
    n, squares = np.diff(np.append(first, len(y))), np.add.reduceat(y * y, first)
    grams = np.stack([x.T @ x for x in np.split(X, first[1:])])
    crosses = np.stack([x.T @ z for x, z in zip(np.split(X, first[1:]), np.split(y, first[1:]), strict=True)])
    theta, scale, weight = rng.standard_normal((n_classes, d)), np.ones(n_classes), np.full(n_classes, 1.0 / n_classes)

    def log_prior(t):
        return t - 2.5 * np.log1p(np.exp(2.0 * t) / 4.0)

    def left(gram, cross, square, at):
        return square - 2.0 * cross @ at + at @ gram @ at

    def sweep():
        nonlocal weight
        if by_rows:
            totals = np.add.reduceat((y[:, None] - X @ theta.T) ** 2, first, axis=0)
        else:
            totals = squares[:, None] - 2.0 * crosses @ theta.T + np.einsum("gab,ka,kb->gk", grams, theta, theta)
        score = np.log(weight) - n[:, None] * np.log(scale) - 0.5 * totals / scale**2
        label = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
        for k in range(n_classes):
            own = label == k
            gram, cross, rows = grams[own].sum(axis=0), crosses[own].sum(axis=0), n[own].sum()
            root = np.linalg.cholesky(gram / scale[k] ** 2 + np.eye(d) / 6.25)
            mean = np.linalg.solve(root.T, np.linalg.solve(root, cross / scale[k] ** 2))
            theta[k] = mean + np.linalg.solve(root.T, rng.standard_normal(d))
            if not rows:
                scale[k] = abs(rng.standard_t(4.0))
                continue
            new = np.sqrt(left(gram, cross, squares[own].sum(), theta[k]) / rng.chisquare(rows))
            if log_prior(np.log(new)) - log_prior(np.log(scale[k])) > -rng.standard_exponential():
                scale[k] = new
        weight = rng.dirichlet(1.0 + np.bincount(label, minlength=n_classes))

    return sweep


def label_sweeps(name, family, apart, rows=None):
    """A function that draws all labels so often, and the kernel with its state, if it has one."""
    X, y, group, theta = problem(family, apart, rows)
    rng, n = np.random.default_rng(1), SWEEPS[name]
    if name == "numpy":
        return lambda: [by_numpy(family, X, y, group, theta, rng) for _ in range(n)]
    if name == "race":
        first = np.append(np.flatnonzero(np.diff(group, prepend=-1)), len(y))
        scale = None if family == "logistic" else 1.0
        kernel = mcmc.RacingGibbs([
            mcmc.Categorical(len(theta), GLMSource(X[a:b], y[a:b], theta, family, scale, check_finite=False))
            for a, b in zip(first[:-1], first[1:], strict=True)])
    else:
        given = mcmc.MixtureOf(model_of(family, X, y), group, len(theta), parameters=theta, weights=np.ones(len(theta)))
        kernel = mcmc.SurrogateGibbs(given, "exact" if "exact" in name else "poisson")
    state = kernel.run(rng, kernel.init(rng=rng), 2)[0]
    return lambda: kernel.run(rng, state, n)


class Labels:
    """Milliseconds of CPU time for the labels of all groups, given the parameters; "race" is `RacingGibbs` on the terms
    of each group, "numpy" sums all terms by a product of matrices."""

    params = (list(SWEEPS), [f"{family} {apart}" for family in APART for apart in APART[family]])
    param_names = ["kernel", "problem"]
    timeout = 600.0

    def setup(self, name, words):
        family, apart = words.rsplit(" ", 1)
        self.run, self.n = label_sweeps(name, family, float(apart)), SWEEPS[name]

    def track_milliseconds_per_sweep(self, name, words):
        start = time.process_time()
        self.run()
        return 1e3 * (time.process_time() - start) / self.n

    def track_acceptance(self, name, words):
        if not name.startswith("surrogate"):
            return np.nan
        decided = self.run()[0].decisions
        return float(decided[1] / decided[0]) if decided[0] else 1.0


class Mixtures:
    """Labels, parameters and weights; seconds to expand the groups, milliseconds a sweep, acceptance of parameters."""

    params = ["logistic 0.005", "logistic 0.03", "logistic 0.1", "student-t 0.05", "gaussian, scales unknown 0.05",
              "student-t, scales unknown 0.05"]
    param_names = ["problem"]
    timeout = 600.0

    def setup(self, words):
        family, apart = words.rsplit(" ", 1)
        X, y, group, theta = problem(family, float(apart))
        start = time.process_time()
        mixture = mcmc.MixtureOf(model_of(family, X, y), group, len(theta))
        self.seconds = time.process_time() - start
        self.kernel, self.rng = mcmc.SurrogateGibbs(mixture), np.random.default_rng(1)
        self.state, _ = self.kernel.run(self.rng, self.kernel.init(rng=1), 100, tune=True)

    def track_seconds_to_expand(self, words):
        return self.seconds

    def track_milliseconds_per_sweep(self, words):
        start = time.process_time()
        self.kernel.run(self.rng, self.state, 200)
        return 1e3 * (time.process_time() - start) / 200

    def track_acceptance(self, words):
        decided = self.kernel.run(self.rng, self.state, 200)[0].decisions
        return float(decided[3] / decided[2])


def main():
    for words in Labels.params[1]:
        line = []
        for name in SWEEPS:
            bench = Labels()
            bench.setup(name, words)
            line.append(f"{name} {bench.track_milliseconds_per_sweep(name, words):8.3f} ms")
            if name == "surrogate":
                line.append(f"(accepted {bench.track_acceptance(name, words):.3f})")
        print(f"labels, {words:16s}", *line, flush=True)
    for words in Mixtures.params:
        bench = Mixtures()
        bench.setup(words)
        took = bench.track_milliseconds_per_sweep(words)
        print(f"mixture, {words:16s} set-up {bench.seconds:.2f} s, {took:.3f} ms a sweep, accepted "
              f"{bench.track_acceptance(words):.3f}", flush=True)
    X, y, group, theta = problem("gaussian, scales unknown", 0.05)
    for by_rows, n in ((True, 10), (False, 1000)):
        sweep = gaussian_by_numpy(X, y, group, len(theta), np.random.default_rng(1), by_rows)
        start = time.process_time()
        for _ in range(n):
            sweep()
        print(f"mixture, gaussian, scales unknown 0.05, NumPy {'by all rows' if by_rows else 'by sums of each group'}: "
              f"{1e3 * (time.process_time() - start) / n:.3f} ms a sweep", flush=True)


if __name__ == "__main__":
    main()
