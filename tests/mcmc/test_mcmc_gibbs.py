"""Gibbs kernels over categorical variables: an enumerable target, twins, full passes, bias."""

import warnings

import numpy as np
import pytest

import fastrace as fr
from chains import logistic
from fastrace import mcmc
from fastrace.mcmc.kernels.gibbs import Tally
from guarantee import assert_fits, assert_rate_at_most
from reference import gibbs as gibbs_twin


class Coupled:
    """A binary and a three-state variable, coupled by their factors, of which they have different numbers."""

    def __init__(self, scale=0.05, seed=4):
        rng = np.random.default_rng(seed)
        self.a = scale * rng.standard_normal((300, 2, 3))      # log-factors that see both
        self.b = scale * rng.standard_normal((200, 3))         # those of the second alone
        self.log_prior = np.log([0.5, 0.3, 0.2])
        log_p = self.a.sum(axis=0) + self.b.sum(axis=0) + self.log_prior
        self.p = np.exp(log_p - log_p.max())
        self.p /= self.p.sum()
        both = np.concatenate([self.a, np.broadcast_to(self.b[:, None], (200, 2, 3))])
        self.variables = [
            mcmc.Categorical(2, lambda states, rows, z: self.a[rows][:, states, z[1]], 300),
            mcmc.Categorical(3, lambda states, rows, z: both[rows][:, z[0]][:, states], 500, log_prior=self.log_prior),
        ]

    def counts(self, kernel, trials, rng):
        out = np.zeros(6, int)
        for start in rng.choice(6, size=trials, p=self.p.ravel()):
            z = kernel.run(rng, kernel.init(np.unravel_index(start, (2, 3))), 1)[1].draws[-1]
            out[3 * z[0] + z[1]] += 1
        return out


@pytest.mark.parametrize("name", ["exact", "poisson"])
def test_exact_gibbs_kernels_leave_an_enumerable_target_invariant(name):
    target = Coupled(0.02 if name == "poisson" else 0.05)
    if name == "exact":
        kernel = mcmc.Gibbs(target.variables)
    else:
        kernel = mcmc.PoissonMinibatchGibbs(target.variables, (-0.12, 0.12), rate=400.0)
    assert_fits(target.counts(kernel, 1500, np.random.default_rng(1)), target.p.ravel())


def test_racing_gibbs_is_within_its_promise():
    target = Coupled()
    kernel = mcmc.RacingGibbs(target.variables, 0.05)
    counts = target.counts(kernel, 500, np.random.default_rng(2))
    for count, p in zip(counts, target.p.ravel(), strict=True):
        assert_rate_at_most(count, 500, p + 2 * 0.05)
        assert_rate_at_most(500 - count, 500, 1 - p + 2 * 0.05)


def coupled_tables(spread, n=400):
    """Two variables of three and two states; the tables of each depend on the other's state."""
    rng = np.random.default_rng(9)
    first, second = spread * rng.random((2, n, 3)), spread * rng.random((3, n, 2))
    first[:, :, 0] += 0.003
    tables = [(lambda z: first[z[1]], lambda z: [0.2 * z[1], 0.0, -0.1]),
              (lambda z: second[z[0]], lambda z: [0.0, 0.5])]
    variables = [
        mcmc.Categorical(3, lambda states, rows, z: first[z[1]][rows][:, states], n, log_prior=tables[0][1]),
        mcmc.Categorical(2, lambda states, rows, z: second[z[0]][rows][:, states], n, log_prior=tables[1][1]),
    ]
    return tables, variables


@pytest.mark.parametrize("name", ["exact", "racing", "poisson", "poisson-rate"])
def test_gibbs_chains_are_their_twins(name):
    tables, variables = coupled_tables(0.25 if name == "racing" else 0.05)
    if name == "exact":
        kernel, draw = mcmc.Gibbs(variables), gibbs_twin.exact
    elif name == "racing":
        kernel = mcmc.RacingGibbs(variables, 0.05, first_look=20)
        plans = [fr.FiniteRace(k, 400, 0.05, "normal", "pairwise", 20)._options.plan(k) for k in (3, 2)]
        source = variables[0].source(np.zeros(2, np.intp))
        draw = gibbs_twin.Racing(plans, [source.scan_advantage + 0.6 / (source.reward_cost * k) for k in (3, 2)])
    else:
        rate = 90.0 if name == "poisson-rate" else None
        kernel = mcmc.PoissonMinibatchGibbs(variables, (0.0, 0.06), rate)
        draw = gibbs_twin.PoissonMinibatch(0.0, 0.06, rate)
    _, steps = kernel.run(np.random.default_rng(5), kernel.init([1, 0]), 200)
    expected = gibbs_twin.sweeps(tables, [1, 0], np.random.default_rng(5), 200, draw)
    np.testing.assert_array_equal(steps.draws, expected)
    assert (np.ptp(steps.draws, axis=0) > 0).all()
    if name == "racing":
        assert draw.n_raced > 20 and draw.n_left_out > 20


def test_racing_gibbs_of_all_factors_is_the_exact_one():
    target = Coupled()
    exact, race = mcmc.Gibbs(target.variables), mcmc.RacingGibbs(target.variables, first_look=500)
    for seed in range(30):
        rngs = [np.random.default_rng(seed) for _ in range(2)]
        variable = seed % 2
        drawn = []
        for kernel, rng in zip((exact, race), rngs, strict=True):
            z = np.array([0, 1])
            engine = kernel._engine(target.variables[variable], z)
            drawn.append(kernel.draw(rng, variable, z, np.zeros(2, int), engine, Tally()))
        assert drawn[0] == drawn[1]


