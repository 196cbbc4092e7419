"""Hamiltonian moves on a surrogate: the twin, invariance, detailed balance, calibration, settings."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import stats

from fastrace import mcmc
from fastrace._models._arrow import Arrow, Quadratic
from fastrace._models._priors import JointPrior
from fastrace.mcmc.kernels._hamiltonian import HamiltonianInner
from fastrace.mcmc.kernels._trajectories import LENGTHS, Purse, trajectories_of
from guarantee import assert_fits, few_or_many
from reference import priors as plain
from reference.hamiltonian import local_scales, move, scale_step, trajectory

HALF = ("half-normal", 1.0, 0.0)
SLAB = ("inverse-gamma-of-square", 3.0, 6.0)
SHARED = JointPrior([("normal", 0.0, 1.0, 0.0, 0)] * 3, [("shared", HALF)])
HORSESHOE = JointPrior([("normal", 0.0, 1.0, 0.0, 0)] * 3,
                       [("horseshoe", ("half-normal", 0.5, 0.0), ("half-student", 1.0, 4.0), SLAB)])
GROUPS = JointPrior([("student", 0.5, 1.0, 5.0, -1), ("laplace", 0.0, 0.7, 0.0, -1)],
                    factors=[(3, [HALF, ("gamma", 3.0, 2.0)], 2.0)], aux=("log-normal", 0.0, 0.5))
PRIORS = {"shared": SHARED, "horseshoe": HORSESHOE, "groups": GROUPS}


def arrow(matrix):
    matrix = np.asarray(matrix, dtype=float)
    return Arrow(matrix, np.empty((len(matrix), 0)), np.empty((0, 1, 1)), 0)


def quadratic(center, precision):
    return Quadratic(center, 0.0, np.zeros(len(center)), arrow(precision))


def nothing(prior):
    """An expansion that says nothing: the surrogate is the prior."""
    return quadratic(np.zeros(prior.n_seen), np.zeros((prior.n_seen, prior.n_seen)))


def test_local_scales_follow_a_density_of_the_users_own():
    place = HORSESHOE.n_seen + 2                    # the first local scale, held far closer than by its prior

    def own(t):
        return -0.5 * ((t[0] - 2.0) / 0.05) ** 2, np.array([-(t[0] - 2.0) / 0.05**2])

    coefficients, pools, factors, aux, _ = HORSESHOE.given
    prior = JointPrior(coefficients, pools, factors, aux, [(own, [place])])
    inner = HamiltonianInner(quadratic(np.zeros(3), np.eye(3)), prior, 0.02, 0.2)
    start = np.zeros(prior.dim)
    start[place] = 2.0
    draws = inner.draws(start, 200, np.random.default_rng(3))
    assert np.abs(draws[:, place] - 2.0).max() < 0.5
    assert len(np.unique(draws[:, place])) > 20


def free(prior, mask):
    out = prior.copy()
    out.set_free(mask)
    return out


def scale_draw(given, rng):
    """A logarithm of a scale."""
    name, a, b = given
    drawn = {"half-normal": lambda: abs(a * rng.standard_normal()), "half-student": lambda: abs(a * rng.standard_t(b)),
             "gamma": lambda: rng.gamma(a) / b, "log-normal": lambda: np.exp(rng.normal(a, b)),
             "inverse-gamma-of-square": lambda: np.sqrt(b / rng.gamma(a))}
    return np.log(drawn[name]())


def draw(prior, rng):
    """An exact draw from a joint prior, in the coordinates of chains."""
    coefficients, pools, factors, aux, _ = prior.given
    phi, wide, roots = [], np.array([c[2] for c in coefficients]), []
    for number, pool in enumerate(pools):
        mine = [j for j, c in enumerate(coefficients) if c[4] == number]
        phi.append(scale_draw(pool[1], rng))
        if pool[0] == "shared":
            wide[mine] = np.exp(phi[-1])
            continue
        overall = np.exp(phi[-1])
        phi.append(scale_draw(pool[3], rng))
        slab, local = np.exp(phi[-1]), np.array([scale_draw(pool[2], rng) for _ in mine])
        phi.extend(local)
        wide[mine] = 1.0 / np.sqrt(1.0 / (overall * np.exp(local)) ** 2 + 1.0 / slab**2)
    for _, sds, eta in factors:
        q = len(sds)
        logs = [scale_draw(sd, rng) for sd in sds]
        bends = [eta + (q - 2 - j) / 2 for i in range(q) for j in range(i)]
        y = np.arctanh([2.0 * rng.beta(b, b) - 1.0 for b in bends])
        phi += [*logs, *y]
        roots.append(np.exp(logs)[:, None] * plain.correlations(y, q))
    standard = {"normal": rng.standard_normal, "laplace": rng.laplace}
    psi = [c[1] + wide[j] * (rng.standard_t(c[3]) if c[0] == "student" else standard[c[0]]())
           for j, c in enumerate(coefficients)]
    for (n_groups, sds, _), root in zip(factors, roots, strict=True):
        psi += [x for _ in range(n_groups) for x in root @ rng.standard_normal(len(sds))]
    return np.array([*psi, *([] if aux is None else [scale_draw(aux, rng)]), *phi])


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("dense", [False, True])
def test_moves_are_those_of_the_twin(name, dense):
    prior = free(PRIORS[name], [True, False, True] + [True] * (PRIORS[name].n_seen - 3))
    rng = np.random.default_rng(3)
    root = np.tril(rng.normal(size=(prior.dim, prior.dim)) * 0.2) + np.eye(prior.dim)
    root = root if dense else np.diag(root).copy()
    matrix = np.eye(prior.n_seen) * 3.0 + 0.5
    surrogate = quadratic(np.linspace(-1.0, 1.0, prior.n_seen), matrix)
    inner = HamiltonianInner(surrogate, prior, 0.2, 1.0, root)
    inner.size = size = 0.6 if dense else 1.0
    start = rng.normal(size=prior.dim) * 0.5
    ours = inner.draws(start, 20, np.random.default_rng(8))

    def density_of(prior):
        def density(xi):
            theta = prior.from_free(xi)
            value, gradient = surrogate.evaluate(theta[:prior.n_seen])
            own, slopes = prior.value_and_gradient(theta)
            slopes[:prior.n_seen] += gradient
            slopes, jacobian = prior.pulled_back(xi, slopes)
            return value + own + jacobian, slopes
        return density

    def by_local(theta):
        return local_scales(theta, prior.value_of, places, rng)

    def by_trajectory(theta):
        square = root if dense else np.diag(root)
        xi, acceptance = trajectory(prior.free_of(theta), density_of(prior), square, 0.2, size, rng)
        accepted.append(acceptance)
        return prior.from_free(xi)

    def by_scale(theta, place):
        return scale_step(theta, place, standard, lambda xi: density_of(standard)(xi)[0], size, rng)

    scales = {"shared": [3], "horseshoe": [3], "groups": [9, 10]}[name]
    standard = free(prior, True)
    places = [prior.n_seen + 2 + j for j in range(3)] if name == "horseshoe" else []
    at, rng, accepted = start, np.random.default_rng(8), []
    for theta in ours:
        at = move(at, scales, by_local, by_scale, by_trajectory, rng)
        np.testing.assert_allclose(theta, at, rtol=1e-8, atol=1e-8)
    assert inner.acceptance == pytest.approx(np.mean(accepted), rel=1e-7)


def test_a_run_in_parts_is_the_run_in_one_piece():
    def inner():
        return HamiltonianInner(nothing(HORSESHOE), free(HORSESHOE, True), 0.3, 1.5)

    start = np.full(HORSESHOE.dim, 0.2)
    whole = inner().draws(start, 30, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    first = inner().draws(start, 11, rng)
    assert (np.concatenate([first, inner().draws(first[-1], 19, rng)]) == whole).all()


@few_or_many("trials", 500, 20_000)
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_exact_draws_stay_exact_draws_and_flow_both_ways_alike(name, share, trials):
    """From exact draws of the prior: margins as before, and detailed balance in pairs of functions of both ends."""
    prior = free(PRIORS[name], np.random.default_rng(2).random(PRIORS[name].n_seen) < share)
    inner = HamiltonianInner(nothing(prior), prior, 0.35, 1.2)
    rng = np.random.default_rng(np.random.SeedSequence((5, trials)))
    before = np.array([draw(prior, rng) for _ in range(trials)])
    after = np.array([inner.draws(theta, 3, rng)[-1] for theta in before])
    for j in range(prior.dim):
        assert stats.ks_2samp(after[:, j], before[:, j]).pvalue > 1e-8     # paired: less apart than independent draws
    bent = [np.tanh(x) for x in (before, after)]
    for j in range(prior.dim):
        flow = bent[0][:, j, None] * bent[1] ** 2 - bent[1][:, j, None] * bent[0] ** 2
        assert (np.abs(flow.mean(axis=0)) <= 5.5 * flow.std(axis=0) / np.sqrt(trials) + 1e-12).all()
    assert 0.1 < np.mean((after != before).any(axis=1))


@few_or_many("trials", 160, 4000)
@pytest.mark.parametrize("name", ["shared", "horseshoe"])
def test_calibration(name, trials):
    """Ranks of the parameters that made the data among draws of their posterior are uniform (Talts et al., 2018)."""
    prior, kept = PRIORS[name], 7
    children = np.random.SeedSequence((11, trials)).spawn(trials)
    ranks = np.empty((trials, prior.dim), dtype=int)
    for trial, child in enumerate(children):
        rng = np.random.default_rng(child)
        truth = draw(prior, rng)
        precision = np.array([0.5, 2.0, 30.0])                      # of normal data about what the rows see
        data = truth[:3] + rng.standard_normal(3) / np.sqrt(precision)
        mask = np.array([True, False, True])
        inner = HamiltonianInner(quadratic(data, np.diag(precision)), free(prior, mask), 0.3, 2.0,
                                 np.r_[1.0, 0.5, 0.5, np.ones(prior.n_hyper)])
        place = rng.integers(kept + 1)      # of the truth in a stationary chain, which runs both ways from it alike
        ends = np.concatenate([_thinned(inner, truth, count, rng) for count in (place, kept - place)])
        ties = (ends == truth).sum(axis=0)          # of a chain that refused all
        ranks[trial] = (ends < truth).sum(axis=0) + rng.integers(ties + 1)
    for j in range(prior.dim):
        assert_fits(np.bincount(ranks[:, j], minlength=kept + 1), np.full(kept + 1, 1.0 / (kept + 1)))


def _thinned(inner, truth, count, rng):
    return inner.draws(truth, 8 * count, rng)[7::8] if count else np.empty((0, len(truth)))


@few_or_many("count", 3000, 100_000)
def test_a_closed_form(count):
    """Normal data with one learned scale: the scale's posterior by quadrature over a grid, to its lowest hundredth.

    Where the scale is small, effects are stiff.
    """
    data, sd = np.array([0.8, -0.6, 0.3]), 0.4
    surrogate = quadratic(data, np.eye(3) / sd**2)
    settings = trajectories_of(surrogate, SHARED)
    draws = settings.inner(surrogate).draws(settings.start, 30 * count, np.random.default_rng(4))[::30]
    grid = np.linspace(-12.0, 3.0, 4001)
    log = np.array([SHARED.hyper_value([t]) for t in grid])
    log += stats.norm(0.0, np.hypot(sd, np.exp(grid))[:, None]).logpdf(data).sum(axis=1)
    mass = np.cumsum(np.exp(log - log.max()))
    shares = np.r_[0.01, np.linspace(0.1, 0.9, 9)]
    edges = np.interp(shares, mass / mass[-1], grid)
    assert_fits(np.bincount(np.searchsorted(edges, draws[:, 3]), minlength=11), np.diff(np.r_[0.0, shares, 1.0]))


def test_settings_suit_the_posterior():
    """What the likelihood says much of is moved as it is, and correlations are taken up."""
    precision = np.diag([400.0, 0.01, 0.01])
    settings = trajectories_of(quadratic([2.0, 0.0, 0.0], precision), HORSESHOE)
    theta = np.full(HORSESHOE.dim, 0.3)
    assert ((settings.prior.free_of(theta) != theta)[:3] == [False, True, True]).all()
    inner = settings.inner(quadratic([2.0, 0.0, 0.0], precision))
    inner.draws(settings.start, 300, np.random.default_rng(1))
    assert 0.5 < inner.acceptance < 0.98
    flat = JointPrior([("student", 0.0, 1.0, 4.0, -1)] * 3)
    related = np.linalg.inv(0.01 * (np.eye(3) * 0.02 + 0.98))
    settings = trajectories_of(quadratic(np.zeros(3), related), flat)
    assert settings.root.shape == (3, 3)
    assert settings.step > 0.3
    again = trajectories_of(quadratic(np.zeros(3), related), flat)
    assert (again.root == settings.root).all()
    assert again.step == settings.step


def test_a_pilot_makes_no_move_once_its_gradients_are_spent():
    """Its draws are those of the whole pilot up to there; what it has not measured stays as it was."""
    surrogate, flat = quadratic(np.zeros(3), np.eye(3)), JointPrior([("flat", 0.0, 1.0, 0.0, -1)] * 3)
    whole, short = trajectories_of(surrogate, flat), trajectories_of(surrogate, flat, most=400)
    assert whole.settled and not short.settled and short.length == LENGTHS[1]
    inner, purse = short.inner(surrogate), Purse(50)
    draws = list(purse.moves(inner, short.start, 1000, np.random.default_rng(1)))
    assert purse.emptied and 50 <= purse.spent == inner.n_gradients
    together = short.inner(surrogate).draws(short.start, len(draws), np.random.default_rng(1))
    np.testing.assert_array_equal(draws, together)
    before = short.inner(surrogate)
    before.draws(short.start, len(draws) - 1, np.random.default_rng(1))
    assert before.n_gradients < 50
    purse.until(0.5)
    assert not list(purse.moves(inner, short.start, 5, np.random.default_rng(1)))



@pytest.mark.parametrize(
    ("arguments", "words"),
    [((quadratic(np.zeros(2), np.eye(2)), SHARED), "2 parameters and the prior 3"),
     ((nothing(SHARED), SHARED, -1.0), "step is -1.0"), ((nothing(SHARED), SHARED, 0.1, 1.0, np.ones(3)), "root")])
def test_bad_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        HamiltonianInner(*arguments)


# In a kernel.

RNG = np.random.default_rng(6)
X = RNG.normal(size=(3000, 4))
Y = (RNG.random(3000) < 1.0 / (1.0 + np.exp(-X @ [1.0, 0.0, 0.1, 0.0]))).astype(float)


@pytest.mark.parametrize("decision", ["race", "poisson"])
def test_a_kernel_goes_on_bit_for_bit_and_records_natural_scales(decision):
    model = mcmc.GLM(X, Y, prior=mcmc.Horseshoe(expected_nonzero=1.0))
    kernel = mcmc.SurrogateMetropolis(model, inner="hmc", decision=decision)
    assert kernel.describe()["inner"] == "hmc"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                             # that there are few draws
        whole = mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=30, rng=2, threads=2)
        half = mcmc.sample(kernel, n_draws=25, n_chains=2, n_tune=30, rng=2, threads=1)
        rest = mcmc.sample(pickle.loads(pickle.dumps(kernel)), half, n_draws=35)
    assert (np.concatenate([half.draws, rest.draws], axis=1) == whole.draws).all()
    assert (whole.draws[:, :, 4:] > 0.0).all()
    assert len(whole.names) == model.dim == 10


def test_many_hyperparameters_are_moved_along_trajectories_by_default():
    few = mcmc.GLM(X, Y, groups=np.arange(3000) % 4)
    many = mcmc.GLM(np.hstack([X, X[:, ::-1] ** 2]), Y, prior=mcmc.Horseshoe(expected_nonzero=1.0))
    assert mcmc.SurrogateMetropolis(few).describe()["inner"] == "normal"
    assert mcmc.SurrogateMetropolis(many).describe()["inner"] == "hmc"


def test_priors_much_narrower_than_the_likelihood_are_moved_along_trajectories_by_default():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((3000, 4))
    y = (rng.random(3000) < 1.0 / (1.0 + np.exp(-X @ [0.5, 0.5, 0.0, 0.0]))).astype(float)
    inners = [mcmc.SurrogateMetropolis(mcmc.GLM(X, y, prior=mcmc.Laplace(0.0, scale))).inner for scale in (1.0, 0.02)]
    assert inners == ["normal", "hmc"]


def test_where_the_inner_moves_stayed_no_row_is_read():
    model = mcmc.GLM(X, Y, prior=mcmc.Laplace(0.0, 0.01))
    kernel = mcmc.SurrogateMetropolis(model, inner="hmc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = mcmc.sample(kernel, n_draws=200, n_chains=1, rng=2)
    stayed = (np.diff(trace.draws[0], axis=0) == 0.0).all(axis=1)
    assert stayed.any()
    assert not (trace.rows[0][1:] * stayed * trace.accepted[0][1:]).any()


@pytest.mark.parametrize("scale_prior", [None, mcmc.LogNormal(0.0, 2.0)])
def test_a_learned_scale_is_recorded_and_judged_as_it_is(scale_prior):
    y = X @ [1.0, 0.0, 0.5, 0.0] + 2.0 * RNG.normal(size=3000)
    model = mcmc.GLM(X, y, "gaussian", scale=None, scale_prior=scale_prior)
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=400, n_chains=2, rng=3)
    assert trace.names[-1] == "scale"
    assert trace.draws[:, :, -1].mean() == pytest.approx(2.0, abs=0.15)
    assert not [words for words in trace.warnings if "far from" in words]
