"""PyMC models written with plain arrays: which of them run over rows, and what cannot be taken row by row."""

import numpy as np
import pytest
from by_pymc import pm, pt
from scipy import stats
from scipy.sparse import csr_matrix

from fastrace import mcmc
from fastrace.mcmc.doors.pymc import _graphs

N = 60
RNG = np.random.default_rng(0)
DATA = {"x": RNG.normal(size=(N, 2)), "g": RNG.integers(0, 3, N), "o": RNG.normal(size=N), "y": RNG.normal(size=N),
        "k": RNG.integers(0, 2, N), "each": RNG.permutation(N), "w": RNG.normal(size=N)}


def varying(d):
    """A hierarchy with initial values, a table of the groups, and a Deterministic of the rows."""
    a = pm.Normal("a", 0.0, pm.HalfNormal("tau", initval=1.0), shape=3, initval=np.zeros(3))
    mean = pm.Normal("level") + np.array([1.0, 2.0, 3.0]) * pm.Normal("slope")
    b = pm.Normal("b", mean, pm.HalfNormal("sd"), shape=3)
    eta = pm.Deterministic("eta", a[d["g"]] + b[d["g"]] * d["o"] + d["x"] @ pm.Normal("c", shape=2))
    pm.Poisson("obs", pm.math.exp(eta), observed=d["k"])


def columns(d):
    """Slices of a constant, and whole numbers as the outcome of a normal distribution."""
    b, x = pm.Normal("b", shape=3), pt.as_tensor(d["x"])
    pm.Normal("obs", b[0] + b[1] * x[:, 0] + b[2] * d["x"][:, 1], pm.HalfNormal("s"), observed=d["k"])


def transposed(d):
    pm.Normal("obs", pm.Normal("b", dims="column") @ d["x"].T, 1.0, observed=d["y"], dims="row")


def standardised(d):
    x = pt.as_tensor(d["o"])
    pm.Normal("obs", pm.Normal("a") + pm.Normal("b") * (x - x.mean()) / x.std(), 1.0, observed=d["y"])


def as_many_groups_as_rows(d):
    """Numbers of the groups inside and outside the prior of their effects, and each is as long as there are rows."""
    mean = pm.Normal("m") + pm.Normal("c") * d["w"] + pm.HalfNormal("t") * pm.Normal("z", shape=N)
    eta = mean[d["each"]] + pm.Normal("e") * pt.as_tensor(d["w"])[d["each"]]
    pm.Normal("obs", eta + d["o"], 1.0, observed=d["y"])


def softmax(d):
    pm.Categorical("obs", logit_p=d["x"] @ pm.Normal("b", shape=(2, 3)), observed=d["g"])


def spread(d):
    """Arrays that PyTensor makes, and a standard deviation for each row."""
    pm.Normal("obs", pt.ones(N) * pm.Normal("b") + pt.cumsum(d["o"]), np.exp(d["o"]), observed=d["y"])


def own_entry(d):
    p = pm.math.softmax(d["x"] @ pm.Normal("b", shape=(2, 3)), axis=1)
    pm.Normal("obs", p[np.arange(N), d["g"]], 1.0, observed=d["y"])


def several_columns(d):
    pm.Normal("obs", pm.Normal("b", shape=2), pm.HalfNormal("s"), observed=d["x"])


def joint(d):
    pm.MvNormal("obs", pt.stack([d["o"], d["y"]], axis=1) * pm.Normal("b", shape=2), chol=np.eye(2), observed=d["x"])


def lagged(d):
    y = pt.as_tensor(d["y"])
    pm.StudentT("obs", nu=4.0, mu=pm.Normal("b") * y[:-1], sigma=1.0, observed=d["y"][1:])


def as_frame(d):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"o": d["o"], "g": d["g"], "y": d["y"]}, index=np.arange(N)[::-1])
    pm.Normal("obs", pm.Normal("a", shape=3)[frame["g"].to_numpy()] + pm.Normal("b") * frame["o"],
              1.0, observed=frame["y"])


def mixed(d):
    """Some by pm.Data, some as they are; a table among the former is as long as there are rows."""
    table = pm.Data("table", d["w"])
    pm.Normal("obs", pm.Normal("b") * d["o"] + table[7], 1.0, observed=pm.Data("Y", d["y"]))


def of_groups(d):
    """A regression of the groups, whose sum over columns is no addition of two things."""
    w = np.random.default_rng(5).standard_normal((3, 2))
    pm.Normal("obs", (pm.Normal("a", shape=2) * w).sum(axis=1)[d["g"]], 1.0, observed=d["y"])


def written(build):
    with pm.Model(coords={"row": range(N), "column": range(2)}) as model:
        build(DATA)
    return model


@pytest.mark.parametrize("build", [varying, columns, transposed, standardised, as_many_groups_as_rows, softmax, spread,
                                   own_entry, several_columns, joint, lagged, as_frame, mixed, of_groups])
