"""What a user must be told of chains without asking: and nothing of chains that are as they should be."""

import warnings

import numpy as np
import pytest
from scipy import signal, special, stats

from chains import logistic_model
from fastrace import mcmc
from fastrace.mcmc import _fit
from fastrace.mcmc._convergence import effective_sample_size
from fastrace.mcmc._diagnosis import diagnosis
from fastrace.mcmc._fit import other_expansion, other_mode, residual_k
from fastrace.mcmc.kernels import _racing
from fastrace.mcmc.protocol import Steps
from guarantee import assert_rate_at_most


def words_of(kernel, *args, **options):
    """Warnings that a run gives, after a check that the trace has the same."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = mcmc.sample(kernel, *args, rng=1, **options)
    said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    assert list(trace.warnings) == said and all(f"warning: {words}" in str(trace) for words in said)
    return said


def of(draws, accepted=True):
    """A trace of given draws, shape (n_chains, n_draws, dim), and what is said of it."""
    draws = np.asarray(draws, dtype=float)
    n = draws.shape[1]
    chains = tuple(Steps(d, np.ones(n, np.int64), np.ones(n, np.int32), *(np.full(n, accepted),) * 3) for d in draws)
    trace = mcmc.Trace(chains, {"kernel": "any"}, (None,) * len(chains), (), 0.0)
    return trace


def test_warnings_name_the_line_of_the_user():
    pytest.importorskip("threadpoolctl")    # so that functions that hold BLAS to one thread have something to hold
    model = logistic_model(500)
    with pytest.warns(UserWarning) as seen:
        trace = mcmc.sample(mcmc.RacingMetropolis(model), np.zeros(model.dim), n_draws=150, n_chains=2, rng=1)
    assert trace.warnings and {one.filename for one in seen} == {__file__}
    slow = mcmc.RacingMetropolis(model, proposal="random-walk", size=0.01)
    with pytest.warns(UserWarning):
        trace = mcmc.sample(slow, n_draws=200, n_chains=2, n_tune=0, rng=1)
    with pytest.warns(UserWarning) as seen:
        assert mcmc.check_bias(slow, trace, n=5, rng=1).warnings
    assert {one.filename for one in seen} == {__file__}


@pytest.mark.parametrize("n_draws", [10, 60, 200, 1000, 2000])
@pytest.mark.parametrize("n_chains", [1, 2, 4])
@pytest.mark.parametrize("kernel", [mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis, mcmc.RacingSlice])
def test_ordinary_runs_are_quiet(kernel, n_chains, n_draws):
    if kernel is mcmc.RacingSlice and n_draws > 200:
        n_draws = 400
    assert words_of(kernel(logistic_model(prior_sd=10.0)), n_draws=n_draws, n_chains=n_chains) == []


def test_a_random_walk_in_ten_dimensions_is_quiet_if_it_is_long_enough():
    kernel = mcmc.RacingMetropolis(logistic_model(5000, 10), proposal="random-walk")
    assert words_of(kernel, n_draws=40_000, n_chains=2, n_tune=1000) == []
    told = words_of(kernel, n_draws=1000, n_chains=2, n_tune=1000)
    assert any("effective sample size of x" in words and "at least 200 are needed" in words for words in told)


def test_chains_that_did_not_arrive():
    """Starts apart, no tuning, a walk that is too short to get anywhere."""
    kernel = mcmc.RacingMetropolis(logistic_model(), proposal="random-walk", size=0.01)
    told = " | ".join(words_of(kernel, [[6.0, 4.0], [-6.0, 4.0]], n_draws=300, n_chains=2, n_tune=0))
    for words in ("R-hat of x", "that of 2 of 2 coordinates is above 1.0", "effective sample size",
                  "chains 0, 1 stayed far", "standard deviations", "tune"):
        assert words in told
    assert "began at one point" not in told


@pytest.mark.parametrize("n_draws", [8, 20, 99])
def test_few_draws_of_chains_that_disagree_are_warned_of_and_printed_as_saying_little(n_draws):
    kernel = mcmc.RacingMetropolis(logistic_model(), proposal="random-walk", size=0.01)
    words = " | ".join(words_of(kernel, [[6.0, 4.0], [-6.0, 4.0]], n_draws=n_draws, n_chains=2, n_tune=0))
    assert "R-hat of x" in words and "effective sample size" not in words
    apart, alike = (of(np.random.default_rng(0).normal(size=(2, n, 1))) for n in (n_draws, 100))
    assert diagnosis(apart, None, False) == ()
    assert f"say little after {n_draws} draws a chain" in str(apart) and "say little" not in str(alike)


def test_a_trace_without_draws_gives_an_empty_frame():
    pytest.importorskip("pandas")
    frame = of(np.empty((2, 0, 3))).to_frame()
    assert list(frame.columns) == ["coordinate", "mean", "sd", "5%", "95%", "ess", "rhat"] and len(frame) == 0


def test_fewer_draws_than_eight_are_not_judged():
    trace = of(np.arange(2.0)[:, None, None] * np.ones((2, 7, 1)))
    assert diagnosis(trace, None, False) == () and "say little after 7 draws a chain" in str(trace)


def test_chains_that_all_began_at_one_point():
    kernel = mcmc.RacingMetropolis(logistic_model())
    for init in ([1.0, 1.0], [[1.0, 1.0]] * 3):
        told = words_of(kernel, init, n_draws=200, n_chains=3)
        assert len(told) == 1 and "all 3 chains began at one point" in told[0] and "(3, 2)" in told[0]
    assert words_of(kernel, [1.0, 1.0], n_draws=200, n_chains=1) == []
    assert words_of(kernel, [[1.0, 1.0], [0.9, 1.0], [1.0, 1.0]], n_draws=200, n_chains=3) == []
    y = np.random.default_rng(0).normal(size=100)
    plain = mcmc.Metropolis(mcmc.FunctionModel(lambda theta, rows: -0.5 * (y[rows] - theta[0]) ** 2, 1, 100))
    assert "began at one point" in words_of(plain, n_draws=1000, n_chains=2)[0]     # at zero, where no start is known
    trace = mcmc.sample(kernel, n_draws=100, n_chains=2, rng=1)
    assert words_of(kernel, trace, n_draws=100) == []


def test_proposals_that_are_hardly_ever_accepted():
    kernel = mcmc.Metropolis(logistic_model(), proposal="random-walk", size=20.0)
    told = " | ".join(words_of(kernel, n_draws=400, n_chains=2, n_tune=0))
    assert "chains 0, 1 accepted less than 10% of the proposals" in told and "smaller size" in told


@pytest.mark.parametrize(("kernel", "advice"), [
    (mcmc.PoissonMinibatchMetropolis, "RacingMetropolis needs no such bounds; a narrower prior_sd"),
    (mcmc.FireflyMetropolis, "RacingMetropolis needs no such bounds; a narrower prior_sd"),
    (mcmc.TunaMetropolis, "Take a smaller size, or PoissonMinibatchMetropolis"),
])
def test_minibatches_that_read_all_rows(kernel, advice):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.normal(size=200)])
    separated = rng.random(200) < special.expit(200.0 * X[:, 1])
    told = words_of(kernel(mcmc.GLM(X, separated, prior_sd=100.0)), n_draws=300, n_chains=2)
    told = [words for words in told if "read all rows" in words]
    assert len(told) == 1 and advice in told[0]
    assert "chains 0, 1 read all rows in most steps (up to 9" in told[0] or "(up to 100.0%" in told[0]
    model = logistic_model(2000, prior_sd=10.0)
    assert not any("read all rows" in words for words in words_of(kernel(model), n_draws=300, n_chains=2))
    exact = mcmc.Metropolis(mcmc.GLM(X, separated, prior_sd=100.0))
    assert not any("read all rows" in words for words in words_of(exact, n_draws=300, n_chains=2))


@pytest.mark.parametrize("kernel", [mcmc.RacingMetropolis, mcmc.RacingSlice])
def test_races_without_a_control_variate_that_read_all_rows(kernel):
    told = words_of(kernel(logistic_model(2000, prior_sd=10.0), control_variate=None), n_draws=200, n_chains=1)
    assert any("read all rows in most steps" in words and "control_variate='auto'" in words for words in told)


def test_a_posterior_that_the_reference_does_not_fit():
    model = logistic_model()
    true = model.reference()
    narrow = mcmc.Reference(true.theta_hat, true.center, true.factor / 50.0, None, np.inf)
    kernel = mcmc.Metropolis(model, proposal="random-walk", control_variate=None)
    kernel.reference, kernel._factor = narrow, narrow.factor
    told = " | ".join(words_of(kernel, n_draws=2000, n_chains=2, n_tune=2000))
    assert "stayed far from the normal density" in told and "control_variate=trace.draws.mean(axis=(0, 1))" in told


def test_one_chain_is_judged_by_its_halves():
    rng = np.random.default_rng(0)
    drift = np.linspace(0.0, 5.0, 2000)[None, :, None] + rng.normal(size=(1, 2000, 1))
    assert of(drift).rhat()[0] > 1.5
    assert "or their halves, disagree" in " ".join(diagnosis(of(drift), None, False))
    still = of(np.zeros((2, 500, 1)), accepted=False)
    assert "accepted less than" in " ".join(diagnosis(still, None, False))


@pytest.mark.parametrize("kind", ["apart", "wider", "slow"])
def test_a_glance_at_long_chains_misses_no_disagreement(kind):
    """What is said of long chains is what R-hat of all draws says, which is computed only where they may disagree."""
    rng, limit, near = np.random.default_rng(11), 1.01, 0
    for _ in range(5):
        n = int(rng.integers(8000, 16_000))
        draws = rng.standard_normal((2, n, 4))
        if kind == "apart":
            draws[1] += rng.uniform(0.1, 0.3, 4)
        elif kind == "wider":
            draws[1] *= np.exp(rng.uniform(0.1, 0.4, 4))
        else:
            keep = 1.0 - 1.0 / rng.uniform(20.0, n / 60.0, 4)
            for j in range(4):
                draws[:, :, j] = signal.lfilter([1.0], [1.0, -keep[j]], draws[:, :, j], axis=1)
        for j in range(4):
            trace = of(draws[:, :, j:j + 1])
            told = any("R-hat" in words for words in diagnosis(trace, None, False))
            assert told <= ("rhat" in vars(trace).get("_known", {}))
            near += 1.005 < trace.rhat()[0] < 1.02
            assert told == (trace.rhat()[0] > limit)
    assert near > 4
    alike = of(rng.standard_normal((2, 20_000, 3)))
    assert diagnosis(alike, None, False) == () and "rhat" not in vars(alike).get("_known", {})
    bad = alike.draws.copy()
    bad[0, 7, 1] = np.nan       # which is not among the draws that are looked at
    assert "R-hat of theta[1] is nan" in " ".join(diagnosis(of(bad), None, False))


def test_rhat_of_chains_that_stand_still_is_not_one():
    apart = np.zeros((2, 100, 3)) + np.array([[[0.0, 1.0, 2.0]], [[0.0, 1.0, 3.0]]])
    np.testing.assert_array_equal(of(apart).rhat(), [1.0, 1.0, np.inf])
    assert of(apart).ess()[2] < 10.0 and (of(apart).ess()[:2] == 200.0).all()


@pytest.mark.parametrize("n", [3, 4, 7, 100, 333])
def test_sizes_of_all_coordinates_at_once_are_those_of_each(n, monkeypatch):
    rng = np.random.default_rng(n)
    draws = rng.normal(size=(3, n, 5)).cumsum(axis=1) * [1.0, 0.0, 1.0, 1.0, 1.0] + rng.normal(size=5)
    draws[:, :, 3] = rng.integers(0, 2, (3, n))
    each = [effective_sample_size(draws[:, :, j]) for j in range(5)]
    whole = of(draws).ess(), of(draws).rhat()
    np.testing.assert_allclose(whole[0], each, rtol=1e-12)
    monkeypatch.setattr("fastrace.mcmc._convergence._AT_ONCE", 1)
    np.testing.assert_allclose(of(draws).ess(), whole[0], rtol=1e-12)
    np.testing.assert_allclose(of(draws).rhat(), whole[1], rtol=1e-12)


def test_nothing_large_is_printed():
    kernel = mcmc.PoissonMinibatchMetropolis(logistic_model())
    trace = mcmc.sample(kernel, n_draws=1000, n_chains=2, rng=1)
    for thing in (trace, kernel, trace.chains[0], kernel.reference, trace.states[0], kernel.model):
        assert len(repr(thing)) < 200
        assert "Generator" not in repr(thing) and "dtype" not in repr(thing)
    assert repr(trace) == ("Trace(PoissonMinibatchMetropolis: 2 chains of 1000 draws of theta, each of shape (2,); "
                           "0 warnings)")


def test_a_warning_that_is_made_an_error_has_the_trace():
    kernel = mcmc.RacingMetropolis(logistic_model())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="began at one point") as caught:
            mcmc.sample(kernel, [1.0, 1.0], n_draws=200, n_chains=2, rng=1)
    assert caught.value.trace.n_draws == 200 and caught.value.trace.warnings == (str(caught.value),)


class Words:
    """A kernel whose draws are no numbers."""

    variable = "word"

    class State:
        position = np.array("a", dtype=object)

    def init(self, position=None, rng=None):
        return self.State()

    def run(self, rng, state, n, *, tune=False):
        return state, Steps(np.array(["a"] * n, dtype=object), *(np.ones(n, np.int64),) * 2, *(np.ones(n, bool),) * 3)

    def describe(self):
        return {"kernel": "Words"}


class Walk(Words):
    """A kernel of a user's own: a state is a number, without a `position`."""

    def init(self, position=None, rng=None):
        return 0.0 if position is None else float(position)

    def run(self, rng, state, n, *, tune=False):
        draws = rng.normal(size=n)
        return float(draws.sum()), Steps(draws, *(np.ones(n, np.int64),) * 2, *(np.ones(n, bool),) * 3)