def test_states_with_factors_of_their_own():
    rng = np.random.default_rng(5)
    members = [rng.normal(m, 1.0, n) for m, n in ((0.01, 2000), (0.2, 30), (0.0, 0))]
    sums = np.array([m.sum() for m in members]) / 8
    p = np.exp(sums - sums.max()) / np.exp(sums - sums.max()).sum()
    variable = mcmc.Categorical(3, lambda state, rows, z: members[state][rows] / 8,
                                sizes=lambda z: [len(m) for m in members])
    exact = mcmc.sample(mcmc.Gibbs([variable]), n_draws=3000, n_chains=1, n_tune=0, rng=1)
    assert_fits(np.bincount(exact.draws[0, :, 0], minlength=3), p)
    race = mcmc.sample(mcmc.RacingGibbs([variable], 0.05), n_draws=800, n_chains=1, n_tune=0, rng=1)
    for count, share in zip(np.bincount(race.draws[0, :, 0], minlength=3), p, strict=True):
        assert_rate_at_most(count, 800, share + 0.05)
        assert_rate_at_most(800 - count, 800, 1 - share + 0.05)
    assert race.rows.mean() <= exact.rows.mean()
    # What a support rules out is not read: the small state cannot win.
    members[1], members[0] = np.full(30, -4.0) + 0.01 * rng.random(30), members[0].clip(-4.0, 4.0) + 3.0
    bounded = mcmc.sample(mcmc.RacingGibbs([variable], 0.05, "normal", support=(-0.6, 0.9)), n_draws=50, n_chains=1,
                          n_tune=0, rng=1)
    assert (bounded.draws == 0).all()
    assert bounded.rows.mean() <= 20


def test_losing_races_turn_to_full_passes_and_are_reported():
    rng = np.random.default_rng(6)
    flat = rng.standard_normal((3000, 2)) - 0.0
    flat[:, 1] = flat[rng.permutation(3000), 0]
    kernel = mcmc.RacingGibbs([mcmc.Categorical(2, lambda states, rows, z: flat[rows][:, states], 3000)])
    trace = mcmc.sample(kernel, n_draws=100, n_chains=1, n_tune=0, rng=1)
    assert trace.full_pass.mean() > 0.9 and trace.undecided.mean() < 0.3
    model = mcmc.GLM(*logistic(3000, 2, 1))
    plain = mcmc.sample(mcmc.RacingMetropolis(model, control_variate=None), n_draws=1000, n_chains=1, rng=1)
    exact = mcmc.sample(mcmc.Metropolis(model, control_variate=None), n_draws=1000, n_chains=1, rng=1)
    assert plain.rows.mean() < 1.3 * exact.rows.mean()


@pytest.mark.parametrize("racing", [False, True])
def test_gibbs_chains_go_on(racing):
    variables = Coupled().variables
    kernel = mcmc.RacingGibbs(variables) if racing else mcmc.Gibbs(variables)
    whole = mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=3, rng=5, threads=1)
    start = mcmc.sample(kernel, n_draws=25, n_chains=2, n_tune=3, rng=5, threads=2)
    rest = mcmc.sample(kernel, start, n_draws=35)
    np.testing.assert_array_equal(np.concatenate([start.draws, rest.draws], axis=1), whole.draws)


def test_bad_gibbs_arguments():
    good = Coupled().variables
    for make, message in (
        (lambda: mcmc.Gibbs([]), "variables"),
        (lambda: mcmc.Categorical(0, len, 5), "n_states"),
        (lambda: mcmc.Categorical(2, None, 5), "factors"),
        (lambda: mcmc.Categorical(2, len), "n_factors"),
        (lambda: mcmc.Gibbs(good).init([0, 3]), "position"),
        (lambda: mcmc.PoissonMinibatchGibbs(good, (0.0, 0.0)), "support"),
        (lambda: mcmc.PoissonMinibatchGibbs(good, (0.0, 1.0), rate=-1.0), "rate"),
        (lambda: mcmc.RacingGibbs(good, 2.0), "delta"),
        (lambda: mcmc.sample(mcmc.PoissonMinibatchGibbs(good, (0.0, 1e-3)), n_tune=0), "support"),
        (lambda: mcmc.sample(mcmc.Gibbs([mcmc.Categorical(2, lambda s, r, z: np.full((len(r), len(s)), np.nan), 5)]),
                             n_tune=0, n_chains=1), "nan"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            make()


def test_check_bias_of_gibbs():
    target = Coupled()
    kernel = mcmc.RacingGibbs(target.variables, 0.05)
    trace = mcmc.sample(kernel, n_draws=100, n_chains=1, n_tune=0, rng=1)
    check = mcmc.check_bias(kernel, trace, n=150, rng=1)
    assert_rate_at_most(check.n_wrong, check.n_checked, 0.05)


@pytest.mark.parametrize(("support", "broken"), [((-0.5, 0.5), False), ((-0.011, 0.011), True)])
def test_racing_gibbs_notes_a_broken_support_as_a_field(support, broken):
    y = np.random.default_rng(0).random(3000)
    y[7] = 0.6 if support[1] > 0.1 else 30.0

    def factors(states, rows, z):
        return (y[rows, None] - 0.5) * np.array([0.0, 0.01, 0.02])[states]

    kernel = mcmc.RacingGibbs([mcmc.Categorical(3, factors, 3000)], 0.05, support=support)
    sampler = kernel._engine(kernel.variables[0], np.zeros(1, np.intp))[1]
    sampler.draw_many(200)
    assert sampler._core.outside is broken
    assert any("outside" in words for words in sampler.stats.warnings) is broken
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        mcmc.sample(kernel, n_draws=50, n_chains=1, n_tune=0, rng=1)
    assert kernel.outside is broken
