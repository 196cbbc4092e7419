"""Chains on surrogates, calibrated: simulation-based calibration and the joint test of Geweke, by kind of model."""

import numpy as np
import pytest
from scipy import stats

from chains import Sabotaged, by_turns, departure
from fastrace import mcmc
from fastrace._base._blas import one_blas_thread
from fastrace.mcmc.kernels import _surrogate_decisions
from guarantee import assert_centred, assert_mean, assert_uniform, few_or_many
from surrogates import SEED, grouped, some_of_each


class Grouped:
    """A slope and varying intercepts of one factor, whose standard deviation is half-normal."""

    options = {}

    def __init__(self, rng, n_rows):
        self.X, self.codes = rng.standard_normal((n_rows, 1)) / 2.0, [some_of_each(rng, n_rows, 4)]

    def drawn(self, rng):
        """Parameters from their prior: the slope, effects of each factor, their standard deviations."""
        sds = np.abs(rng.standard_normal(len(self.codes)))
        effects = [sd * rng.standard_normal(codes.max() + 1) for sd, codes in zip(sds, self.codes, strict=True)]
        return np.concatenate([rng.standard_normal(1), *effects, sds])

    def model(self, theta, rng):
        """Outcomes at parameters, and the model of them."""
        eta, first = self.X[:, 0] * theta[0], 1
        for codes in self.codes:
            eta, first = eta + theta[first:][codes], first + codes.max() + 1
        y = (rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))) * 1.0
        codes = self.codes[0] if len(self.codes) == 1 else {f"f{k}": c for k, c in enumerate(self.codes)}
        return grouped(self.X, codes, y, coefficient_sd=1.0)

    def uniform(self, theta):
        """Functions of parameters from the prior that are uniform: of the slope, the deviations and each effect."""
        sds, first = theta[-len(self.codes):], 1
        out = [*stats.norm.cdf(theta[:1]), *(2.0 * stats.norm.cdf(sds) - 1.0)]
        for codes, sd in zip(self.codes, sds, strict=True):
            effects, first = theta[first : first + codes.max() + 1], first + codes.max() + 1
            out += [*stats.norm.cdf(effects / sd)]
        return out


class ByTrajectories(Grouped):
    """The same, by Hamiltonian trajectories on the surrogate."""

    options = {"inner": "hmc"}


class Crossed(Grouped):
    """Rows of a group of each of two factors."""

    def __init__(self, rng, n_rows):
        super().__init__(rng, n_rows)
        self.codes = [self.codes[0], some_of_each(rng, n_rows, 3)]


class Correlated:
    """An intercept and a slope that vary together among the groups of a factor, (1 + x | g), under an LKJ prior."""

    options, spread = {}, 1.0

    def __init__(self, rng, n_rows):
        self.x, self.codes = rng.standard_normal(n_rows) / 2.0, some_of_each(rng, n_rows, 4)

    def drawn(self, rng):
        """Parameters from their prior: coefficients, effects group by group, standard deviations, correlation."""
        sds, r = self.spread * np.abs(rng.standard_normal(2)), 2.0 * rng.beta(2.0, 2.0) - 1.0
        first, second = rng.standard_normal((2, 4))
        effects = np.column_stack([sds[0] * first, sds[1] * (r * first + np.sqrt(1.0 - r * r) * second)])
        return np.concatenate([rng.standard_normal(2), effects.ravel(), sds, [r]])

    def model(self, theta, rng):
        X, effects = np.column_stack([np.ones(len(self.x)), self.x]), theta[2:10].reshape(4, 2)
        eta = (X * (theta[:2] + effects[self.codes])).sum(axis=1)
        y = (rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))) * 1.0
        groups = {"g": mcmc.Groups(self.codes, slopes=[1])}
        return mcmc.GLM(X, y, groups=groups, prior={"x0": mcmc.Normal(0.0, 1.0), "x1": mcmc.Normal(0.0, 1.0)},
                        group_prior={"sd": mcmc.HalfNormal(self.spread), "correlation": mcmc.LKJ(2.0)})

    def uniform(self, theta):
        sds, r, effects = theta[10:12], theta[12], theta[2:10].reshape(4, 2)
        first, second = effects.T / sds[:, None]
        return [*stats.norm.cdf(theta[:2]), *(2.0 * stats.norm.cdf(sds / self.spread) - 1.0),
                stats.beta.cdf((r + 1.0) / 2.0, 2, 2), *stats.norm.cdf(first),
                *stats.norm.cdf((second - r * first) / np.sqrt(1.0 - r * r))]


