"""What tests of PyMC models share; a module that imports it is skipped without PyMC."""

import numpy as np
import pytest

pm = pytest.importorskip("pymc")
pt = pytest.importorskip("pytensor.tensor")

from fastrace import mcmc  # noqa: E402
from fastrace.mcmc.doors.pymc._graphs import RowGraphs  # noqa: E402
from fastrace.mcmc.doors.pymc._hierarchy import hierarchy  # noqa: E402
from fastrace.mcmc.doors.pymc._laws import OtherModelError  # noqa: E402

N = 60
RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(size=(N, 2)), "g": RNG.integers(0, 3, N), "o": RNG.normal(size=N), "y": RNG.normal(size=N),
        "k": RNG.integers(0, 2, N)}


def made(build, **options):
    """A model of `DATA` that a function of them writes, as `from_pymc` takes it."""
    with pm.Model() as model:
        build({name: pm.Data(name, value) for name, value in DATA.items()})
    return mcmc.from_pymc(model, **options)


def graphs_of(model):
    """The graphs of a model's rows in all its free variables, and these: no function is compiled."""
    values = [model.rvs_to_values[v] for v in model.free_RVs]
    return RowGraphs(model, model.observed_RVs, values, [], None, {}), values


def refused_as_hierarchy(model, words):
    """No `GLM` is read from the graph of a model, nor from numbers of parts of it, and the error has these words."""
    with pytest.raises(OtherModelError, match=words):
        hierarchy(*graphs_of(model))


def terms_less_those_of_pymc(ours, model, times):
    """At so many random points, shape (times, n_rows), and 1 more than the sizes of PyMC's terms."""
    own = model.compile_logp(vars=model.observed_RVs, sum=False, mode="FAST_COMPILE")
    source, arms = ours.engine(None)
    rng, differences, sizes = np.random.default_rng(1), [], []
    for _ in range(times):
        arms[0] = rng.normal(scale=0.4, size=ours.dim)
        theirs = own(ours.point(arms[0]))[0]
        differences.append(source.read(np.arange(ours.n_rows), [0])[:, 0] - theirs)
        sizes.append(1.0 + np.abs(theirs))
    return np.array(differences), np.array(sizes)
