"""Learning curves as tables, and the schedulers of trainings that tests share."""

import numpy as np

from fastrace.model_selection import (
    ASHA,
    DAUB,
    DAUBHalving,
    FixedSubset,
    Hyperband,
    RandomChoice,
    SuccessiveHalving,
)


def tables(rng, n_learners, sizes, noise=0.01):
    """Training and validation scores with power-law curves and noise, shape (learners, sizes)."""
    n = np.asarray(sizes, float)
    top = rng.uniform(0.6, 1.0, (n_learners, 1))
    gap = rng.uniform(0.0, 2.0, (n_learners, 1)) * n ** -rng.uniform(0.2, 0.8, (n_learners, 1))
    valid = top - gap + noise * rng.standard_normal((n_learners, n.size))
    return np.minimum(top + gap, 1.0), valid


def drive(method, train, valid, sizes):
    place = {n: k for k, n in enumerate(sizes)}
    return method.run(lambda i, n: (train[i][place[n]], valid[i][place[n]]))


def methods(n_learners, n_rows, **options):
    """One of each, for what must hold of all."""
    return [
        DAUB(n_learners, n_rows, 50, 2.0, **options),
        DAUB(n_learners, n_rows, 50, 1.5, verify=True, curve=0.0, **options),
        SuccessiveHalving(n_learners, n_rows, **options),
        DAUBHalving(n_learners, n_rows, 100, growth=2.0, **options),
        FixedSubset(n_learners, n_rows, 100, **options),
        RandomChoice(n_learners, n_rows, 4, rng=1, **options),
        Hyperband(n_learners, n_rows, 100, rng=1, **options),
        ASHA(n_learners, n_rows, 100, **options),
    ]


def scores(learner, n):
    """A curve for each learner; the larger ones are better in the end."""
    final = 0.5 + 0.01 * learner
    return final + 1.0 / n, final - 0.1 * (1.0 + 7 * learner % 5) / n**0.5
