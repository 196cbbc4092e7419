"""Whatever a user can hold is saved at any moment and goes on to the same bits: in a copy, a new process, a worker."""

import copy
import pickle

import numpy as np
import pytest

import catalogue
import elsewhere
import fastrace as fr
from catalogue import STEPS

OBJECTS = pytest.mark.parametrize("name", catalogue.OBJECTS)


def work(thing, plan):
    """Pieces of work in this order, and what the object shows after each."""
    return [catalogue.step(thing, k) for k in plan]


def go_on(made):
    """The rest of their plans, by objects that were saved."""
    return [work(pickle.loads(saved), plan) for saved, plan in made]


def cuts(names, many, seed):
    """Objects saved in the middle of random plans of work, with the rest of the plan and what it must show."""
    for name in names:
        fresh = pickle.dumps(catalogue.made(name))
        for child in np.random.SeedSequence([seed, len(name)]).spawn(many):
            rng = np.random.default_rng(child)
            plan = [0, *rng.integers(0, STEPS, 7).tolist()]
            cut = int(rng.integers(1, len(plan)))
            thing = pickle.loads(fresh)
            work(thing, plan[:cut])
            saved = pickle.dumps(thing)
            yield name, saved, plan[cut:], work(thing, plan[cut:])


def test_every_public_class_is_made_and_works(seed):
    """A class that fails here needs a line in `MADE`, or a reason in `LEFT_OUT`, of `tests/catalogue.py`."""
    for name in catalogue.OBJECTS:
        facts = []
        for _ in range(2):
            thing = catalogue.made(name)
            facts.append(work(thing, range(STEPS)))
        assert isinstance(thing, catalogue.public_classes()[name])
        assert facts[0] == facts[1], f"{name} is not the same twice"
    named = {*catalogue.MADE, *catalogue.LEFT_OUT} - {"mcmc.PyMCModel"}
    assert named <= set(catalogue.public_classes()), "classes that are gone"


@OBJECTS
def test_pickles_of_every_protocol_and_copies_go_on_to_the_same_bits(name, seed):
    cloudpickle = pytest.importorskip("cloudpickle")
    ways = [lambda thing, p=p: pickle.loads(pickle.dumps(thing, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    ways += [lambda thing: pickle.loads(cloudpickle.dumps(thing)), copy.deepcopy, copy.copy]
    cut = int(np.random.default_rng([seed, len(name)]).integers(STEPS))
    thing = catalogue.made(name)
    work(thing, range(cut))
    others = [way(thing) for way in ways[:-1]]
    facts = work(thing, range(cut, STEPS))
    for other in others:
        assert type(other) is type(thing)
        assert work(other, range(cut, STEPS)) == facts
    thing = catalogue.made(name)            # a shallow copy may share what both draw from
    work(thing, range(cut))
    assert work(copy.copy(thing), range(cut, STEPS)) == facts


@pytest.mark.parametrize(("names", "many"), [
    pytest.param(catalogue.OBJECTS, 2, id="all, 2 moments"),
    *(pytest.param(catalogue.OBJECTS[i::8], 200, id=f"part {i + 1}, 200 moments", marks=pytest.mark.long)
      for i in range(8))])
def test_objects_saved_at_random_moments_go_on_in_a_new_process(names, many, seed):
    made = list(cuts(names, many, seed))
    found = elsewhere.call(go_on, [(saved, plan) for _, saved, plan, _ in made])
    assert len(found) == len(made) == many * len(names)
    for (name, _, plan, wanted), facts in zip(made, found, strict=True):
        assert facts == wanted, (name, plan)


def test_objects_go_on_in_the_workers_of_joblib(seed):
    joblib = pytest.importorskip("joblib")
    made = list(cuts(catalogue.OBJECTS, 1, seed))
    jobs = [joblib.delayed(work)(pickle.loads(saved), plan) for _, saved, plan, _ in made]
    found = joblib.Parallel(n_jobs=2)(jobs)
    for (name, _, plan, wanted), facts in zip(made, found, strict=True):
        assert facts == wanted, (name, plan)


@OBJECTS
def test_a_truncated_pickle_says_so(name, seed):
    saved = pickle.dumps(catalogue.made(name))
    for cut in np.random.default_rng(seed).integers(0, len(saved), 20).tolist():
        with pytest.raises((EOFError, pickle.UnpicklingError, ValueError, IndexError, AttributeError)) as raised:
            pickle.loads(saved[:cut])
        assert str(raised.value)


# A save in one piece: whatever another thread does meanwhile comes before it or after it, or is refused.


class Meddling(np.random.Generator):
    """A generator that lets others at the object whose save copies it, as the interpreter may at any moment."""

    work = None

    def __deepcopy__(self, memo):
        if self.work is not None:
            with pytest.raises(RuntimeError, match="in use"):
                self.work()
        return np.random.Generator(copy.deepcopy(self.bit_generator, memo))


TABLE = np.random.default_rng(5).random((2000, 4)) + [0.0, 0.01, 0.02, 0.0]


def _half_read(race):
    """A stream race that has used 100 rows of a table in random order, and what would use more."""
    def rewards(arms, rows):
        if race.n_rounds == 100:
            raise OSError
        return TABLE[np.ix_(rows, arms)]

    rng = Meddling(np.random.PCG64(1))
    with pytest.raises(OSError):
        race.run(fr.sources.as_source(rewards, 4, len(TABLE)), rng=rng)
    return race, rng, lambda: race.run(TABLE)


def _half_raced():
    rng = Meddling(np.random.PCG64(1))
    race = fr.FiniteRace(4, len(TABLE), support=(0, 1.02), rng=rng)
    arms, rows = race.ask()
    race.tell(TABLE[np.ix_(rows, arms)])
    return race, rng, lambda: race.run(TABLE)


def _half_drawn():
    rng = Meddling(np.random.PCG64(1))
    sampler = fr.DiscreteSampler(TABLE * 0.01, rng=rng)
    sampler.draw_many(3)
    return sampler, rng, lambda: sampler.draw_many(3)


@pytest.mark.parametrize("make", [
    _half_raced, _half_drawn,
    lambda: _half_read(fr.BettingRace(4, support=(0, 1.02))),
    lambda: _half_read(fr.BernsteinRace(4, 2000, support=(0, 1.02))),
    lambda: _half_read(fr.HoeffdingRace(4, 2000, support=(0, 1.02))),
], ids=["FiniteRace", "DiscreteSampler", "BettingRace", "BernsteinRace", "HoeffdingRace"])
def test_a_save_is_of_one_moment(make):
    """State and random numbers of different moments would go on with other rows, in silence."""
    thing, rng, work = make()
    rng.work = work
    saved = pickle.dumps(thing)
    rng.work = None
    again = pickle.loads(saved)
    if isinstance(thing, fr.DiscreteSampler):
        assert again.draw_many(3).tolist() == thing.draw_many(3).tolist()
    else:
        here, there = again.run(TABLE), thing.run(TABLE)
        assert (here.pulls.tolist(), here.mean.tolist()) == (there.pulls.tolist(), there.mean.tolist())
