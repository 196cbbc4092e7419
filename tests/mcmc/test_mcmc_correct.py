"""Draws of a surrogate, made by any sampler, corrected by races or exactly."""

import math
import pickle
import warnings

import numpy as np
import pytest
from scipy import special

from chains import mostly_ones
from fastrace import mcmc
from fastrace.mcmc import bias, correction
from fastrace.races.acceptance import AcceptTest
from guarantee import assert_rate_at_most


def drawn(about, shape, seed=1):
    """Draws of the density that stands for anybody's sampler on the surrogate."""
    d = len(about.center)
    return about.center + np.random.default_rng(seed).standard_normal((*shape, d)) @ about.factor.T


@pytest.mark.parametrize("decision", ["race", "poisson", "exact"])
def test_corrected_draws_have_the_moments_of_a_sum_over_a_grid(decision):
    model = mostly_ones()
    about = model.reference()
    z = np.linspace(-7.0, 7.0, 121)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(z, z)], axis=1) @ about.factor.T + about.center
    weights = special.softmax(model.log_posteriors(grid))
    mean = weights @ grid
    sd = np.sqrt(weights @ np.square(grid - mean))
    trace = mcmc.correct(drawn(about, (4, 1000)), about, model, 2, decision=decision, delta=0.01)
    error = sd / np.sqrt(trace.ess())
    assert (np.abs(trace.draws.mean(axis=(0, 1)) - mean) < 5.5 * error).all()
    assert (np.abs(about.center - mean) > 5.5 * error).any()        # the surrogate alone is off by more
    assert 0.5 < trace.accepted.mean() < 0.99 and trace.kernel["pareto_k"] < 0.7


def test_exact_decisions_are_those_of_a_plain_chain():
    model = mostly_ones(200)
    about = model.reference()
    draws = drawn(about, (1, 300))
    trace = mcmc.correct(draws, about, model, 5, decision="exact")
    value, gradient, hessian = model._expand(about.theta_hat)
    log_u = -np.random.default_rng(5).standard_exponential(300)
    now, kept = draws[0, 0], [draws[0, 0]]
    source, theta = model.engine(None)

    def left(at):
        theta[:] = at
        step = at - about.theta_hat
        return source.read(np.arange(200), [0]).sum() - value - gradient @ step - 0.5 * step @ hessian @ step

    for t in range(1, 300):
        if left(draws[0, t]) - left(now) > log_u[t]:
            now = draws[0, t]
        kept.append(now)
    np.testing.assert_array_equal(trace.draws[0], kept)
    assert (trace.accepted[0][1:] == (np.diff(np.array(kept)[:, 0]) != 0.0)).all()


def of_groups():
    rng = np.random.default_rng(3)
    X, codes = rng.normal(size=(4000, 2)), rng.integers(0, 6, 4000)
    y = rng.random(4000) < special.expit(X @ [0.5, -0.5] - 3.0 + rng.normal(size=6)[codes])
    return mcmc.GLM(X, y, groups=codes, prior_sd=2.5)


def of_classes():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 2))
    return mcmc.Softmax(X, (X @ [[3.0, 0.0, -1.0], [0.0, 2.0, 1.0]] + rng.gumbel(size=(300, 3))).argmax(axis=1), 3)


def of_a_scale():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 2))
    return mcmc.GLM(X, X @ [1.0, -1.0] + rng.normal(size=40), family="gaussian", prior_sd=2.0)


def of_crossed_groups():
    rng = np.random.default_rng(6)
    X, codes = rng.normal(size=(400, 2)).astype(np.float32), rng.integers(0, 4, (2, 400))
    y = rng.random(400) < special.expit(X @ [1.0, -1.0] - 2.0)
    return mcmc.GLM(X, y, groups={"a": codes[0], "b": codes[1]}, prior_sd=2.0)