def test_terms_of_any_rows_are_those_of_the_model_itself(build):
    """PyMC's own log-density of each row, at points and rows at random; arrays are not copied."""
    model = written(build)
    ours = mcmc.from_pymc(model, rows=["Y"] if build is mixed else None)
    own, rng = model.compile_logp(vars=model.observed_RVs, sum=False, mode="FAST_COMPILE"), np.random.default_rng(1)
    for size in (1, 7, ours.n_rows, 200):
        theta, rows = rng.normal(scale=0.5, size=ours.dim), rng.integers(0, ours.n_rows, size)
        whole = own(ours.point(theta))[0].reshape(ours.n_rows, -1).sum(axis=1)
        np.testing.assert_allclose(ours.terms(theta, rows), whole[rows], rtol=1e-9, atol=1e-12)
    found = ours._graphs.constants.found
    assert all(c.get_value(borrow=True).shape[0] == ours.n_rows for c in found)
    value = model.rvs_to_values[model["obs"]]
    if hasattr(value, "data"):
        assert any(np.shares_memory(c.get_value(borrow=True), value.data) for c in found)


def by_data(build):
    with pm.Model() as model:
        build({name: pm.Data(name, value) for name, value in DATA.items()})
    return model


def test_chains_are_those_of_the_same_model_with_data():
    """Recognised alike, number by number; PyMC's names, and no entry for each row in what is recorded."""
    ours, other = (mcmc.from_pymc(model) for model in (written(varying), by_data(varying)))
    assert ours.describe() == other.describe() and "poisson" in repr(ours)
    one, two = (mcmc.sample(model, n_draws=30, n_chains=2, n_tune=20, rng=1) for model in (ours, other))
    np.testing.assert_array_equal(one.draws, two.draws)
    assert set(ours.unpack(one)) == {"a", "tau", "level", "slope", "b", "sd", "c"}
    assert ours.unpack(one.draws[:, :2], ["eta"])["eta"].shape == (2, 2, N)


def bounded(d):
    a = pm.Deterministic("a", pm.Normal("mu") + pm.HalfNormal("tau") * pm.Normal("z", shape=2))
    eta = a[d["k"]] + pm.Normal("b") * d["o"]
    pm.Bernoulli("obs", p=0.05 + 0.9 * pm.math.sigmoid(eta), observed=d["k"])


def test_what_rows_see_may_be_named():
    ours, other = (mcmc.from_pymc(model, through=["a", "b"]) for model in (written(bounded), by_data(bounded)))
    at, rows = np.random.default_rng(2).normal(scale=0.5, size=ours.dim), np.arange(5)
    seen = [model._graphs.call("seen", at) for model in (ours, other)]
    np.testing.assert_array_equal(*seen)
    left = [model._graphs.left_seen(seen[0], np.zeros(3), rows) for model in (ours, other)]
    np.testing.assert_allclose(*left, rtol=1e-12)
    with pytest.raises(ValueError, match="'eta', which has numbers of the rows"):
        mcmc.from_pymc(written(varying), through=["eta"])


def test_a_step_of_pymc_takes_plain_arrays():
    with written(columns) as model:
        step = mcmc.doors.pymc.MetropolisStep(model.value_vars)
        point, said = step.step(model.initial_point())
    assert said[0]["n_rows"] <= N and set(point) == {"b", "s_log__"}


def missing(d):
    y = np.where(np.arange(N) == 3, np.nan, d["y"])
    with pytest.warns(UserWarning, match="imputed"):
        pm.Normal("height", pm.Normal("b") * d["o"], 1.0, observed=y)


def minibatch(d):
    x, y = pm.Minibatch(d["o"], d["y"], batch_size=10)
    pm.Normal("height", pm.Normal("b") * x, 1.0, observed=y, total_size=N)


def scaled(d):
    pm.Normal("height", pm.Normal("b") * d["o"], 1.0, observed=d["y"], total_size=10 * N)


def sparse(d):
    from pytensor import sparse as ps

    table = ps.as_sparse_variable(csr_matrix(1.0 * (d["g"][:, None] == np.arange(4))))
    mean = ps.structured_dot(table, pm.Normal("b", shape=4)[:, None])[:, 0]
    pm.Normal("height", mean, 1.0, observed=d["y"])


def potential(d):
    mu = pm.Normal("mu")
    pm.Normal("height", mu, 1.0, observed=d["y"])
    pm.Potential("extra", -pt.square(d["y"] - mu).sum())


def prior_of_rows(d):
    pm.Normal("height", pm.Normal("z", d["o"], 1.0, shape=N) + 0.0 * d["o"], 1.0, observed=d["y"])


def latent(d):
    pm.Normal("height", pm.Normal("z", shape=N), 1.0, observed=d["y"])


def recursive(d):
    from pytensor import scan

    start, b = pt.as_tensor(np.array(0.0)), pm.Normal("b")
    level = scan(lambda now, last, b: b * last + now, [pt.as_tensor(d["o"])], [start], [b], return_updates=False)
    pm.Normal("height", level, 1.0, observed=d["y"])


