"""What a PyMC model that is no `GLM` takes before its first draw: compiled functions, and its expansion at the mode."""

from functools import partial

import numpy as np
import pytest
from by_pymc import graphs_of, pm, pt

from fastrace import mcmc
from fastrace._base._progress import phase
from fastrace.mcmc.doors.pymc import _expansions, _mapped
from fastrace.mcmc.kernels import _choice
from fastrace.mcmc.models._curves import _by_pytensor
from fastrace.mcmc.models._modes import find_mode

pytensor = pytest.importorskip("pytensor")

N = 2000
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)
COUNTS = RNG.negative_binomial(2, 2.0 / (2.0 + np.exp(0.5 * X + 1.0))) * (RNG.random(N) < 0.7)
HEIGHTS = np.where(RNG.random(N) < 0.3, -1.0, 1.5) + RNG.normal(size=N)


def inflated():
    """The log-likelihood has gamma functions of what is learned, and two parts a row."""
    mu = pm.math.exp(pm.Normal("b") * X + pm.Normal("a"))
    pm.ZeroInflatedNegativeBinomial("obs", pm.Beta("psi", 1.0, 1.0), mu=mu, alpha=pm.HalfNormal("alpha", 3.0),
                                    observed=COUNTS)


def mixture():
    mu = pm.Normal("mu", np.array([-1.0, 1.0]), 1.0, shape=2)
    pm.NormalMixture("obs", w=np.array([0.3, 0.7]), mu=mu, sigma=pm.HalfNormal("s"), observed=HEIGHTS)


def learned_df():
    pm.StudentT("obs", nu=pm.Gamma("nu", 2.0, 0.1), mu=pm.Normal("a") + pm.Normal("b") * X, sigma=1.0, observed=HEIGHTS)


def made(build):
    with pm.Model() as model:
        build()
    return mcmc.from_pymc(model)


def by_numpy(function):
    """Whether NumPy or SciPy makes whole arrays by each operation, entry by entry none."""
    ops = [getattr(node.op, "scalar_op", None) for node in function.maker.fgraph.toposort()]
    return any(ops) and all(getattr(op, "nfunc_spec", None) is not None for op in ops if op is not None)


no_compiler = pytest.mark.skipif(bool(pytensor.config.cxx), reason="a compiler fuses these operations")


@no_compiler
@pytest.mark.parametrize("once", [True, False])
def test_what_stands_for_operations_entry_by_entry_has_their_numbers(once):
    x, y, inner = pt.dvector("x"), pt.dvector("y"), pt.lvector("inner")
    written = [pt.tri_gamma(x), pt.log1mexp(y), pt.clip(y, -0.8, -0.2), pt.second(x, y[0]), pt.second(inner, y[0]),
               pt.power(y, 5)]
    slow = pytensor.function([x, y, inner], written, mode="FAST_COMPILE")
    with pm.Model() as model:
        mixture()
    function = graphs_of(model)[0]._compiled([x, y, inner], written, once)
    assert by_numpy(function) and not by_numpy(slow)
    at = np.array([1e-6, 0.3, 7.0, 2e5]), np.array([-40.0, -0.7, -0.5, -1e-9]), np.arange(4)
    for ours, theirs in zip(function(*at), slow(*at), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=4e-16, strict=True)


@no_compiler
def test_terms_of_a_predictor_in_pytensor_are_made_by_numpy(monkeypatch):
    made, function = [], pytensor.function
    monkeypatch.setattr(pytensor, "function", lambda *args, **kw: made.append(function(*args, **kw)) or made[-1])
    y, eta = np.array([0.0, 1.0, 1.0]), np.array([-0.5, 0.2, 30.0])
    parts = _by_pytensor(lambda eta, y: y * eta - pt.softplus(eta))(2, eta, [y])
    assert len(made) == 1 and by_numpy(made[0])
    p = 1.0 / (1.0 + np.exp(-eta))
    for ours, plain in zip(parts, (y * eta - np.logaddexp(0.0, eta), y - p, -p * (1.0 - p)), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-12, atol=1e-15)


@no_compiler
@pytest.mark.parametrize("build", [pytest.param(inflated, marks=pytest.mark.long), learned_df])
def test_nothing_that_chains_ask_of_rows_is_made_entry_by_entry(build):
    with pm.Model() as model:
        build()
    graphs, _ = graphs_of(model)
    assert by_numpy(graphs.once("left" if graphs.design is None else "left_seen"))
    assert by_numpy(graphs.once("slope"))


