"""Arms of unequal size that tests of races of sums share."""

import numpy as np

import fastrace as fr


def sampled(rewards, *args, **options):
    """A race that reads arms only as far as their comparisons need."""
    return fr.race_sums(rewards, *args, **{"scan_advantage": 1, **options})


def racer(sizes, *args, **options):
    return fr.UnequalRace(sizes, *args, **{"scan_advantage": 1, **options})


def clusters(rng, n_arms=None, most=2000):
    """Normal factors in clusters whose sizes follow a power law, and the constants of a Gibbs step."""
    n_arms = int(rng.integers(2, 60)) if n_arms is None else n_arms
    sizes = np.minimum(most, np.floor(rng.random(n_arms) ** -1.0)).astype(int)
    return [rng.normal(rng.normal(0.0, 0.2), 1.0, n) for n in sizes], rng.gumbel(size=n_arms)


def exact(vectors, offset, temperature=1.0):
    return int(np.argmax([c + v.sum() / temperature for v, c in zip(vectors, offset, strict=True)]))


def same(a, b):
    assert (a.best, a.stopped_by, a.n_looks) == (b.best, b.stopped_by, b.n_looks)
    for name in ("pulls", "total", "half_width", "active", "lower", "upper", "n_rows"):
        assert np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True), name


def by_hand(race, vectors):
    while not race.done:
        arms, rows = race.ask()
        race.tell([vectors[arm][row] for arm, row in zip(arms, rows, strict=True)])
    return race.result()
