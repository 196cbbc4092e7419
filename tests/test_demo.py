"""What `fastrace demo` shows, in small."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

import fastrace as fr
from fastrace import demo
from fastrace._models._arch import ArchSource
from fastrace._models._expanded import Expanded
from fastrace.mcmc.models.arch import term_derivatives
from guarantee import assert_rate_at_most
from reference import arch as twin

ORDERS = (2, 5)


@pytest.fixture
def returns(rng):
    """A simulated ARCH(3) series."""
    series = np.zeros(700)
    for t in range(3, series.size):
        variance = 0.4 + series[t - 3 : t] ** 2 @ [0.1, 0.2, 0.3]
        series[t] = np.sqrt(variance * 3 / 5) * rng.standard_t(5)
    return (series - series.mean()) / series.std()


@pytest.fixture
def posterior(returns, rng):
    return demo.OrderPosterior(returns, ORDERS, rng)


def quiet(done):
    pass


def table(weights, nu):
    return np.column_stack([weights, nu])


def test_terms_equal_their_plain_twin_in_numbers_and_in_logarithms(returns, rng):
    weights, nu = rng.random((2, 6)) + 0.05, np.array([3.5, 8.0])
    expected = np.column_stack([twin.log_likelihood_terms(returns, q, 5, weights[j], nu[j])
                                for j, q in enumerate(ORDERS)])
    for natural in (True, False):
        parameters = table(weights, nu) if natural else np.log(table(weights, nu))
        source = ArchSource(returns**2, ORDERS, parameters, natural=natural)
        assert source.read(np.arange(source.n_rows)) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert source.read([7, 7, 600], [1]) == pytest.approx(expected[[7, 7, 600], 1:], rel=1e-12)
        assert source.totals() == pytest.approx(expected.sum(axis=0), rel=1e-12)
        source.offset[:] = [1.0, 2.0]
        assert source.totals() == pytest.approx(expected.sum(axis=0) + [1.0, 2.0], rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((np.ones(10), [0], np.zeros((1, 2))), r"order is \[0\]"),
        ((np.ones(10), [], np.zeros((1, 2))), r"order is \[\]"),
        ((np.ones(3), [3], np.zeros((1, 5))), "squares has shape"),
        ((np.array([1.0, np.nan, 1.0]), [1], np.zeros((1, 3))), "finite numbers"),
        ((np.ones(10), [1, 2], np.zeros((2, 3))), "parameters is of type"),
        ((np.ones(10), [1, 2], np.zeros((1, 4))), "orders has 2 entries"),
    ],
)
def test_bad_squares_orders_and_parameters_say_what_is_needed(arguments, said):
    with pytest.raises(ValueError, match=said):
        ArchSource(*arguments)


def test_a_bad_point_of_expansion_says_what_is_needed(returns):
    with pytest.raises(ValueError, match="theta_hat has shape"):
        Expanded(ArchSource(returns**2, ORDERS, np.ones((2, 7))), np.ones((2, 6)))


def test_derivatives_equal_differences(rng):
    square, variance, nu, h = rng.random(50) * 4, rng.random(50) + 0.2, 4.5, 1e-6

    def slope(name, by):
        if by == "v":
            high, low = (term_derivatives(square, variance + s, nu)[name] for s in (h, -h))
        else:
            high, low = (term_derivatives(square, variance, nu + s)[name] for s in (h, -h))
        return (high - low) / (2 * h)

    exact = term_derivatives(square, variance, nu)
    for name, of, by in [("dv", "value", "v"), ("dn", "value", "n"), ("dvv", "dv", "v"), ("dvn", "dv", "n"),
                         ("dvn", "dn", "v"), ("dnn", "dn", "n")]:
        assert exact[name] == pytest.approx(slope(of, by), rel=1e-5, abs=1e-7), (name, of, by)


def test_rewards_are_what_the_expansion_leaves(returns, rng):
    modes = np.column_stack([rng.random((2, 6)) + 0.2, [4.0, 6.0]])
    modes[0, 3:6] = 0.0         # order 2
    moved = modes * rng.uniform(0.9, 1.1, modes.shape)
    source = Expanded(ArchSource(returns**2, ORDERS, moved, natural=True), modes)
    for j, q in enumerate(ORDERS):
        lags = np.array([np.ones(695)] + [returns[5 - i : 700 - i] ** 2 for i in range(1, q + 1)])
        u, v = modes[j, : q + 1] @ lags, moved[j, : q + 1] @ lags
        dv, dn = v - u, moved[j, -1] - modes[j, -1]
        part = term_derivatives(returns[5:] ** 2, u, modes[j, -1])
        expansion = (part["value"] + dv * part["dv"] + dn * part["dn"]
                     + 0.5 * dv**2 * part["dvv"] + dv * dn * part["dvn"] + 0.5 * dn**2 * part["dnn"])
        term = twin.log_likelihood_terms(returns, q, 5, moved[j], moved[j, -1])
        assert source.read(np.arange(695), [j])[:, 0] == pytest.approx(term - expansion, abs=1e-12)


def test_known_part_and_rewards_add_up_to_the_exact_sums(posterior, rng):
    for _ in range(5):
        parameters, log_prior = posterior.draw(rng)
        posterior.set(parameters, log_prior)
        rewards = posterior.raced.read(np.arange(posterior.raced.n_rows))
        assert rewards.sum(axis=0) + posterior.raced.shifts() == pytest.approx(posterior.plain.totals(), rel=1e-10)
        assert posterior.raced.totals() == pytest.approx(posterior.plain.totals(), rel=1e-12)
        # The expansion leaves little: that is why the race is short.
        plain = posterior.plain.read(np.arange(posterior.plain.n_rows))
        assert np.ptp(rewards, axis=1).std() < 0.2 * np.ptp(plain, axis=1).std()


def test_prior_over_pseudo_prior_equals_its_plain_twin(posterior, rng):
    parameters, log_ratio = posterior.draw(rng)
    for j, q in enumerate(ORDERS):
        x = np.r_[parameters[j, : q + 1], parameters[j, -1]]
        used = np.r_[np.arange(q + 1), parameters.shape[1] - 1]
        root = posterior._root[j][np.ix_(used, used)]
        z = demo.inverse_softplus(x)
        log_prior = stats.expon.logpdf(x).sum() + np.log(special.expit(z)).sum()        # dx/dz is the logistic function
        log_pseudo = stats.multivariate_normal(posterior._centre[j, used], root @ root.T).logpdf(z)
        assert log_ratio[j] == pytest.approx(log_prior - log_pseudo, rel=1e-9)


def test_pseudo_priors_stand_at_the_mode_with_its_curvature(posterior):
    h = 1e-5
    for j, q in enumerate(ORDERS):
        used = np.r_[np.arange(q + 1), posterior._centre.shape[1] - 1]
        mode, root = posterior._centre[j, used], posterior._root[j][np.ix_(used, used)]

        def gradient(z):
            return posterior._negative_log_posterior(z)[1]

        assert np.abs(gradient(mode)).max() < 1e-2
        curvature = np.array([(gradient(mode + h * e) - gradient(mode - h * e)) / (2 * h) for e in np.eye(q + 2)])
        assert np.linalg.inv(root @ root.T) == pytest.approx(curvature, rel=1e-4, abs=1e-4)


def test_with_every_row_read_raced_draws_are_the_exact_ones(rng):
    table = rng.normal(size=(300, 4)) * 0.05
    sampler_reads_all = fr.DiscreteSampler(table, rng=np.random.default_rng(3), first_look=300)
    copy = np.random.default_rng(3)
    for drawn in sampler_reads_all.draw_many(20):
        assert drawn == (table.sum(axis=0) - np.log(copy.standard_exponential(4))).argmax()


def test_raced_draws_of_a_table_differ_from_exact_ones_at_most_at_the_rate_promised(rng):
    table = rng.normal(size=(20_000, 5)) * 0.01
    found = demo.compare_table(table, list("abcde"), 400, 0.1, 1, quiet)
    assert_rate_at_most(found.n_different, found.n_draws, 0.1)
    assert found.total_variation <= found.n_different / found.n_draws + 1e-12
    assert 0 < found.fraction_read.mean()
    assert found.frequencies(found.exact).sum() == pytest.approx(1.0)


def test_orders_are_drawn_like_the_exact_ones_and_from_fewer_terms():
    pytest.importorskip("arch")
    done = []
    found = demo.compare_orders(60, 0.05, 1, done.append)
    assert done == list(range(1, 61))
    assert_rate_at_most(found.n_different, 60, 0.05)
    assert found.n_terms == 8296
    assert found.fraction_read.mean() < 0.5
    assert (found.fraction_read >= demo.ALWAYS_READ - 1e-3).all()
    again = demo.compare_orders(60, 0.05, 1, quiet)
    assert (found.exact == again.exact).all() and (found.raced == again.raced).all()
    assert (found.fraction_read == again.fraction_read).all()


def test_the_table_and_the_picture_show_what_was_found(tmp_path):
    pytest.importorskip("matplotlib")
    draws = np.array([0, 1, 1, 2])
    found = demo.Comparison(
        title="x", states=["a", "b", "c"], n_terms=10, delta=0.05, exact=draws, raced=np.array([0, 1, 2, 2]),
        fraction_read=np.array([0.1, 0.2, 0.3, 1.4]), full_passes=1, exact_seconds=2.0, raced_seconds=0.5, notes=(),
    )
    assert (found.speed_up, found.n_different, found.total_variation) == (4.0, 1, 0.25)
    shown = {what.strip(): racing for what, racing, _ in found.rows()}
    assert shown["terms read"] == "50.0%"
    assert shown["speed-up"] == "4.0 x"
    assert shown["draws that turned to a full pass"] == "25.0%"
    assert shown["error measured: draws that differ"] == "1 of 4"
    assert 0 < found.expected_noise() < 0.5
    low, high = found.error_interval()
    assert low < 0.25 < high
    demo.figure(found).savefig(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_gives_no_advice_that_its_user_cannot_follow(rng):
    skewed = rng.lognormal(0, 1.5, (4000, 3)) * [1.0, 1.01, 0.7] / 40
    comparison = demo.compare_table(skewed, ["a", "b", "c"], 30, 0.05, 1, quiet)
    said = " ".join(comparison.notes)
    assert "skewness_guard" not in said and "support (betting)" not in said
    assert "judge the race by the error measured" in said


def test_notes_follow_from_what_the_draws_found_not_from_how_a_warning_is_worded():
    found = fr.SamplerStats(n_draws=1, fraction_read=0.5, fraction_exact=0.0, looks_per_draw=1.0, evaluations=1,
                            bound="normal", delta=0.05, warnings=("some other words",))
    assert len(demo._warnings(found)) == 1 and "rough" not in demo._warnings(found)[0]
    for fact in ("constant", "held_back", "skewed"):
        assert "judge the race by the error measured" in demo._warnings(replace(found, **{fact: True}))[0]
    assert "-inf" in demo._warnings(replace(found, impossible=True))[1]