@pytest.mark.parametrize("decision", ["poisson", "exact"])
@pytest.mark.parametrize("away", [0.0, 0.5])
@pytest.mark.parametrize("make", [mostly_ones, of_groups, of_classes, of_a_scale, of_crossed_groups])
def test_points_that_are_proposed_alike_are_visited_as_what_the_expansion_leaves_of_them_says(make, away, decision):
    """An enumerable target: of a few points each is proposed as often. Expanded at the mode, or away from it."""
    model = make()
    compressed = mcmc.compress(model)
    n = model.n_seen
    if away:
        sds = np.sqrt(np.diagonal(np.linalg.inv(compressed.metric().to_dense())))
        compressed = mcmc.compress(model, compressed.psi_hat + away * sds * np.resize([1.0, -1.0], n))
    root = np.linalg.cholesky(np.linalg.inv(compressed.metric().to_dense()))
    rng = np.random.default_rng(1)
    points = compressed.psi_hat + (2.0 if n < 7 else 1.0) * rng.standard_normal((4, n)) @ root.T
    source, theta = model.engine(None)
    left = []
    for point in points:
        theta[:] = point
        left.append(source.read(np.arange(model.n_rows), [0]).sum() - compressed.log_likelihood(point))
    expected = special.softmax(left)
    assert np.ptp(left) > 0.3                           # otherwise whatever is proposed is right
    proposed = points[rng.integers(0, 4, (20, 2000))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = mcmc.correct(proposed, compressed, model, 5, decision=decision)
    for k, point in enumerate(points):
        shares = (trace.draws[:, :, :n] == point).all(axis=2).mean(axis=1)
        assert abs(shares.mean() - expected[k]) < 5.5 * shares.std(ddof=1) / np.sqrt(20)
    assert (trace.accepted[:, 1:] >= (np.diff(trace.draws, axis=1) != 0.0).any(axis=2)).all()


def test_minibatches_read_few_rows_and_say_what_they_need():
    model = mostly_ones(30_000)
    compressed = mcmc.compress(model)
    draws = np.random.default_rng(0).standard_normal((2, 300, 2))
    draws = compressed.psi_hat + draws @ np.linalg.cholesky(np.linalg.inv(compressed.metric().to_dense())).T
    trace = mcmc.correct(draws, compressed, model, 1, decision="poisson")
    assert trace.rows.mean() < 3000 and trace.accepted.mean() > 0.9 and trace.warnings == ()
    assert trace.kernel["decision"] == "poisson" and "delta" not in trace.kernel and trace.kernel["pareto_k"] < 0.5
    again = mcmc.correct(draws, compressed, model, 1, decision="poisson")
    np.testing.assert_array_equal(trace.draws, again.draws)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = mcmc.correct(draws[:, :1], compressed, model, 1, decision="exact").draws
        np.testing.assert_array_equal(mcmc.correct(draws[:, :1], compressed, model, 1, decision="poisson").draws, one)
    with pytest.raises(ValueError, match="decision is 'bernstein'"):
        mcmc.correct(draws, compressed, model, 1, decision="bernstein")
    no_bounds = mcmc.ARCH(np.random.default_rng(0).normal(size=300), 1)
    rough = mcmc.GLM(np.ones((300, 1)), np.arange(300) % 2, log_prior=lambda theta: -abs(float(theta[0])))
    with pytest.raises(ValueError, match="SurrogateMetropolis does, which does not take the model.*'race' and 'exact'"):
        mcmc.correct(drawn(rough.reference(), (2, 50)), rough.reference(), rough, 1, decision="poisson")
    with pytest.raises(ValueError, match="gives no bound"):
        mcmc.correct(drawn(no_bounds.reference(), (2, 50)), no_bounds.reference(), no_bounds, 1, decision="poisson")


def test_races_agree_with_exact_decisions_at_their_rate_and_read_few_rows():
    model = mostly_ones(30_000)
    compressed = mcmc.compress(model)
    about = model.reference()
    draws = drawn(about, (2, 300))
    race = mcmc.correct(draws, compressed, model, 1)
    exact = mcmc.correct(draws, about, model, 1, decision="exact")
    assert race.rows.mean() < 3000 and min(race.accepted.mean(), exact.accepted.mean()) > 0.95
    assert race.warnings == () and race.kernel["pareto_k"] < 0.5 and exact.rows.mean() == 30_000


def test_columns_that_no_row_sees_go_along():
    model = mostly_ones(500)
    about = model.reference()
    beside = np.random.default_rng(0).normal(size=(2, 300, 1))
    trace = mcmc.correct(np.concatenate([drawn(about, (2, 300)), beside], axis=2), about, model, 1)
    assert trace.draws.shape == (2, 300, 3) and trace.accepted.mean() > 0.8
    new = trace.accepted
    np.testing.assert_array_equal(trace.draws[new][:, 2], beside[new][:, 0])
    one = mcmc.correct(drawn(about, (300,)), about, model, 1)
    assert one.draws.shape == (1, 300, 2)


def test_effects_and_scales_of_a_hierarchical_model_are_corrected():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, 1500)
    x = rng.normal(size=1500)
    model = mcmc.GLM(x[:, None], rng.random(1500) < special.expit(x + 0.5 * rng.normal(size=6)[codes]), groups=codes)
    kernel = mcmc.SurrogateMetropolis(model, decision="exact")
    truth = mcmc.sample(kernel, n_draws=1000, n_chains=2, rng=1)
    compressed = kernel.compressed
    start = np.concatenate([compressed.psi_hat, kernel._phi_center])
    surrogate = kernel._inner().draws(start, 9000, np.random.default_rng(2))[::6]
    trace = mcmc.correct(surrogate, compressed, model, 3)
    n = model.n_seen
    assert trace.draws.shape == (1, 1500, model.dim) and trace.accepted.mean() > 0.5
    error = np.hypot(truth._flat()[:, :, :n].std(axis=(0, 1)) / np.sqrt(truth.ess()[:n]),
                     trace._flat()[:, :, :n].std(axis=(0, 1)) / np.sqrt(trace.ess()[:n]))
    apart = np.abs(truth._flat()[:, :, :n].mean(axis=(0, 1)) - trace._flat()[:, :, :n].mean(axis=(0, 1)))
    assert (apart < 6.0 * error).all()


