"""What the stranger does with it; run in a process of its own, prints "done"."""

import pickle
import threading

import consumer
import numpy as np
from scipy import LowLevelCallable

import fastrace
from fastrace import mcmc
from fastrace.sources import CallbackSource, Source, as_source


def rewards(rows, arms):
    rows, arms = np.asarray(rows)[:, None], np.asarray(arms)
    return (rows * 7919 + arms * 104729) % 10007 / 10007.0 + 0.5 * arms


def read_it():
    source = consumer.Steps(4, 5003, support=(0.0, 2.5))
    assert isinstance(source, Source) and as_source(source) is source
    assert (source.n_arms, source.n_rows, source.support, source.first_look) == (4, 5003, (0.0, 2.5), 50)
    everything = rewards(range(5003), range(4))
    np.testing.assert_array_equal(source.read([17, 5002, 0], [3, 1]), everything[np.ix_([17, 5002, 0], [3, 1])])
    np.testing.assert_allclose(source.totals(), everything.sum(axis=0), rtol=1e-13)
    np.testing.assert_array_equal(source.shifts(), 0.0)
    for arm in range(4):
        np.testing.assert_allclose(consumer.mean(source, arm), everything[:, arm].mean(), rtol=1e-13)
    try:
        consumer.read_one(source, -5)
    except IndexError as error:
        assert str(error) == "row -5"
    else:
        raise AssertionError("the exception of a fill was lost")
    again = pickle.loads(pickle.dumps(source))      # by Cython's automatic pickling
    assert again.support == source.support
    np.testing.assert_array_equal(again.totals(), source.totals())


def read_it_in_threads():
    source = consumer.Steps(2, 200_003)
    found = []
    threads = [threading.Thread(target=lambda: found.append(consumer.mean(source, 1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [consumer.mean(source, 1)] * 4


def call_it():
    callback = LowLevelCallable.from_cython(consumer, "steps")
    source = CallbackSource(callback, 4, 5003)
    np.testing.assert_array_equal(source.read([17, 5002], [3, 1]), rewards([17, 5002], [3, 1]))


def race_it():
    source = consumer.Steps(4, 100_000, support=(0.0, 2.5))
    result = fastrace.race(source, delta=1e-6, rng=1)
    assert result.best == 3


def sample_it():
    """Chains over compiled terms of a stranger's are those over the same terms in NumPy."""
    y = np.random.default_rng(0).normal(0.4, 1.0, 2000)

    def make():
        theta = np.zeros((2, 1))
        return consumer.Location(y, theta), theta

    ours = mcmc.SourceModel(make, prior_sd=10.0)
    plain = mcmc.FunctionModel(lambda theta, rows: -0.5 * (y[rows] - theta[0]) ** 2, 1, 2000, prior_sd=10.0)
    for kernel, options in ((mcmc.Metropolis, {}), (mcmc.RacingMetropolis, {"first_look": 500, "growth": 2.0}),
                            (mcmc.RacingSlice, {"first_look": 2000})):
        draws = []
        for model in (ours, plain):
            made = kernel(model, covariance=[[5e-4]], **({**options, "scan_advantage": 1.0} if options else {}))
            draws.append(mcmc.sample(made, [y.mean()], n_draws=60, n_chains=2, n_tune=0, rng=1, threads=2).draws)
        np.testing.assert_allclose(draws[0], draws[1], rtol=0, atol=1e-9)
        assert draws[0].std() > 0.0


read_it()
read_it_in_threads()
call_it()
if hasattr(fastrace, "race"):
    race_it()
sample_it()
print("done")