@pytest.mark.parametrize("init", [None, 1.5])
def test_states_need_no_position(init):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        trace = mcmc.sample(Walk(), init=init, n_draws=200, n_chains=2, rng=1)
    assert trace.n_draws == 200


def test_draws_that_cannot_be_checked_are_returned():
    with pytest.warns(UserWarning, match="the draws could not be checked .ValueError"):
        trace = mcmc.sample(Words(), n_draws=200, n_chains=2, rng=1)
    assert trace.n_draws == 200


def starts_of(kernel, n_chains, **options):
    """Where chains begin, from the first call of each."""
    begun = {}

    class Watched:
        """The kernel, whose first states are kept."""

        def __getattr__(self, name):
            return getattr(kernel, name)

        def init(self, position=None, rng=None):
            state = kernel.init(position, rng)
            begun[len(begun)] = state.position
            return state

        def run(self, rng, state, n, *, tune=False):
            return kernel.run(rng, state, n, tune=tune)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mcmc.sample(Watched(), n_draws=1, n_chains=n_chains, rng=1, **options)
    return np.stack([begun[i] for i in range(n_chains)])


@pytest.mark.parametrize("dim", [1, 2, 10])
def test_starts_are_twice_as_wide_as_the_reference_where_there_is_tuning(dim):
    kernel = mcmc.RacingMetropolis(logistic_model(1000, dim))
    about = kernel.reference
    for n_tune, sd in ((1, 2.0), (0, 1.0)):
        starts = starts_of(kernel, 400, n_tune=n_tune)[:400]
        z = np.linalg.solve(about.factor, (starts - about.center).T)
        assert np.linalg.norm(z, axis=0).max() <= np.sqrt(dim) + 3.0 + 1e-9 or sd == 1.0
        assert 0.75 * sd < z.std() < 1.15 * sd      # the farthest are brought in; 5 sd of 400 draws are 0.18