def mean_of_all(d):
    """A parameter times an array, summed over all rows: no row's own."""
    whole = (pm.Normal("b") * d["o"]).sum()
    pm.Normal("height", pt.sort(whole * d["o"]), 1.0, observed=d["y"])


def one_row(d):
    pm.Normal("height", pm.Normal("b"), 1.0, observed=d["y"][:1])


@pytest.mark.parametrize(("build", "words"), [
    (missing, "'height' has missing values.*'height_unobserved'.*leave the rows with missing values out"),
    (minibatch, "'height' are a minibatch"), (scaled, "'height' are a minibatch.*without total_size"),
    (sparse, r"a sparse array of shape \(60, 4\).*index arrays"),
    (potential, "the potential 'extra' depends on the rows"), (latent, "no parameter with one entry for each row"),
    (prior_of_rows, "'z'|no parameter with one entry"), (recursive, "'height' cannot be taken row by row"),
    (mean_of_all, "'height' cannot be taken row by row"), (one_row, "1 observed values of 'height'")])
def test_what_cannot_be_taken_row_by_row_is_refused_in_words(build, words):
    with pytest.raises(ValueError, match=words):
        mcmc.from_pymc(written(build))


@pytest.mark.parametrize("wrong", [
    pytest.param(lambda self, v, axis: v if v.name == "o" else None, id="an array is left whole"),
    pytest.param(lambda self, v, axis: self._container(v, np.r_[v.data[:-1], 9.0], axis) if v.name == "o" else None,
                 id="one number of one row is another one"),
])
def test_rows_that_were_found_wrongly_are_refused(wrong, monkeypatch):
    """The terms of all rows are compared with the model's own, in parts."""
    walked = _graphs.RowConstants._walked

    def other(self, v, axis):
        found = wrong(self, v, axis)
        return walked(self, v, axis) if found is None else found

    monkeypatch.setattr(_graphs.RowConstants, "_walked", other)
    monkeypatch.setattr(_graphs, "PROBED", 3)
    monkeypatch.setattr(_graphs, "_CHECKED", 17)
    with pm.Model() as model:
        pm.Normal("obs", pm.Normal("b") * pt.constant(DATA["o"], name="o"), 1.0, observed=DATA["y"])
    with pytest.raises(ValueError, match="'obs' cannot be taken row by row"):
        mcmc.from_pymc(model)


def test_the_posterior_of_a_model_with_arrays_is_right():
    """Normal in closed form, drawn by a race over rows."""
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 3.0, shape=2)
        pm.Normal("obs", DATA["x"] @ b, 2.0, observed=DATA["y"])
    trace = mcmc.sample(mcmc.RacingMetropolis(mcmc.from_pymc(model), 0.01), n_draws=2000, n_chains=2, rng=1)
    covariance = np.linalg.inv(DATA["x"].T @ DATA["x"] / 4.0 + np.eye(2) / 9.0)
    mean, sd = covariance @ DATA["x"].T @ DATA["y"] / 4.0, np.sqrt(np.diagonal(covariance))
    away = (trace.draws.mean(axis=(0, 1)) - mean) / sd
    assert (np.abs(away) < stats.norm.isf(1e-6 / 4.0) / np.sqrt(trace.ess()) + 0.02).all()


@pytest.mark.parametrize("use", [mcmc.sample, mcmc.laplace, mcmc.compress, mcmc.RacingMetropolis])
def test_a_model_of_pymc_itself_is_told_the_way_in(use):
    with pytest.raises(TypeError, match=r"mcmc\.from_pymc\(model\) makes one of a pymc\.Model"):
        use(pm.Model())
    with pytest.raises(TypeError, match="is needed$"):
        use("a")


def test_what_a_set_up_calls_a_few_times_is_never_compiled_to_c():
    X = np.random.default_rng(4).normal(size=(60, 2))
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 2.0, shape=2)
        pm.Bernoulli("y", logit_p=X @ b, observed=(X[:, 0] > 0).astype(int))
    graphs = mcmc.from_pymc(model)._graphs
    for function in (graphs.function("all"), graphs.function("expansion"), graphs.once("terms")):
        assert not function.maker.linker.c_thunks
    graphs.compile_kwargs["mode"] = "NUMBA"
    assert type(graphs.once("terms").maker.linker).__name__ == "NumbaLinker"


def test_single_numbers_have_no_rows():
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 5.0)
        pm.Normal("before", level, 2.0, observed=1.3)
        pm.Bernoulli("y", logit_p=level + DATA["o"], observed=DATA["k"])
    with pytest.raises(ValueError, match=r"observed variables \['before'\] are single numbers, and have no rows: name"):
        mcmc.from_pymc(model)
    assert mcmc.from_pymc(model, observed=["y"]).n_rows == N