def test_what_is_wrong_is_told():
    rng = np.random.default_rng(8)
    X = np.column_stack([np.ones(3000), rng.normal(size=3000)])
    rare = mcmc.GLM(X, np.arange(3000) < 1, prior_sd=10.0)
    about = rare.reference()
    for decision in ("race", "exact"):
        with pytest.warns(UserWarning, match="Pareto k of the weights of the draws is"):
            trace = mcmc.correct(drawn(about, (1, 400), 0), about, rare, 1, decision=decision)
        assert any("mcmc.compress(model, psi_hat=trace)" in words for words in trace.warnings)
        middle = trace.draws.mean(axis=(0, 1))
        np.testing.assert_allclose(mcmc.compress(rare, psi_hat=trace).psi_hat, middle, rtol=1e-12)
    model = mostly_ones(5000)
    about = model.reference()
    walk = np.zeros((2, 2000, 2))
    noise = np.random.default_rng(0).normal(size=walk.shape)
    for t in range(1, 2000):
        walk[:, t] = 0.9 * walk[:, t - 1] + math.sqrt(1.0 - 0.81) * noise[:, t]
    with pytest.warns(UserWarning, match="thin them by about"):
        mcmc.correct(about.center + walk @ about.factor.T, about, model, 1)


def test_a_corrected_trace_pickles_exports_and_is_not_continued():
    model = mostly_ones(500, names=["base", "age"])
    about = model.reference()
    trace = mcmc.correct(drawn(about, (2, 200)), about, model, 1)
    assert trace.names == ("base", "age") and "age" in str(trace)
    again = pickle.loads(pickle.dumps(trace))
    np.testing.assert_array_equal(again.draws, trace.draws)
    np.testing.assert_array_equal(mcmc.correct(drawn(about, (2, 200)), about, model, 1).draws, trace.draws)
    with pytest.raises(ValueError, match="does not say where its chains stand"):
        mcmc.sample(mcmc.RacingMetropolis(model), trace, n_draws=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert math.isnan(mcmc.correct(drawn(about, (1, 5)), about, model, 1).kernel["pareto_k"])


@pytest.mark.parametrize(("wrong", "words"), [
    ({"draws": np.zeros(5)}, r"draws has shape \(5,\)"),
    ({"draws": np.zeros((5, 1))}, "at least the 2 parameters"),
    ({"draws": np.full((5, 2), np.nan)}, "are not finite"),
    ({"surrogate": mcmc.Reference(np.zeros(3), np.zeros(3), np.eye(3), None, 1.0)}, "expands in 3 parameters"),
    ({"decision": "guess"}, "decision is 'guess'"),
    ({"delta": 2.0}, "delta is 2.0"),
])
def test_bad_arguments(wrong, words):
    model = mostly_ones(100)
    about = model.reference()
    with pytest.raises(ValueError, match=words):
        mcmc.correct(**({"draws": np.zeros((5, 2)), "surrogate": about, "model": model} | wrong))


def test_arguments_of_other_types():
    model = mostly_ones(100)
    with pytest.raises(TypeError, match="model is 3"):
        mcmc.correct(np.zeros((5, 2)), model.reference(), 3)
    with pytest.raises(TypeError, match="surrogate is 3"):
        mcmc.correct(np.zeros((5, 2)), 3, model)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_learned_scale_comes_as_its_logarithm_or_by_its_name(by_name):
    rng = np.random.default_rng(4)
    x = rng.normal(size=2000)
    model = mcmc.GLM(x[:, None], 0.5 * x + rng.normal(scale=3.0, size=2000), "gaussian")
    compressed, about = mcmc.compress(model), model.reference()
    draws = drawn(about, (2, 200))
    natural = np.concatenate([draws[:, :, :1], np.exp(draws[:, :, 1:])], axis=2)
    truth = mcmc.correct(draws, compressed, model, 1)
    if by_name:
        for key, values in (("scale", natural[:, :, 1]), ("log(scale)", draws[:, :, 1])):
            trace = mcmc.correct({key: values, "x0": draws[:, :, 0]}, compressed, model, 1)
            np.testing.assert_allclose(trace.draws, truth.draws)
        with pytest.raises(ValueError, match="draws of 'scale' are not all positive"):
            mcmc.correct({"scale": draws[:, :, 1] - 9.0, "x0": draws[:, :, 0]}, compressed, model, 1)
        return
    for surrogate in (compressed, about):
        with pytest.raises(ValueError, match=r"'log\(scale\)' lie about 3.* take the logarithm"):
            mcmc.correct(natural, surrogate, model, 1)


@pytest.mark.parametrize(("draws", "words"), [
    ({"x0": np.zeros(9)}, "lack 'x1'"),
    ({"x0": np.zeros(9), "x1": np.zeros(9), "x2": np.zeros(9)}, "hold 'x2'"),
    ({"x0": np.zeros(9), "x1": np.zeros(8)}, "have shapes"),
    (np.zeros((50, 2)), "all 50 draws of parameters 'x0', 'x1' are alike"),
    (np.stack([np.ones(50), np.arange(50.0)], axis=1), "of parameters 'x0' are alike"),
])
def test_draws_that_cannot_be_corrected(draws, words):
    model = mostly_ones()
    with pytest.raises(ValueError, match=words):
        mcmc.correct(draws, model.reference(), model)


def test_draws_with_parameters_in_the_place_of_draws_are_refused():
    model = mostly_ones(500)
    for about in (model.reference(), mcmc.compress(model)):
        for draws in (drawn(model.reference(), (500,)).T, drawn(model.reference(), (4, 500)).transpose(0, 2, 1)):
            with pytest.raises(ValueError, match="see 2 parameters: parameters stand where draws should.*swapaxes"):
                mcmc.correct(draws, about, model, 1)


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_draws_of_another_width_are_warned_of(times):
    """The correction leaves what the sampler's density lacks or has too much, so that nothing else shows it."""
    model = mostly_ones(20_000, names=["base", "age"])
    about = model.reference()
    draws = about.center + times * (drawn(about, (2, 300)) - about.center)
    for surrogate in (about, mcmc.compress(model)):
        with pytest.warns(UserWarning, match="'(base|age)' are (0.4|0.5|1.9|2)[0-9.]* times as wide as prior times"):
            mcmc.correct(draws, surrogate, model, 1)
        assert mcmc.correct(drawn(about, (2, 300)), surrogate, model, 1).warnings == ()


@pytest.mark.parametrize("shift", [-1.0, 2.0])
def test_draws_from_elsewhere_are_warned_of(shift):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(5000, 2))
    model = mcmc.GLM(X, rng.random(5000) < special.expit(X @ [1.0, -1.0]), prior_sd=2.5, names=["base", "age"])
    about = model.reference()
    sds = np.linalg.norm(about.factor, axis=1)
    for surrogate in (about, mcmc.compress(model)):
        with pytest.warns(UserWarning, match="'(base|age)' lie (0.9|1|1.9|2)[0-9.]* standard deviations from the mean"):
            mcmc.correct(drawn(about, (2, 300)) + shift * sds, surrogate, model, 1)
    drift = np.linspace(-1.0, 1.0, 300)[:, None] * sds
    with pytest.warns(UserWarning, match="R-hat of .*: chains, or .*Give more draws of the surrogate, thinned, or"):
        mcmc.correct(drawn(about, (2, 300)) + drift, about, model, 1)