@pytest.mark.parametrize("build", [mixture, pytest.param(inflated, marks=pytest.mark.long)])
def test_the_mode_of_a_model_without_predictors_takes_one_hessian_over_all_rows(build, monkeypatch):
    """Gradients bring the mode over some rows to that over all, which is that of Newton's method."""
    monkeypatch.setattr(_expansions, "_PILOT", N // 4)
    ours = made(build)
    assert ours._graphs.design is None
    own, sloped, whole, slopes = ours._expand, ours._sloped, [], []
    monkeypatch.setattr(ours, "_expand", lambda at, rows=None, rest=None: (
        whole.append(at) if rows is None else None, own(at, rows, rest))[1])
    monkeypatch.setattr(ours, "_sloped", lambda at: (slopes.append(at), sloped(at))[1])
    reference = ours.reference()
    assert len(whole) == 1 and len(slopes) > 1
    hat = reference.theta_hat
    _, gradient, hessian = own(hat)
    assert 0.0 <= gradient @ np.linalg.solve(-hessian, gradient) < 1e-9
    away = find_mode(partial(own), hat + 0.02) - hat
    assert away @ -hessian @ away < 1e-8
    np.testing.assert_allclose(reference.factor @ reference.factor.T, np.linalg.inv(-hessian), rtol=1e-9, atol=1e-12)
    rows, h = np.arange(N), 1e-4
    for step in np.eye(ours.dim) * h:  # these are the derivatives of what the rows and the prior are
        before, after = (ours.rest(at) + ours.terms(at, rows).sum() for at in (hat - step, hat + step))
        np.testing.assert_allclose((after - before) / (2.0 * h), gradient @ step / h, atol=1e-4 * np.abs(hessian).max())
        before, after = (own(at)[1] for at in (hat - step, hat + step))
        np.testing.assert_allclose((after - before) / (2.0 * h), hessian @ step / h, atol=1e-4 * np.abs(hessian).max())


def test_steps_with_a_wrong_curvature_end_without_harm(monkeypatch):
    """Where they do not come nearer, all rows are expanded as ever."""
    monkeypatch.setattr(_expansions, "_PILOT", N // 4)
    ours = made(mixture)
    start, hessian = np.array([-1.2, 1.4, 0.1]), -np.eye(3)
    for scale in (1e-3, 1e9):
        at = ours._nearer(start, scale * hessian)
        assert ours._sloped(at)[0] >= ours._sloped(start)[0]
    known = ours.reference()
    monkeypatch.setattr(ours, "_nearer", lambda at, hessian: at + 0.1)
    away = ours.reference().theta_hat - known.theta_hat
    assert np.linalg.norm(np.linalg.solve(known.factor, away)) < 1e-4


def test_sample_expands_a_model_once(monkeypatch):
    """For minibatches, which have no bounds here, and for races."""
    expanded, own = [], mcmc.PyMCModel.reference
    monkeypatch.setattr(mcmc.PyMCModel, "reference", lambda self, *args: expanded.append(args) or own(self, *args))
    monkeypatch.setattr(_choice, "TUNING", 10)
    monkeypatch.setattr(_choice, "STEPS", 10)
    kernel, _ = _choice.kernel_for(made(mixture))
    assert len(expanded) == 1 and isinstance(kernel, mcmc.RacingMetropolis) and kernel.controlled


@pytest.mark.long
def test_pilots_take_a_bounded_number_of_gradients_and_say_what_to_do_where_that_is_too_few(monkeypatch, capsys):
    """With a hundredth of the usual gradients: a trajectory of this model takes some twenty."""
    assert _mapped.PILOT + _mapped.SETTLING <= 30_000
    assert "Pilots take at most 30,000 gradients" in " ".join(mcmc.from_pymc.__doc__.split())
    settle, move = 67, 20
    for owner, name, value in ((_mapped, "_TO_SETTLE", settle), (_mapped, "_TO_MOVE", move),
                               (_mapped.MappedModel, "_most_gradients", settle)):
        monkeypatch.setattr(owner, name, value)
    asked, whole = [], _mapped._Surrogate.whole
    monkeypatch.setattr(_mapped._Surrogate, "whole", lambda *given: asked.append(given[0]) or whole(*given))
    with pm.Model() as model:
        a = pm.Normal("mu") + pm.HalfNormal("tau") * pm.Normal("z", shape=2)
        p = 0.05 + 0.9 * pm.math.sigmoid(a[np.arange(40) % 2])
        pm.Bernoulli("obs", p=p, observed=np.arange(40) % 3 == 0)
    with pytest.warns(UserWarning, match="ended by the 67 gradients .* z \\* tau"):
        kernel = mcmc.SurrogateMetropolis(mcmc.from_pymc(model, progress=True))
    assert not kernel._trajectories.settled
    begun = sum(surrogate.center is None for surrogate in asked)
    assert begun <= _mapped._TO_BEGIN
    assert 2 * settle < len(asked) - begun < 3 * (settle + 100) + 2 * (move + 100)
    err = capsys.readouterr().err
    assert f"/{_mapped.PILOT}, " in err and f"/{_mapped.SETTLING}, " in err and "gradients of a pilot, at most" in err


def test_what_pytensor_prepares_is_said_where_progress_is_shown(capsys):
    with phase("set-up", True):
        made(mixture).reference()
    assert "PyTensor prepares derivatives of rows" in capsys.readouterr().err


@pytest.mark.filterwarnings("error")
def test_a_trial_step_that_is_far_too_long_is_refused_without_a_warning():
    """There a scale is infinite: times effects of both signs, and summed, it is no number."""
    g = np.arange(40) % 4
    with pm.Model() as model:
        tau, z = pm.HalfNormal("tau"), pm.Normal("z", shape=4)
        pm.Poisson("y", 0.1 + pm.math.exp(pm.Normal("a") + (tau * z)[g]), observed=g)
    ours = mcmc.from_pymc(model)
    form = ours._surrogate_form()
    form._expand_at(form.seen(ours._probe(model.initial_point())))
    surrogate = form._surrogate(np.zeros(ours.dim), np.eye(ours.dim))
    near, far = np.zeros(ours.dim), np.full(ours.dim, 1.0)
    far[ours.names.index("tau_log__")] = 800.0
    far[-2:] = -1.0
    assert np.isfinite(surrogate(near)[0])
    value, gradient = surrogate(far)
    assert value == -np.inf and not gradient.any()
