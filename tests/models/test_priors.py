"""Compiled joint priors: densities, gradients, the normal part, standardised coordinates."""

import pickle

import numpy as np
import pytest
from scipy import integrate, stats

from fastrace._models._priors import JointPrior
from reference import priors as plain

SCALES = [("half-normal", 1.3, 0.0), ("half-student", 0.7, 1.0), ("half-student", 2.0, 4.0), ("gamma", 1.0, 2.0),
          ("gamma", 2.5, 3.0), ("log-normal", 0.3, 0.8), ("inverse-gamma-of-square", 2.0, 8.0),
          ("half-normal", 1.3, 0.0, -1.0), ("gamma", 2.5, 3.0, 0.5)]
COEFFICIENTS = [("normal", 0.5, 2.0, 0.0, -1), ("student", 0.1, 1.5, 3.0, -1), ("laplace", 0.0, 0.7, 0.0, -1),
                ("flat", 0.0, 1.0, 0.0, -1), ("normal", 0.2, 1.0, 0.0, 0), ("laplace", 0.0, 1.0, 0.0, 0),
                ("normal", 0.0, 1.0, 0.0, 1), ("normal", 0.0, 1.0, 0.0, 1), ("student", 0.0, 1.0, 5.0, 2)]
POOLS = [("shared", SCALES[0]), ("horseshoe", ("half-student", 0.1, 1.0), ("half-student", 1.0, 1.0), SCALES[6]),
         ("shared", SCALES[4])]
FACTORS = [(4, [SCALES[1]], None), (3, [SCALES[0], SCALES[3], SCALES[5]], 2.0), (2, [SCALES[0]] * 2, None)]
BLOCKS = [1] * 9 + [1] * 4 + [3] * 3 + [2] * 2 + [1]


def own(theta):
    return -0.1 * float((theta**4).sum()), -0.4 * theta**3


def everything(**other):
    parts = {"coefficients": COEFFICIENTS, "pools": POOLS, "factors": FACTORS, "aux": SCALES[2]} | other
    return JointPrior(**parts)


def derivative(function, x, step=1e-4):
    """Central differences of fourth order."""
    out = []
    for e in np.eye(len(x)) * step:
        near, far = function(x + e) - function(x - e), function(x + 2 * e) - function(x - 2 * e)
        out.append((8 * near - far) / (12 * step))
    return np.array(out)


@pytest.fixture
def theta(rng=20160619):
    return np.random.default_rng(rng).normal(scale=0.8, size=everything().dim)


@pytest.mark.parametrize("own_part", [(), [(own, None)], [(own, [2, 17])]])
def test_density_and_gradient(theta, own_part):
    prior = everything(own=own_part)
    value, gradient = prior.value_and_gradient(theta)
    assert value == pytest.approx(plain.log_density(prior.given, theta), rel=1e-12)
    np.testing.assert_allclose(gradient, derivative(lambda x: prior.value_and_gradient(x)[0], theta), atol=1e-7)


@pytest.mark.parametrize("prior", SCALES)
def test_scales_have_the_density_of_their_name_and_integrate_to_1(prior):
    joint = JointPrior([("normal", 0.0, 1.0, 0.0, 0)], [("shared", prior)])
    for t in (-3.0, -0.4, 0.0, 1.1, 2.0):
        assert joint.hyper_value([t]) == pytest.approx(plain.scale_log_density(*prior, t), rel=1e-12, abs=1e-12)
    total = integrate.quad(lambda t: np.exp(joint.hyper_value([t])), -60.0, 40.0, limit=400, points=[-2.0, 0.0, 2.0])
    assert total[0] == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("q", [2, 3])
def test_correlations_have_the_lkj_density(q):
    """The Jacobian by quadrature for two effects; for three by the beta margins of a sample drawn from the density."""
    joint = JointPrior([], factors=[(1, [SCALES[0]] * q, 1.5)])
    sds = np.zeros(q)
    of_sds = q * plain.scale_log_density(*SCALES[0], 0.0)

    def density(y):
        return np.exp(joint.hyper_value(np.append(sds, y)) - of_sds)

    if q == 2:
        assert integrate.quad(lambda y: density([y]), -20.0, 20.0)[0] == pytest.approx(1.0, abs=1e-10)
        return
    ticks = np.arctanh(np.linspace(-1.0, 1.0, 62)[1:-1])    # midpoints in z: integrand smooth up to the ends
    weights = (2.0 / 61) * (1 - np.tanh(ticks) ** 2) ** -1
    mesh = [(density([a, b, c]) * wa * wb * wc, plain.correlations(np.array([a, b, c]), 3))
            for a, wa in zip(ticks[::4], weights[::4], strict=True)
            for b, wb in zip(ticks[::4], weights[::4], strict=True)
            for c, wc in zip(ticks[::4], weights[::4], strict=True)]
    mass = np.array([m for m, _ in mesh])
    matrices = np.array([lower @ lower.T for _, lower in mesh])
    for i, j in ((1, 0), (2, 0), (2, 1)):                   # each margin is the beta of (eta + q / 2 - 1) on (-1, 1)
        second = mass @ matrices[:, i, j] ** 2 / mass.sum()
        assert second == pytest.approx(stats.beta(2.0, 2.0, -1.0, 2.0).var(), rel=0.02)


