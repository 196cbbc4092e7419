"""Objects saved in mid-run by each release, and how each goes on. `python tests/golden/make.py` saves those of today.

A file, once released, is never made again: it is what a user may have on disk.
"""

import pickle
import sys
from pathlib import Path

import numpy as np

import fastrace as fr

HERE = Path(__file__).parent
SEED = 20160619


def rewards():
    return np.random.default_rng(SEED).random((5000, 4)) + [0.0, 0.01, 0.02, 0.0]


def differences():
    return np.random.default_rng(SEED).normal(0.01, 1.0, 2000)


def raced(**options):
    """A race of three looks, and the rest of it."""
    def start():
        race = fr.FiniteRace(4, 5000, rng=SEED, **options)
        for _ in range(3):
            arms, rows = race.ask()
            race.tell(rewards()[np.ix_(rows, arms)])
        return race
    return start, lambda race: _facts(race.run(rewards()))


def pulled():
    race = fr.LilUCB(4, 5000, support=(0.0, 1.02), rng=SEED)
    race.run(rewards(), max_pulls=200)
    return race


def drawn():
    sampler = fr.DiscreteSampler(rewards()[:400] * 0.01, rng=SEED)
    sampler.draw_many(5)
    return sampler


def decided():
    test = fr.AcceptTest(differences(), rng=SEED)
    for _ in range(5):
        test.decide(0.0)
    return test


def counted():
    moments = fr.RunningMoments(n_arms=4)
    moments.update_many(rewards())
    return moments


def _facts(result):
    return result.best, result.stopped_by, result.pulls.tolist(), result.mean.tolist()


def _decisions(test):
    return [(bool(test.decide(x)), test.n_read) for x in (-300.0, 0.0, 20.0, 100.0)]


GOLDEN = {      # name: how it is made, what it answers when it goes on
    "finite_race_betting": raced(support=(0.0, 1.02)),
    "finite_race_normal": raced(),
    "lil_ucb": (pulled, lambda race: _facts(race.run(rewards()))),
    "discrete_sampler": (drawn, lambda sampler: sampler.draw_many(20).tolist()),
    "accept_test": (decided, _decisions),
    "running_moments": (counted, lambda moments: (moments.count.tolist(), moments.variance().tolist())),
}


def save():
    folder = HERE / fr.__version__
    folder.mkdir(exist_ok=True)
    for name, (make, go_on) in GOLDEN.items():
        saved = pickle.dumps(make(), protocol=4)
        (folder / f"{name}.pickle").write_bytes(pickle.dumps((saved, go_on(pickle.loads(saved))), protocol=4))


if __name__ == "__main__":
    sys.exit(save())