class LargeEffects(Correlated):
    """The same with effects that are large, some of them without an end to one side as far as rows can tell."""

    spread = 5.0


class LearnedScale:
    """Two slopes and a learned standard deviation of Gaussian outcomes, which is half-normal."""

    options = {}

    def __init__(self, rng, n_rows):
        self.X = rng.standard_normal((n_rows, 2))

    def drawn(self, rng):
        return np.append(rng.standard_normal(2), np.abs(rng.standard_normal()))

    def outcomes(self, theta, rng):
        return self.X @ theta[:2] + theta[2] * rng.standard_normal(len(self.X))

    def model(self, theta, rng):
        return self.model_of(self.outcomes(theta, rng))

    def model_of(self, y):
        return mcmc.GLM(self.X, y, "gaussian", prior=mcmc.Normal(0.0, 1.0), scale_prior=mcmc.HalfNormal(1.0))

    def uniform(self, theta):
        return [*stats.norm.cdf(theta[:2]), 2.0 * stats.norm.cdf(theta[2]) - 1.0]


CASES = {"grouped": Grouped, "hmc": ByTrajectories, "crossed": Crossed, "correlated": Correlated,
         "large-effects": LargeEffects, "learned-scale": LearnedScale}


@pytest.fixture(autouse=True)
def swept(request, monkeypatch):
    """Groups of large effects are always swept, also where minibatches decide."""
    if "large-effects" in request.node.name:
        for name, value in (("LASTS", 0.0), ("LASTS_OF_FEW", 0.0), ("FEW_ROWS", 0), ("FLAT_ROWS", 0),
                            ("WORTH", np.inf)):
            monkeypatch.setattr(_surrogate_decisions, name, value)


def kernel_of(case, decision, theta, rng):
    if isinstance(case, LargeEffects) and decision == "poisson":
        decision = "auto"                   # minibatches that are asked for are not mended by sweeps
    return decided(case, case.model(theta, rng), decision)


def decided(case, model, decision):
    if decision == "none":                  # by the gradients of all rows, none of which decides
        return mcmc.HMC(model)
    return mcmc.SurrogateMetropolis(model, decision=decision, first_look=10, student=True, delta=0.01, **case.options)


def departures(name, decision, fits, rng, made=lambda kernel, pilot: kernel):
    """Of `made`, a kernel made of the right one and of draws of it.

    150 fits of "crossed" tell means .5 or .3 sd off in 100 % of trials, sds 1.3 times too large in 97, too small in 93.
    """
    rows = []
    with one_blas_thread():
        for _ in range(fits):
            case = CASES[name](rng, 50)
            theta = case.drawn(rng)
            kernel = kernel_of(case, decision, theta, rng)
            assert kernel.decision == decision and (
                name != "large-effects" or bool(kernel._swept) == (decision in ("exact", "poisson")))
            pilot = kernel.run(rng, kernel.init(rng=rng), 80)[1].draws[20:]

            def value(points, model=kernel.model, learned=name == "learned-scale"):
                seen = points[:, : model.n_seen].copy()
                if learned:
                    seen[:, -1] = np.log(np.maximum(seen[:, -1], 1e-3))  # draws that were made wrong may be below 0
                return model._log_likelihoods(seen)

            rows.append(departure(made(kernel, pilot), theta, pilot, value, 60, rng))
    return rows


@few_or_many("fits", 150, 2000)
@pytest.mark.parametrize("decision", ["exact", "race", "poisson", "none"])
@pytest.mark.parametrize("name", CASES)
def test_draws_of_the_posterior_are_followed_by_others(name, decision, fits):
    assert_centred(departures(name, decision, fits, np.random.default_rng(SEED)))


