"""What tests of PyMC models share; a module that imports it is skipped without PyMC."""

import pytest

pm = pytest.importorskip("pymc")
pt = pytest.importorskip("pytensor.tensor")

from fastrace.mcmc.doors.pymc._graphs import RowGraphs  # noqa: E402
from fastrace.mcmc.doors.pymc._hierarchy import hierarchy  # noqa: E402
from fastrace.mcmc.doors.pymc._laws import OtherModelError  # noqa: E402


def graphs_of(model):
    """The graphs of a model's rows in all its free variables, and these: no function is compiled."""
    values = [model.rvs_to_values[v] for v in model.free_RVs]
    return RowGraphs(model, model.observed_RVs, values, [], None, {}), values


def refused_as_hierarchy(model, words):
    """No `GLM` is read from the graph of a model, nor from numbers of parts of it, and the error has these words."""
    with pytest.raises(OtherModelError, match=words):
        hierarchy(*graphs_of(model))