def test_a_reference_or_a_prior_that_is_not_the_models_is_told():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(5000, 2))
    y = rng.random(5000) < special.expit(X @ [1.0, -1.0])
    model = mcmc.GLM(X, y, prior_sd=2.5, names=["base", "age"])
    about = model.reference()
    half = mcmc.GLM(X[:2500], y[:2500], prior_sd=2.5).reference()
    with pytest.warns(UserWarning, match="the Reference is not that of the model: at its theta_hat.*model.reference"):
        mcmc.correct(drawn(half, (2, 300)), half, model, 1)
    compressed = mcmc.compress(model)
    other = mcmc.GLM(X, y, prior_sd=0.05)
    with pytest.warns(UserWarning, match="has another prior than the model, and decisions read no prior"):
        trace = mcmc.correct(drawn(about, (2, 300)), compressed, other, 1)
    assert trace.warnings[0].startswith("the Compressed has another prior")
    opaque = mcmc.GLM(X, y, log_prior=lambda theta: -np.abs(theta).sum())
    with pytest.warns(UserWarning, match="has another prior than the model"):
        mcmc.correct(drawn(about, (2, 300)), compressed, opaque, 1)
    same = mcmc.GLM(X.copy(), y.copy(), prior_sd=2.5)
    for surrogate in (about, compressed):
        assert mcmc.correct(drawn(about, (2, 300)), surrogate, same, 1).warnings == ()