@pytest.mark.parametrize(("shift", "spread"), [(0.5, 1.0), (0.0, 1.3), (0.0, 1.0 / 1.3)])
def test_draws_that_are_wrong_are_told(shift, spread):
    def made(kernel, pilot):
        seen = np.arange(kernel.dim) < kernel.model.n_seen  # not standard deviations, which stay above 0
        return Sabotaged(kernel, pilot.mean(axis=0), pilot.std(axis=0), shift * seen, np.where(seen, spread, 1.0))

    with pytest.raises(AssertionError, match="together p"):
        assert_centred(departures("crossed", "race", 150, np.random.default_rng(SEED), made))


@pytest.mark.long
@pytest.mark.parametrize("decision", ["exact", "race", "poisson", "none"])
@pytest.mark.parametrize("name", CASES)
def test_simulation_based_calibration(name, decision, fits=1000, draws=99, cells=20):
    """Ranks of the parameters among thinned draws, in cells: the whole law, where many fits can tell it."""
    rng, ranks = np.random.default_rng(SEED), []
    thin = 36 if name == "hmc" else 12
    for _ in range(fits):
        case = CASES[name](rng, 50)
        theta = case.drawn(rng)
        kernel = kernel_of(case, decision, theta, rng)
        assert kernel.decision == decision and (
            name != "large-effects" or bool(kernel._swept) == (decision in ("exact", "poisson")))
        _, steps = kernel.run(rng, kernel.init(theta), draws * thin)
        ranks.append((steps.draws[thin - 1 :: thin] < theta).sum(axis=0))
    assert_uniform(np.array(ranks), draws, cells)


@few_or_many(("decision", "steps"), ("poisson", 100), ("race", 20_000))
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("learned-scale", "large-effects")])
def test_geweke_joint_distribution(name, decision, steps):
    """Outcomes and parameters drawn in turn must keep the prior of the parameters.

    A scale that 30 rows tell, or that is of large effects, moves too slowly from turn to turn for 100 of them to say
    anything: see below of the former.
    """
    rng = np.random.default_rng(SEED)
    case, kept = CASES[name](rng, 30), []
    theta = case.drawn(rng)
    for _ in range(steps):
        kernel = kernel_of(case, decision, theta, rng)
        theta = kernel.run(rng, kernel.init(theta), 3)[1].draws[-1]
        kept.append(case.uniform(theta))
    for column in np.array(kept).T:
        assert_mean(column, 0.5)


def joint_departures(decision, fits, rng, made=lambda kernel: kernel):
    """What `by_turns` says of fits, by a kernel made of the right one."""
    rows = []
    with one_blas_thread():
        for _ in range(fits):
            case = LearnedScale(rng, 30)

            def fit(theta, y, X=case.X):
                return np.abs(2.0 * stats.norm.cdf((y - X @ theta[:2]) / theta[2]) - 1.0).mean()

            rows.append(by_turns(
                case.drawn(rng), lambda theta, case=case: case.outcomes(theta, rng),
                lambda y, case=case: made(decided(case, case.model_of(y), decision)),
                lambda theta, case=case: case.uniform(theta), fit, 4, 4, rng))
    return rows


@few_or_many("fits", 100, 5000)
@pytest.mark.parametrize("decision", ["exact", "race", "poisson", "none"])
def test_geweke_joint_distribution_of_a_learned_scale(decision, fits):
    assert_centred(joint_departures(decision, fits, np.random.default_rng(SEED)))


@pytest.mark.parametrize("times", [[1.0, 1.0, 1.1], [1.0, 1.0, 0.9], [1.3, 1.3, 1.0]], ids=str)
def test_the_joint_test_tells_scales_and_slopes_that_are_wrong(times):
    def made(kernel):
        return Sabotaged(kernel, np.zeros(3), np.zeros(3), spread=np.array(times))

    with pytest.raises(AssertionError, match="together p"):
        assert_centred(joint_departures("race", 100, np.random.default_rng(SEED), made))