def test_starts_lie_where_the_posterior_is_above_0():
    half = logistic_model(log_prior=lambda theta: 0.0 if theta[0] > 1.0 else -np.inf)
    assert 0.8 < half.reference().center[0] < 1.1
    kernel = mcmc.RacingMetropolis(half)
    kernel.reference.center[:] = [1.05, 1.0]
    starts = np.stack([kernel.dispersed(np.random.default_rng(seed)) for seed in range(50)])
    assert (starts[:, 0] > 1.0).all()


def quadratic(n_rows=5000, mirror=1.0, **options):
    """Outcomes about theta squared: modes at +1 and -1, the second of another mass if `mirror` is not 1."""
    y = 1.0 + np.random.default_rng(0).normal(size=n_rows)

    def terms(theta, rows):
        return -0.5 * (y[rows] - theta[0] ** 2) ** 2

    def derivatives(theta, rows):
        left = y[rows] - theta[0] ** 2
        return 2.0 * theta[:1] * left[:, None], (2.0 * left - 4.0 * theta[0] ** 2)[:, None, None]

    return mcmc.FunctionModel(terms, 1, n_rows, derivatives=derivatives, start=[0.9], **options)


def test_another_mode_is_found_and_named():
    kernel = mcmc.RacingMetropolis(quadratic())
    told = words_of(kernel, n_draws=500, n_chains=2)
    assert len(told) == 1 and "another mode near theta = (-0.9" in told[0] and "about 1 times the mass" in told[0]
    with pytest.warns(UserWarning, match="another mode near theta = .-0.9"):
        answer = mcmc.laplace(quadratic(), 200, rng=1)
    assert "another mode" in answer.warnings[0]
    least = quadratic(prior_mean=1.0, prior_sd=0.2)     # what the prior leaves of the other is e^-50
    assert words_of(mcmc.RacingMetropolis(least), n_draws=500, n_chains=2) == []