def test_normal_part_and_what_is_beside_it(theta):
    """log p(theta) = log p(phi) + log of the normal density + `beside`."""
    prior = everything(own=[(own, [0, 3])])
    seen, phi = theta[:prior.n_seen], theta[prior.n_seen:]
    for hat in (np.zeros(prior.n_seen), seen + 0.3):
        prior.expand_at(hat)
        mean, precision = prior.conditional_of(phi)
        normal, j, k = 0.0, 0, 0
        for q in BLOCKS:
            block, step = precision[k:k + q * q].reshape(q, q), seen[j:j + q] - mean[j:j + q]
            if block[0, 0] > 0.0:
                normal += 0.5 * np.linalg.slogdet(block / (2 * np.pi))[1] - 0.5 * step @ block @ step
            j, k = j + q, k + q * q
        assert (j, k) == (prior.n_seen, prior.n_precision)
        whole = prior.hyper_value(phi) + normal + prior.beside_of(theta)
        assert whole == pytest.approx(prior.value_and_gradient(theta)[0], rel=1e-12)


def test_nothing_is_beside_a_normal_prior():
    prior = JointPrior(COEFFICIENTS[:1] + COEFFICIENTS[4:5], POOLS[:1], FACTORS[:2], SCALES[5])
    assert prior.normal
    assert prior.beside_of(np.ones(prior.dim)) == 0.0


def test_standardised_coordinates(theta):
    prior = everything()
    for share in (0.0, 0.5, 1.0):
        prior.set_free(np.random.default_rng(1).random(prior.n_seen) < share)
        xi = prior.free_of(theta)
        np.testing.assert_allclose(prior.from_free(xi), theta, rtol=1e-12)
        pulled, jacobian = prior.pulled_back(xi, prior.value_and_gradient(theta)[1])

        def density(x):
            return prior.value_and_gradient(prior.from_free(x))[0] + prior.pulled_back(x, np.zeros(prior.dim))[1]

        np.testing.assert_allclose(pulled, derivative(density, xi), atol=1e-7)
        matrix = derivative(prior.from_free, xi)
        assert jacobian == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-8)
    assert (xi != theta)[4:9].all()         # of coefficients, those with learned scales


def test_standardised_effects_are_standard_normal(theta):
    prior = JointPrior([], factors=FACTORS)
    prior.set_free(True)
    value = prior.value_and_gradient(prior.from_free(theta[:prior.dim]))[0]
    xi, phi = np.split(theta[:prior.dim], [prior.n_seen])
    jacobian = prior.pulled_back(theta[:prior.dim], np.zeros(prior.dim))[1]
    assert value + jacobian == pytest.approx(stats.norm.logpdf(xi).sum() + prior.hyper_value(phi), rel=1e-12)


def test_copies_keep_their_choices(theta):
    prior = everything()
    prior.set_free(True)
    prior.expand_at(theta[:prior.n_seen])
    for other in (pickle.loads(pickle.dumps(prior)), prior.copy()):
        assert other.beside_of(theta) == prior.beside_of(theta)
        assert (other.from_free(theta) == prior.from_free(theta)).all()


@pytest.mark.parametrize("call", ["value_and_gradient", "hyper_value", "conditional_of", "from_free", "expand_at"])
def test_wrong_shapes_are_refused(call):
    with pytest.raises(ValueError, match="needed"):
        getattr(everything(), call)(np.zeros(3))


def test_errors_of_own_densities_pass():
    def broken(theta):
        raise KeyError("mine")

    prior = everything(own=[(broken, None)])
    with pytest.raises(KeyError, match="mine"):
        prior.value_and_gradient(np.zeros(prior.dim))


def test_a_horseshoe_without_a_slab_has_no_parameter_for_it(theta):
    """Its density, gradient, normal part and standardised coordinates, beside the twin."""
    pools = [POOLS[0], (*POOLS[1][:3], None), POOLS[2]]
    prior = everything(pools=pools)
    theta = np.delete(theta, prior.n_seen + 2)
    assert prior.dim == everything().dim - 1
    value, gradient = prior.value_and_gradient(theta)
    assert value == pytest.approx(plain.log_density(prior.given, theta), rel=1e-12)
    np.testing.assert_allclose(gradient, derivative(lambda x: prior.value_and_gradient(x)[0], theta), atol=1e-7)
    mean, precision = prior.conditional_of(theta[prior.n_seen :])
    scales, _, _ = plain.split(prior.given, theta)
    np.testing.assert_allclose(precision[6:8], scales[6:8] ** -2.0, rtol=1e-12)
    prior.set_free(np.arange(prior.n_seen) < 8)
    xi = prior.free_of(theta)
    np.testing.assert_allclose(prior.from_free(xi), theta, rtol=1e-12)
    _, jacobian = prior.pulled_back(xi, gradient)

    def density(x):
        return prior.value_and_gradient(prior.from_free(x))[0] + prior.pulled_back(x, gradient)[1]

    slopes, _ = prior.pulled_back(xi, gradient)
    assert np.isfinite(jacobian)
    np.testing.assert_allclose(slopes, derivative(density, xi), atol=1e-6)
    again = pickle.loads(pickle.dumps(prior))
    assert again.value_and_gradient(theta)[0] == value