@pytest.mark.parametrize("log_prior", [False, True])
def test_normal_densities_of_other_priors_are_told(log_prior):
    """Draws of a Reference's normal density lack what it leaves of the prior, which no decision reads."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 1))
    y = rng.random(60) < special.expit(x[:, 0])
    prior = {"log_prior": lambda theta: -0.5 * float(theta @ theta) / 0.04} if log_prior else {
        "prior": mcmc.Laplace(0.0, 0.1)}
    model = mcmc.GLM(x, y, **prior)
    about = model.reference()
    with pytest.warns(UserWarning, match="the prior of the model is not normal: over these draws"):
        mcmc.correct(drawn(about, (2, 300)), about, model, 1)
    X = rng.normal(size=(20_000, 2))
    many = mcmc.GLM(X, rng.random(20_000) < special.expit(X[:, 0]), prior=mcmc.StudentT(3.0, 0.0, 2.5))
    about = many.reference()
    assert mcmc.correct(drawn(about, (2, 300)), about, many, 1).warnings == ()     # next to normal there


class Cut:
    """A bar that is cut short once so many draws of all chains are decided."""

    def __init__(self, at, error):
        self.at, self.error = at, error

    def __call__(self, title, total, shown):
        assert (title, total, shown) == ("deciding on draws", 400, False)
        return self

    def __enter__(self):
        return self.show

    def __exit__(self, *_):
        return None

    def show(self, done):
        if done >= self.at:
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("of a user's own")])
@pytest.mark.parametrize("decision", ["race", "poisson", "exact"])
def test_what_is_decided_is_not_lost(monkeypatch, decision, error):
    model = mostly_ones(2000, names=["base", "age"])
    compressed, about = mcmc.compress(model), model.reference()
    draws = drawn(about, (2, 200))
    whole = mcmc.correct(draws, compressed, model, 1, decision=decision)
    monkeypatch.setattr(correction, "meter", Cut(2 * 96, error))
    with pytest.raises(type(error)) as caught:
        mcmc.correct(draws, compressed, model, 1, decision=decision)
    assert caught.value is error and "error.trace has them, 96 draws of each chain" in error.__notes__[-1]
    np.testing.assert_array_equal(error.trace.draws, whole.draws[:, :96])
    np.testing.assert_array_equal(error.trace.rows, whole.rows[:, :96])
    assert error.trace.names == ("base", "age") and error.trace.kernel["decision"] == decision
    assert error.trace.warnings == () and "numbers from 96 on of those that came are left" in error.__notes__[-1]
    error.__notes__.clear()
    other = mcmc.compress(mostly_ones(2000, prior_sd=0.5, names=["base", "age"]))
    with pytest.warns(UserWarning, match="has another prior"), pytest.raises(type(error)):
        mcmc.correct(draws, other, model, 1, decision=decision)
    assert len(error.trace.warnings) == 1       # before the first decision
    error.__notes__.clear()


def test_an_interrupt_amid_the_chains_and_a_warning_that_is_an_error_lose_nothing(monkeypatch):
    model = mostly_ones(2000)
    about = model.reference()
    draws = drawn(about, (3, 100))
    whole = mcmc.correct(draws, about, model, 1)
    calls, decide = [], AcceptTest.decide

    class Interrupted(AcceptTest):
        def decide(self, threshold):
            calls.append(threshold)
            if len(calls) == 3 * 31 + 2 * 32 + 1:       # in the third chain's second slice
                raise KeyboardInterrupt
            return decide(self, threshold)

    with monkeypatch.context() as context:
        context.setattr(correction, "AcceptTest", Interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            mcmc.correct(draws, about, model, 1)
    found = caught.value.trace
    assert [len(chain) for chain in found.chains] == [32, 32, 32]        # as many of each
    assert mcmc.check_bias(model, found, draws=draws[:, :32], surrogate=about, rng=1).n_checked > 0
    np.testing.assert_array_equal(found.draws, whole.draws[:, :32])
    with warnings.catch_warnings(), pytest.raises(UserWarning, match="standard deviations from the mean") as caught:
        warnings.simplefilter("error")
        mcmc.correct(drawn(about, (3, 200)) + 2.0 * about.factor[0, 0], about, model, 1, decision="exact")
    assert caught.value.trace.n_draws == 200 and caught.value.__notes__[-1].endswith("200 draws of each chain")


def test_progress_of_a_correction_is_shown(capsys):
    pytest.importorskip("rich")
    model = mostly_ones(500)
    about = model.reference()
    mcmc.correct(drawn(about, (2, 50)), about, model, 1, progress=True)
    assert "deciding on draws 100/100" in capsys.readouterr().err
    with pytest.raises(TypeError, match="progress"):
        mcmc.correct(drawn(about, (2, 50)), about, model, 1, progress="yes")


# How often its races are wrong.


def few_rows_tell(n_rows=5000, few=8):
    """One coefficient is of few rows alone: a look at 50 rows hardly ever sees what the expansion leaves there."""
    X = np.zeros((n_rows, 2))
    X[:, 0], X[:few, 1] = 1.0, 1.0 + np.square(np.random.default_rng(5).normal(size=few))
    y = np.random.default_rng(6).random(n_rows) < 0.5
    y[:few] = True
    return mcmc.GLM(X, y, prior_sd=2.5)


@pytest.mark.parametrize("learned", [False, True])
def test_races_of_a_correction_are_decided_again(learned):
    rng = np.random.default_rng(4)
    x = rng.normal(size=10_000)
    model = mcmc.GLM(x[:, None], x + rng.standard_t(4.0, size=len(x)), "student-t") if learned else mostly_ones(10_000)
    assert getattr(model, "learns_scale", False) == learned
    about, delta = model.reference(), 0.1
    draws = drawn(about, (2, 300))
    trace = mcmc.correct(draws, about, model, 1, delta=delta)
    found = mcmc.check_bias(model, trace, 300, 2, draws=draws, surrogate=about)
    assert found.n_checked == 300 and found.n_raced > 250 and found.delta == delta and not found.warnings
    assert_rate_at_most(found.n_wrong, found.n_checked, delta)
    assert found == mcmc.check_bias(model, trace, 300, 2, draws=draws, surrogate=about)


@pytest.mark.filterwarnings("ignore")
def test_wrong_races_of_a_correction_are_found(monkeypatch):
    model = few_rows_tell()
    about = model.reference()
    draws = drawn(about, (2, 300))
    trace = mcmc.correct(draws, about, model, 1)
    found = mcmc.check_bias(model, trace, 400, 2, draws=draws, surrogate=about)
    assert found.interval[0] > 1.5 * found.delta and found.n_raced > 300
    monkeypatch.setattr(bias, "AcceptTest", lambda source, **o: AcceptTest(source, first_look=source.n_rows, **o))
    found = mcmc.check_bias(model, trace, 100, 2, draws=draws, surrogate=about)
    assert (found.n_wrong, found.n_raced) == (0, 0)


@pytest.mark.parametrize(("wrong", "error", "words"), [
    ({"draws": None}, TypeError, "draws is None; of a trace that mcmc.correct made"),
    ({"surrogate": None}, TypeError, "surrogate is None; of a trace that mcmc.correct made"),
    ({"draws": np.random.default_rng(0).normal(size=(2, 30, 2))}, ValueError, "the trace has other draws"),
    ({"draws": np.random.default_rng(0).normal(size=(2, 31, 2))}, ValueError, "the trace has other draws, of shape"),
    ({"kernel": mcmc.RacingMetropolis(mostly_ones())}, TypeError, "draws and surrogate are those of a trace that"),
    ({"trace": 3}, TypeError, "trace is 3; what mcmc.sample"),
    ({"decision": "exact"}, ValueError, "the trace was made exactly by mcmc.correct"),
    ({"trace": mcmc.sample(mcmc.Metropolis(mostly_ones()), n_draws=30, n_chains=2, rng=1, progress=False)},
     ValueError, "the trace was made by Metropolis, and a model"),
])
@pytest.mark.filterwarnings("ignore")
def test_what_a_check_of_a_correction_needs(wrong, error, words):
    model = mostly_ones()
    about = model.reference()
    draws = drawn(about, (2, 30))
    made = mcmc.correct(draws, about, model, 1, decision=wrong.pop("decision", "race"))
    given = {"kernel": model, "trace": made, "n": 10, "draws": draws, "surrogate": about} | wrong
    with pytest.raises(error, match=words):
        mcmc.check_bias(**given)


@pytest.mark.filterwarnings("ignore")
def test_one_draw_a_chain_has_no_decision():
    model = mostly_ones()
    about = model.reference()
    draws = drawn(about, (2, 1))
    with pytest.raises(ValueError, match="there was no decision"):
        mcmc.check_bias(model, mcmc.correct(draws, about, model, 1), 5, draws=draws, surrogate=about)