def test_models_of_one_mode_are_quiet_and_cost_no_search():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2000, 3))
    student = mcmc.GLM(X, X.sum(axis=1) + rng.standard_t(3.0, size=2000), family="student-t", scale=1.0)
    assert words_of(mcmc.RacingMetropolis(student), n_draws=500, n_chains=2) == []
    r = rng.normal(size=1500)
    assert not any("another mode" in words for words in words_of(mcmc.RacingMetropolis(mcmc.ARCH(r, 1)), n_draws=200))
    assert other_mode(logistic_model(), logistic_model().reference()) is None


def two_camps(share, n_groups=2, rows=30, **options):
    """Student-t outcomes with a share of the rows 10 away from the others in every group."""
    rng = np.random.default_rng(4)
    codes = np.tile(np.arange(n_groups), rows)
    y = rng.standard_normal(len(codes)) + 10.0 * (np.arange(len(codes)) // n_groups < share * rows)
    model = mcmc.GLM(np.ones((len(codes), 1)), y, "student-t", **{"scale": 1.0, "df": 3.0, **options}, groups=codes,
                     prior=mcmc.Normal(0.0, 5.0), group_prior=mcmc.HalfNormal(2.0))
    return model, codes, y


def test_a_trace_as_psi_hat_says_where_its_draws_are():
    """Draws hold a learned scale, psi_hat its logarithm: here .05, and -3."""
    rng = np.random.default_rng(3)
    x, codes = rng.normal(size=(600, 1)), rng.integers(0, 4, 600)
    model = mcmc.GLM(x, x[:, 0] + 0.05 * rng.standard_t(4.0, 600), "student-t", groups=codes)
    kernel = mcmc.SurrogateMetropolis(model)
    trace = mcmc.sample(kernel, n_draws=300, n_chains=2, rng=1)
    again = mcmc.SurrogateMetropolis(model, psi_hat=trace)
    assert -3.5 < again.compressed.psi_hat[-1] < -2.5
    assert kernel.compressed.distance(again.compressed.psi_hat) < 2.0
    middle = model.unconstrain(trace.draws)[..., : model.n_seen].mean(axis=(0, 1))
    np.testing.assert_allclose(again.compressed.psi_hat, middle, rtol=1e-12)
    np.testing.assert_array_equal(mcmc.compress(model, trace).psi_hat, again.compressed.psi_hat)
    with pytest.raises(ValueError, match="the model that was sampled is needed"):
        mcmc.compress(mcmc.GLM(x, x[:, 0] > 0.0, prior_sd=1.0), trace)
    with pytest.raises(ValueError, match="psi_hat is a trace without draws"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mcmc.compress(model, mcmc.sample(kernel, n_draws=0, n_tune=0, n_chains=1))


def test_another_mode_of_a_hierarchy_is_found_with_its_mass():
    model, codes, y = two_camps(0.5, n_groups=3)
    kernel = mcmc.SurrogateMetropolis(model)
    with pytest.warns(UserWarning, match="another mode near theta") as caught:
        mcmc.sample(kernel, n_draws=200, n_chains=2, rng=1)
    assert any("with psi_hat there, where they then begin" in str(w.message) for w in caught)
    at, share = other_expansion(model, kernel.compressed)
    level, b, log_tau = np.linspace(-4.0, 14.0, 301), np.linspace(-14.0, 22.0, 91), np.linspace(-4.0, 2.5, 40)
    given = stats.norm(b[:, None, None], np.exp(log_tau)[:, None]).pdf(level)
    hyper = stats.halfnorm(scale=2.0).pdf(np.exp(log_tau)) * np.exp(log_tau) * stats.norm(0.0, 5.0).pdf(b)[:, None]

    def mass(sides):
        """Of a posterior whose groups have their levels on these sides of the middle; over a grid."""
        out = hyper
        for g, side in enumerate(sides):
            rows = stats.t(3.0).logpdf(y[codes == g, None] - level).sum(axis=0)
            out = out * (given * np.exp(rows + 150.0) * ((level > 5.0) == side)).sum(axis=-1)
        return out.sum()

    here, there = (psi[0] + psi[1:4] > 5.0 for psi in (kernel.compressed.psi_hat, at))
    assert (here != there).any()
    assert 0.6 < share / (mass(there) / mass(here)) < 1.6
    kernel = mcmc.SurrogateMetropolis(model, psi_hat=at)
    assert (kernel.compressed.psi_hat == at).all()


def test_hierarchies_of_one_mode_are_quiet_and_cost_no_search(monkeypatch):
    model, *_ = two_camps(0.0, n_groups=4)
    assert other_expansion(model, mcmc.compress(model)) is None
    learned, *_ = two_camps(0.0, n_groups=4, scale=None)
    assert other_expansion(learned, mcmc.compress(learned)) is None
    monkeypatch.setattr("fastrace.mcmc._fit.expansions_apart", None)      # would raise
    rng = np.random.default_rng(0)
    codes, x = rng.integers(0, 5, 400), rng.standard_normal(400)
    for family in ("gaussian", "logistic"):
        y = x + rng.standard_normal(400)
        concave = mcmc.GLM(x[:, None], y if family == "gaussian" else y > 0.0, family, groups=codes)
        assert other_expansion(concave, mcmc.compress(concave)) is None


def test_derivatives_that_fail_far_out_do_no_harm():
    good = quadratic(1000)

    def derivatives(theta, rows):
        if theta[0] < 0.5:
            raise ArithmeticError("out of range")
        return good.derivatives(theta, rows)

    model = mcmc.FunctionModel(good.terms, 1, 1000, derivatives=derivatives, start=[0.9])
    assert words_of(mcmc.RacingMetropolis(model), n_draws=500, n_chains=2) == []


def test_independent_proposals_with_short_tails():
    rng = np.random.default_rng(8)
    X = np.column_stack([np.ones(3000), rng.normal(size=3000)])
    model = mcmc.GLM(X, np.arange(3000) < 1, prior_sd=10.0)
    kernel = mcmc.RacingMetropolis(model, proposal="independent", walk_share=0.0)
    assert any("Pareto k of the weights" in words and "crank-nicolson" in words
               for words in words_of(kernel, n_draws=300, n_chains=2))
    near = mcmc.RacingMetropolis(logistic_model(20_000), proposal="independent")
    assert residual_k(near.model, near.reference) < 0.5         # from 4000 of the rows
    assert words_of(near, n_draws=1000, n_chains=2) == []


def test_a_kernel_may_ask_for_more_acceptance():
    trace = of(np.random.default_rng(0).normal(size=(2, 200, 1)))
    trace.chains[0].accepted[:170] = False
    assert not any("accepted less" in words for words in diagnosis(trace, None, False))
    assert "chain 0 accepted less than 20% of the proposals (the worst 15.00%)" in " ".join(
        diagnosis(trace, None, False, least_accepted=0.2))


def test_check_bias_of_slices():
    model = logistic_model(2000, 3, prior_sd=10.0)
    kernel = mcmc.RacingSlice(model, 0.05, control_variate=None, covariance=None)
    trace = mcmc.sample(kernel, n_draws=30, n_chains=2, n_tune=0, rng=1)
    check = mcmc.check_bias(kernel, trace, n=200, rng=1)
    assert check.n_checked >= 200 and 0 < check.n_raced <= check.n_checked
    assert_rate_at_most(check.n_wrong, check.n_checked, kernel.delta)
    careless = mcmc.RacingSlice(model, 0.49, control_variate=None, first_look=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert mcmc.check_bias(careless, trace, n=200, rng=1).n_wrong > 0
    with pytest.raises(TypeError, match="kernel is a Slice, whose decisions are not races"):
        mcmc.check_bias(mcmc.Slice(model), trace)


def test_check_bias_says_when_chains_have_not_mixed():
    kernel = mcmc.RacingMetropolis(logistic_model(), proposal="random-walk", size=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        apart = mcmc.sample(kernel, [[6.0, 4.0], [-6.0, 4.0]], n_draws=300, n_chains=2, n_tune=0, rng=1)
    with pytest.warns(UserWarning, match="R-hat of x"):
        check = mcmc.check_bias(kernel, apart, n=50, rng=1)
    assert "R-hat" in check.warnings[0] and "warning: R-hat of x" in str(check)
    near = mcmc.RacingMetropolis(logistic_model())
    check = mcmc.check_bias(near, mcmc.sample(near, n_draws=1000, n_chains=2, rng=1), n=50, rng=1)
    assert check.warnings == () and "warning" not in str(check)


def test_check_bias_of_surrogate_chains():
    """Effects of five groups, and of one that has a single row."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 5, 1500)
    x = rng.normal(size=(1500, 1))
    y = rng.random(1500) < special.expit(0.3 * x[:, 0] - 1.0)
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(x, y, groups=codes), decision="race")
    trace = mcmc.sample(kernel, n_draws=500, n_chains=2, rng=1)
    check = mcmc.check_bias(kernel, trace, n=300, rng=1)
    assert check.n_checked == 300 and check.n_raced > 0
    assert_rate_at_most(check.n_wrong, check.n_checked, kernel.delta)
    codes[0], y[0] = 5, True
    alone = mcmc.SurrogateMetropolis(mcmc.GLM(x, y, groups=codes), decision="race")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        trace = mcmc.sample(alone, n_draws=500, n_chains=2, rng=1)
        check = mcmc.check_bias(alone, trace, n=300, rng=1)
    assert_rate_at_most(check.n_wrong, check.n_checked, kernel.delta)
    with pytest.raises(TypeError, match="whose decisions are not races"):
        mcmc.check_bias(mcmc.SurrogateMetropolis(kernel.model, decision="exact"), trace)


def _hierarchy(columns, y, **options):
    group = np.random.default_rng(3).integers(0, 8, len(y))
    return mcmc.GLM(np.column_stack(columns), y, groups={"g": group}, **options)


@pytest.mark.parametrize(("also", "separated", "words"), [
    (None, True, "separated.*'x1', on which"), ("copy", False, "one direction of parameters 'x1', 'x2'"),
    ("ones", False, "one direction of parameters 'x0', 'x2'")])
def test_hierarchies_that_are_improper_under_flat_priors_are_refused(also, separated, words):
    rng = np.random.default_rng(2)
    x = rng.normal(size=500)
    y = x > 0.0 if separated else rng.random(500) < 0.5
    columns = [np.ones(500), x, *{"copy": [x], "ones": [np.ones(500)]}.get(also, [])]
    with pytest.raises(ValueError, match=words):
        mcmc.compress(_hierarchy(columns, y, prior=mcmc.Normal(0.0, np.inf)))
    assert mcmc.compress(_hierarchy(columns, y)).n_seen == len(columns) + 8


def test_a_surrogate_that_misses_a_part_of_the_posterior():
    """Words say so, and name a call; chains of that call are as they should be."""
    rng = np.random.default_rng(4)
    model = _hierarchy([np.ones(500), rng.normal(size=500)], rng.random(500) < 0.5)
    bad = mcmc.SurrogateMetropolis(model, decision="poisson", psi_hat=np.r_[3.0, -3.0, np.zeros(8)])
    with pytest.warns(UserWarning, match="weights of draws from prior times expansion is") as caught:
        trace = mcmc.sample(bad, n_draws=150, n_chains=2, n_tune=0, rng=1, init=np.r_[np.full(10, 2.0), 1.0])
    assert any("accepted less than 20%" in words and "hardly moved" in words for words in trace.warnings)
    assert any("began at one point" in words for words in trace.warnings)
    call = "kernel = mcmc.SurrogateMetropolis(model, psi_hat=trace)"
    assert sum(call in str(w.message) for w in caught) == 3
    names = {"mcmc": mcmc, "model": model, "trace": mcmc.sample(mcmc.SurrogateMetropolis(model), rng=1)}
    exec(call, names)
    assert not mcmc.sample(names["kernel"], rng=1).warnings


def test_sweeps_over_groups_miss_nothing_where_moves_of_all_effects_would():
    """Prior times expansion has a Pareto k of .9 in all coordinates at once; chains go far in each by its own rows."""
    rng = np.random.default_rng(1)
    codes, x, effects = np.repeat(np.arange(500), 3), rng.normal(size=1500), rng.normal(size=500)
    y = rng.random(1500) < special.expit(0.3 + 0.8 * x + effects[codes])
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(np.column_stack([np.ones(1500), x]), y, groups=codes))
    assert kernel.describe()["groups_swept"] == 500
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = mcmc.sample(kernel, n_draws=300, rng=1)
    assert trace.accepted.mean() < _fit._FITS
    assert not [str(w.message) for w in caught if "Pareto" in str(w.message) or "accepted less" in str(w.message)]
    points, beside = kernel.surrogate_draws(400, np.random.default_rng(0))
    assert _fit.tail(kernel.model, kernel.reference, points, beside) > 0.7


@pytest.mark.parametrize("bad", [False, True])
def test_refusals_are_spoken_of_where_other_moves_do_not_make_up_for_them(bad):
    draws = np.random.default_rng(0).normal(size=(4, 1000, 2)) + bad * np.arange(4)[:, None, None]
    found = diagnosis(of(draws, accepted=False), None, False, least_accepted=0.2, rests_on_proposals=False)
    assert sum("accepted less than 20%" in words and "hardly moved" not in words for words in found) == bad


def test_a_k_that_a_few_rows_make_is_looked_at_again_on_more(monkeypatch):
    """A subset that happens to hold rows with most of the residual counts each many times."""
    rng = np.random.default_rng(1)
    model, asked = mcmc.GLM(rng.normal(size=(20_000, 1)), rng.random(20_000) < 0.5), []
    points = rng.normal(size=(400, 1))

    def left(model, reference, points, count):
        asked.append(count)
        return (10.0 if count == _fit._TERMS else 0.1) * np.square(points[:, 0])

    monkeypatch.setattr(_fit, "residuals", left)
    assert _fit.tail(model, None, points) < 0.7 and asked == [_fit._TERMS, _fit._MORE[0]]


def test_races_of_skewed_poisson_terms_near_ties_keep_their_promise_by_default(monkeypatch):
    """Rare counts, offsets and columns with long tails: without its guard the normal rule errs twice as often.

    That is so where the few rows that matter are raced like the others, as of a model without a control variate.
    """
    wrong = dict.fromkeys(("default", "apart", "guarded", "plain"), 0)
    options = {"default": {}, "apart": {"bound": "normal", "skewness_guard": False}, "guarded": {"bound": "normal"},
               "plain": {"bound": "normal", "skewness_guard": False}}
    rng = np.random.default_rng(3)
    X = rng.standard_normal((8000, 5))
    X[:, 0] = 1.0
    rate = np.exp(X @ [0.3, 0.5, -0.5, 0.2, 0.0] - 7.0 + 2.0 * rng.standard_normal(8000))
    offset = 2.0 * rng.standard_normal(8000) - 2.0
    model = mcmc.GLM(np.exp(0.8 * X), rng.poisson(rate), family="poisson", offset=offset, prior_sd=5.0)
    for name, own in options.items():
        if name == "guarded":
            monkeypatch.setattr(_racing.Racing, "_races_miss", lambda self: False)
        kernel = mcmc.RacingMetropolis(model, **own)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = mcmc.sample(kernel, n_draws=200, n_chains=1, n_tune=200, rng=1)
            found = mcmc.check_bias(kernel, trace, 400, rng=1)
        wrong[name] = found.n_wrong
    assert_rate_at_most(wrong["default"], 400, 0.01)      # betting on bounds in a ball, which is rigorous
    assert_rate_at_most(wrong["apart"], 400, 0.05)
    assert_rate_at_most(wrong["guarded"], 400, 0.05)
    assert wrong["plain"] > 1.5 * wrong["guarded"]


def test_a_chain_that_is_wider_than_the_others_is_warned_of():
    """Its mean is theirs: R-hat without ranks was .9996."""
    draws = np.random.default_rng(0).normal(size=(4, 2000, 2))
    assert diagnosis(of(draws), None, False) == ()
    draws[3, :, 1] *= 5.0
    rhat = of(draws).rhat()
    assert rhat[0] < 1.01 and rhat[1] == pytest.approx(1.26, abs=0.02)
    assert "R-hat of theta[1]" in " ".join(diagnosis(of(draws), None, False))
    draws[3, 7, 0] = np.nan
    assert np.isnan(of(draws).rhat()[0]) and "R-hat of theta[0] is nan" in " ".join(diagnosis(of(draws), None, False))


@pytest.mark.parametrize("grouped", [False, True])
def test_chains_of_a_surrogate_far_from_where_it_is_expanded(grouped):
    """With a joint prior it was not said."""
    rng = np.random.default_rng(0)
    x, codes = np.column_stack([np.ones(60), rng.normal(size=60)]), np.arange(60) % 4
    model = mcmc.GLM(x, x[:, 1] + rng.normal(size=60), "gaussian", **({"groups": codes} if grouped else {}))
    kernel = mcmc.SurrogateMetropolis(model, size=0.05)
    assert not any("stayed far" in words for words in words_of(kernel, n_draws=300, n_chains=2))
    start = [50.0, -50.0] + grouped * 4 * [0.0] + [1.0] + grouped * [1.0]
    told = " | ".join(words_of(kernel, start, n_draws=20, n_chains=2, n_tune=0))
    assert "chains 0, 1 stayed far" in told and "psi_hat=trace" in told


def test_effects_of_a_thousand_that_are_right_are_not_far():
    """The expansion's estimate of their deviation was 0, by which the intercept lay 1e4 deviations away."""
    rng = np.random.default_rng(1)
    codes, x = rng.integers(0, 2, 200), rng.normal(size=200)
    model = mcmc.GLM(np.column_stack([np.ones(200), x]), rng.poisson(np.exp(12.0), 200), "poisson", groups=codes)
    kernel = mcmc.SurrogateMetropolis(model)
    assert not any("stayed far" in words for words in words_of(kernel, n_draws=400, n_chains=2))
    codes = np.arange(200) % 6
    y = np.where(codes % 2, 1000.0, -1000.0) + x + rng.normal(size=200)
    for prior in (None, mcmc.HalfNormal(1.0), mcmc.HalfNormal(1e4)):
        model = mcmc.GLM(np.column_stack([np.ones(200), x]), y, "gaussian", groups=codes, group_prior=prior)
        kernel = mcmc.SurrogateMetropolis(model, size=0.3)
        assert not any("stayed far" in words for words in words_of(kernel, n_draws=300, n_chains=2))
    start = [2e4, 1.0] + 6 * [0.0] + [1.0, 1.0]
    told = " | ".join(words_of(kernel, start, n_draws=20, n_chains=2, n_tune=0))
    assert "chains 0, 1 stayed far" in told
