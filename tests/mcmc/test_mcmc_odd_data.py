"""Odd data through every kind of model: the posterior, a refusal that names what is wrong, or a warning; no silence."""

import warnings

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc.models._modes import ImproperError

SEED = 20260801


def told(make, **options):
    """Kind and words of the refusal, or the warnings; and the trace, if there is one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = make()
            trace = mcmc.sample(model, **({"n_draws": 100, "n_chains": 2, "n_tune": 100, "rng": 1} | options))
        except ValueError as error:
            return type(error), str(error), None
    return None, "; ".join(str(w.message) for w in caught), trace


def columns(n=30, seed=SEED):
    rng = np.random.default_rng(seed)
    return np.column_stack([np.ones(n), rng.normal(size=n)]), rng


EXACT = {
    "gaussian": lambda X, rng: X @ [1.0, 2.0],
    "student-t": lambda X, rng: X @ [1.0, 2.0],
    "gamma": lambda X, rng: np.exp(X @ [1.0, 0.2]),
}


@pytest.mark.parametrize("options", [{}, {"prior_sd": [10.0, 10.0, np.inf]}, {"log_prior": lambda theta: 0.0},
                                     {"groups": np.arange(30) % 5}])
@pytest.mark.parametrize("family", EXACT)
def test_rows_that_can_be_fitted_exactly_have_no_scale_to_learn(family, options):
    X, rng = columns()
    y = EXACT[family](X, rng)
    kind, words, _ = told(lambda: mcmc.GLM(X, y, family, **options))
    assert kind is ImproperError and "30 rows can be fitted exactly" in words and "Give scale" in words
    noisy = y * np.exp((0.1 if "groups" in options else 1e-4) * rng.normal(size=30))
    if "log_prior" not in options:              # a prior that is not expanded finds no mode here
        assert told(lambda: mcmc.GLM(X, noisy, family, **options))[0] is None
    assert told(lambda: mcmc.GLM(X, y, family, 0.5, **{**options, "prior_sd": 10.0}
                                 if "groups" not in options else options))[0] is None


@pytest.mark.parametrize("family", EXACT)
def test_fewer_rows_than_columns_leave_no_scale_to_learn(family):
    X, rng = columns(2)
    kind, words, _ = told(lambda: mcmc.GLM(X, EXACT[family](X, rng) + 1.0, family, prior_sd=[10.0, 10.0, np.inf]))
    assert kind is ImproperError and "2 rows can be fitted exactly by the 2 coefficients" in words


@pytest.mark.parametrize("data", range(4))
@pytest.mark.parametrize("family", EXACT)
def test_groups_of_one_row_leave_no_scale_to_learn(family, data):
    X, rng = columns(30, data)
    y = EXACT[family](X, rng) * np.exp(rng.normal(size=30))
    kind, words, _ = told(lambda: mcmc.GLM(X, y, family, groups=np.arange(30)))
    assert kind is not None and "groups of one row each" in words and "Give scale" in words


@pytest.mark.parametrize(("family", "name"), [("logistic", "weights"), ("gaussian", "weights"), ("binomial", "trials")])
def test_rows_that_all_count_nothing_are_refused_by_name(family, name):
    X, _ = columns()
    kind, words, _ = told(lambda: mcmc.GLM(X, np.zeros(30), family, prior_sd=1.0, **{name: np.zeros(30)}))
    assert kind is ValueError and words.startswith(f"{name} are all 0: no row says anything")


def test_an_improper_posterior_is_refused_by_sample_too():
    """And not handed to a kernel that needs no mode."""
    X, _ = columns()
    for wrong in (np.column_stack([X, X[:, :1]]), np.column_stack([X, np.zeros(30)])):
        kind, words, _ = told(lambda X=wrong: mcmc.GLM(X, np.arange(30) % 2))
        assert kind is ImproperError and "the posterior is improper" in words
    kind, words, _ = told(lambda: mcmc.GLM(X, X[:, 1] > 0.0))
    assert kind is ImproperError and "the outcomes are separated" in words
