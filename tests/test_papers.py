"""The experiments of papers/, run as a user runs them."""

import contextlib
import csv
import importlib
import io
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special, stats

from fastrace.control_variates import BinnedTaylor
from guarantee import assert_rate_at_most, few_or_many
from papers import common

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(file.relative_to(ROOT).with_suffix("") for file in (ROOT / "papers").glob("*/[!_]*.py"))
RULES = 11


def start(script, folder, *arguments):
    """The finished process of one script, run in the folder of the repository as its help says."""
    (found,) = (file for file in SCRIPTS if file.name == script)
    command = [sys.executable, "-m", ".".join(found.parts), "--output", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"MPLBACKEND": "Agg"})


def call(script, folder, *arguments):
    """The same in this process, which has imported the package already."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = [script, "--output", str(folder), *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = module(script).main()
    except SystemExit as error:
        status = error.code
    finally:
        sys.argv = before
    return SimpleNamespace(returncode=status or 0, stdout=out.getvalue(), stderr=err.getvalue())


def module(script):
    (found,) = (file for file in SCRIPTS if file.name == script)
    return importlib.import_module(".".join(found.parts))


def run(script, folder, *arguments):
    """What the script prints, and its table as a list of dictionaries, numbers as numbers."""
    done = call(script, folder, "--no-progress", *arguments)
    assert done.returncode == 0, done.stderr
    with (folder / f"{script}.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        for name in line.keys() - {"rewards", "rule", "promise"}:
            line[name] = float(line[name])
    return done.stdout, lines


# Scales of the noise, draws of each setting, and rewards read in it: `--quick` as it is, and less.
GRIDS = {"few": (["1e-4", "1e-2"], "40", "3e5"), "all": (["1e-5", "1e-4", "1e-3", "1e-2"], "300", "3e6")}


@pytest.fixture(scope="module", params=["few", pytest.param("all", marks=pytest.mark.long)])
def quick(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("quick")
    sigmas, draws, work = GRIDS[request.param]
    return folder, *run("discrete_sampling_synthetic", folder, "--quick", "--rows", "20000", "--sigma", *sigmas,
                        "--draws", draws, "--work", work)


def test_quick_writes_a_table_and_a_figure(quick):
    folder, printed, lines = quick
    settings = {(line["rewards"], line["sigma"], line["delta"], line["rule"]) for line in lines}
    assert len(lines) == len(settings) == 3 * len({line["sigma"] for line in lines}) * 2 * RULES
    for line in lines:
        assert line["draws"] >= 5
        assert line["error"] == pytest.approx(line["errors"] / line["draws"], rel=1e-5)
        assert line["error_low"] <= line["error"] <= line["error_high"]
        assert 0.0 < line["fraction_read"] <= 1.0
        assert line["looks"] >= 1
    for law in ("normal", "uniform", "lognormal"):
        assert f"D = 10, {law} rewards" in printed
    figure = (folder / "discrete_sampling_synthetic_D10.png").read_bytes()
    assert figure.startswith(b"\x89PNG") and len(figure) > 50_000


def test_quick_keeps_the_promises(quick):
    _, _, lines = quick
    for line in lines:
        assert_rate_at_most(line["errors"], line["draws"], line["delta"])
    for rule in {line["rule"] for line in lines if line["promise"] == "rigorous"}:
        of_rule = [line for line in lines if line["rule"] == rule and line["delta"] == 0.01]
        assert_rate_at_most(sum(line["errors"] for line in of_rule), sum(line["draws"] for line in of_rule), 0.01)


def test_quick_reads_more_where_draws_are_harder(quick):
    _, _, lines = quick
    for rule in {line["rule"] for line in lines}:
        for law in ("normal", "uniform", "lognormal"):
            of_law = sorted((line["sigma"], line["fraction_read"], line["fraction_read_se"]) for line in lines
                            if (line["rule"], line["rewards"], line["delta"]) == (rule, law, 0.01))
            fractions = [fraction for _, fraction, _ in of_law]
            assert fractions == sorted(fractions)
            assert fractions[-1] + 4 * of_law[-1][2] > 0.9          # few draws: a slow machine makes fewer


# Share read at D = 10, delta = 0.01 with normal rewards and sigma = 1e-5, 1e-4, 1e-3, and the number of draws it was
# measured from, by an independent implementation.
SHARES = {
    "normal": ((0.0066, 0.0589, 0.505), 10_000),
    "EBS": ((0.0237, 0.176, 0.844), 10_000),
    "lil'UCB": ((0.0143, 0.317, 1.0), 30),
}


@few_or_many(("draws", "work"), (200, 6e6), (2000, 7e7))
def test_shares_read_are_those_of_an_independent_implementation(tmp_path, draws, work):
    _, lines = run(
        "discrete_sampling_synthetic", tmp_path, "--arms", "10", "--rewards", "normal", "--delta", "0.01",
        "--sigma", "1e-5", "1e-4", "1e-3", "--rules", *SHARES, "--draws", str(draws), "--work", str(work),
    )
    assert len(lines) == 9
    for line in lines:
        shares, measured = SHARES[line["rule"]]
        wanted = shares[(1e-5, 1e-4, 1e-3).index(line["sigma"])]
        error = line["fraction_read_se"] * math.hypot(1.0, math.sqrt(line["draws"] / measured))
        assert line["fraction_read"] == pytest.approx(wanted, abs=4.0 * error + 0.03 * wanted), line


@pytest.mark.long
def test_the_table_does_not_depend_on_threads_or_on_the_grid(tmp_path):
    small = ("--arms", "3", "--rows", "2000", "--sigma", "1e-3", "--delta", "0.05", "--draws", "6", "--seed", "7")
    tables = []
    for number, more in enumerate((("--jobs", "1"), ("--jobs", "3"), ("--jobs", "2", "--rewards", "uniform"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        tables.append(run("discrete_sampling_synthetic", folder, *small, *more)[1])
    assert len(tables[0]) == 3 * RULES
    assert tables[1] == tables[0]
    assert tables[2] == [line for line in tables[0] if line["rewards"] == "uniform"]


@pytest.mark.parametrize("wrong", ["--delta 1", "--sigma 0", "--arms 1", "--jobs -1", "--rules x"])
def test_bad_options_are_refused(tmp_path, wrong):
    done = call("discrete_sampling_synthetic", tmp_path, *wrong.split())
    assert done.returncode == 2
    assert "error:" in done.stderr


def test_filterboost_quick_takes_fewest_samples_by_bets_and_resumes(tmp_path):
    stamps = []
    for _ in range(2):                  # the second time from the table
        done = call("filterboost", tmp_path, "--quick", "--no-progress", "--sets", "breast_cancer", "--runs", "2")
        assert done.returncode == 0, done.stderr
        with (tmp_path / "filterboost.csv").open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        assert len(lines) == 5 * 2 * 5
        samples = {rule: sum(int(line["samples"]) for line in lines if line["rule"] == rule)
                   for rule in {line["rule"] for line in lines}}
        assert min(samples, key=samples.get) == "target-eb" and max(samples, key=samples.get) == "nas"
        assert all(float(line["accuracy"]) > 0.8 for line in lines if line["round"] == "5")
        stamps.append([line["seconds"] for line in lines])
    assert sorted(stamps[0]) == sorted(stamps[1])
    assert (tmp_path / "filterboost.png").read_bytes().startswith(b"\x89PNG")
    assert "breast_cancer, 2 runs" in done.stdout


def test_arch_bins_are_the_binned_taylor_expansion_of_the_library():
    arch = importlib.import_module("papers.chen_2016._arch_chains")
    rng = np.random.default_rng(0)
    returns = rng.standard_t(5.0, 1200)
    r, q = returns[4:], 4
    lags = np.column_stack([np.ones(len(r))] + [returns[4 - i : len(returns) - i] ** 2 for i in range(1, q + 1)])
    weights, nu = np.array([0.3, 0.2, 0.1, 0.1, 0.05]), 5.5
    z = np.column_stack([r, lags @ [0.4, 0.1, 0.1, 0.1, 0.1]])
    bins = arch.Bins(r, lags, z, np.ones(len(r), dtype=bool))

    def expansion(at):
        x, a = at[:, 0], weights
        v = at[:, 1:] @ a
        d = nu * v + x * x
        parts = arch.term_derivatives(x * x, v, nu)
        gradient = np.column_stack([-(nu + 1) * x / d, parts["dv"][:, None] * a])
        hessian = np.zeros((len(at), q + 2, q + 2))
        hessian[:, 0, 0] = -(nu + 1) * (nu * v - x * x) / d**2
        hessian[:, 0, 1:] = hessian[:, 1:, 0] = ((nu + 1) * nu * x / d**2)[:, None] * a
        hessian[:, 1:, 1:] = parts["dvv"][:, None, None] * np.outer(a, a)
        return parts["value"][:, None], gradient[:, None], hessian[:, None]

    whole = BinnedTaylor(np.column_stack([r, lags]), expansion, 1, z=z, n_bins=100)
    total, known = bins.expand(np.append(weights, nu))
    every = np.arange(len(r))
    near = arch.terms(r * r, lags @ weights, nu) - bins.residuals(every, known)
    assert np.allclose(near, whole.read(every)[:, 0], rtol=1e-10, atol=1e-10)
    assert total == pytest.approx(whole.totals()[0], rel=1e-10) == pytest.approx(near.sum(), rel=1e-10)


def test_draws_of_a_cut_normal_density_have_the_density_that_they_come_with():
    independent = importlib.import_module("papers.chen_2016._independent")
    center, covariance = np.array([0.4, -0.5, 3.0]), np.array([[1.0, 0.6, 0.2], [0.6, 2.0, -0.3], [0.2, -0.3, 0.5]])
    cut = independent.Cut.of(center, np.linalg.inv(covariance))
    draws, log_density = cut.draws(20_000, np.random.default_rng(0))
    assert (draws > 0.0).all()
    weight = np.exp(stats.multivariate_normal(center, covariance).logpdf(draws) - log_density)
    inside = stats.multivariate_normal(-center, covariance).cdf(np.zeros(3))
    assert abs(weight.mean() - inside) < 5.0 * weight.std() / 20_000**0.5 + 1e-3      # 1e-3: of the cdf's quadrature


def test_independent_proposals_visit_orders_of_an_arch_model_as_often_as_their_evidence_says():
    arch = importlib.import_module("papers.chen_2016._arch_chains")
    independent = importlib.import_module("papers.chen_2016._independent")
    rng = np.random.default_rng(3)
    returns = np.zeros(3000)                                    # fewer leave expansions that a chain sticks behind
    for t in range(2, 3000):
        returns[t] = (0.5 + 0.25 * returns[t - 1] ** 2 + 0.1 * returns[t - 2] ** 2) ** 0.5 * rng.standard_t(5.0)
    posterior = arch.Posterior(returns / returns.std(), (1, 2, 3), np.random.default_rng(0))
    chain = independent.Independent(posterior, 0.05, *(np.random.default_rng(seed) for seed in (1, 2)))
    log_weights = np.array([20.5, 0.0, 3.4])                    # orders about equally likely
    exact, nu = np.zeros(3), np.zeros(3)                        # evidence and mean of nu, by weighted draws
    for j, cut in enumerate(chain.surrogates.cuts):
        found, log_density = cut.draws(1000, rng)
        log_weight = np.array([posterior.log_likelihood(j, x) for x in found]) - found.sum(axis=1) - log_density
        exact[j] = special.logsumexp(log_weight)
        nu[j] = special.softmax(log_weight) @ found[:, -1]
    exact = special.softmax(exact + log_weights)
    visits, freedom, wrong = np.zeros(3), [], np.zeros(4)
    for k in range(2000):
        wrong += chain.step(log_weights, k % 5 == 0)[1]
        visits[chain.order] += 1
        freedom.append(chain.x[-1])
    assert_rate_at_most(int(wrong[3]), int(wrong[2]), 0.05)
    assert np.abs(visits / 2000 - exact).max() < 0.08           # about 800 effective draws, and 5 standard errors
    assert np.mean(freedom) == pytest.approx(exact @ nu, abs=0.2 * np.std(freedom))


@pytest.mark.long
def test_arch_selection_finds_the_order_and_resumes(tmp_path):
    options = "--quick", "--no-progress", "--adapt", "60", "--steps", "120", "--runs", "1"
    tables = []
    for _ in range(2):
        done = start("arch_selection", tmp_path, *options)
        assert done.returncode == 0, done.stderr
        with (tmp_path / "arch_selection.csv").open(newline="", encoding="utf-8") as file:
            tables.append(list(csv.DictReader(file)))
    assert tables[0] == tables[1]       # seconds too: nothing was run again
    cost = {line["sampler"]: float(line["evaluations_per_iteration"]) for line in tables[0]}
    assert max(cost["binned"], cost["expanded"], cost["independent"]) < 0.5 * cost["exact"]
    for line in tables[0]:
        for kind in ("order", "move"):
            assert_rate_at_most(int(line[f"{kind}_wrong"]), int(line[f"{kind}_checked"]), 0.05)
    best = done.stdout.split("log posterior of q")[1].splitlines()
    assert all(abs(float(line.split()[-2])) < 0.01 for line in best[1:6])       # order 4, as simulated
    assert (tmp_path / "arch_selection_simulated.png").read_bytes().startswith(b"\x89PNG")


def test_b_cubed_counts_labelled_mentions_only():
    coref = module("author_coreference")
    labels, person = np.array([0, 0, 0, 1, 1, 2]), np.array([5, 5, 7, 7, -1, 7])
    precision, recall = coref.b_cubed(labels, person)
    assert precision == pytest.approx(2 / 3 + 2 / 3 + 1 / 3 + 1 + 1)
    assert recall == pytest.approx(1 + 1 + 3 * (1 / 3))
    assert coref.b_cubed(labels, np.full(6, -1)) == (0.0, 0.0)


def test_parts_and_limits_of_coreference_factors():
    coref = module("author_coreference")
    rng = np.random.default_rng(3)
    mentions = [coref.Mention(f"{rng.choice(['c', 'chen', 'chao'])} wang", frozenset(map(str, rng.integers(9, size=4))),
                              tuple(rng.choice(["race", "chain", "bound"], 2)), ("delft",), str(rng.integers(3)),
                              float(rng.integers(1990, 2020)), 0) for _ in range(40)]
    weights = np.array([-1.4, -0.3, 6.1, 9.1, 4.5, 2.7, -0.3])
    found, known, limits, rest = coref.factors(mentions, weights)
    apart = ~np.eye(40, dtype=bool)
    for values, (low, high) in ((found, limits.T), (found - known, rest.T)):
        assert ((values >= low[:, None]) & (values <= high[:, None]))[apart].all()
    # Sums over clusters must follow from sums of features, so the known part is an inner product up to its constant.
    block = known.astype(float)
    np.fill_diagonal(block, block.max() + 100.0)
    assert np.linalg.eigvalsh(block).min() > 0.0
    assert (found - known)[apart].std() < 0.5 * found[apart].std()


def test_author_coreference_by_races_ends_where_exact_sampling_does(tmp_path):
    for begin in (start, call):         # the second time from the blocks kept
        done = begin("author_coreference", tmp_path, "--quick", "--no-progress", "--runs", "1", "--sweeps", "5")
        assert done.returncode == 0, done.stderr
    with (tmp_path / "author_coreference.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 4 * 5
    last = {line["sampler"]: line for line in lines if line["sweep"] == "5"}
    for sampler in ("even", "adaptive", "known"):
        assert float(last[sampler]["f1"]) == pytest.approx(float(last["exact"]["f1"]), abs=0.05)
        assert int(last[sampler]["evaluations"]) < 0.8 * int(last["exact"]["evaluations"])
        wrong = sum(int(line["wrong"]) for line in lines if line["sampler"] == sampler)
        assert_rate_at_most(wrong, sum(int(line["draws"]) for line in lines if line["sampler"] == sampler), 0.05)
    assert float(last["exact"]["f1"]) > 0.8
    assert int(last["known"]["evaluations"]) < int(last["even"]["evaluations"])
    picture = tmp_path / "author_coreference.png"
    drawn = picture.read_bytes()
    assert drawn.startswith(b"\x89PNG")
    picture.unlink()
    done = call("author_coreference", tmp_path, "--draw", str(tmp_path / "author_coreference.csv"))
    assert done.returncode == 0 and picture.read_bytes() == drawn


@pytest.mark.parametrize("script", [file.name for file in SCRIPTS])
def test_every_experiment_explains_itself(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit, match="0"):
        module(script).main()
    help_text = capsys.readouterr().out
    for word in ("--quick", "--seed", "--output", "--no-progress", f"{script} --quick"):
        assert word in help_text


def test_tables_are_written_whole_and_read_back_without_broken_lines(tmp_path):
    path = tmp_path / "table.csv"
    common.write_table(path, [{"rule": "a", "error": 1 / 3}])
    common.add_lines(path, [{"rule": "b", "error": 0.5}])
    assert common.read_table(path) == [{"rule": "a", "error": "0.333333"}, {"rule": "b", "error": "0.5"}]
    with path.open("a") as file:
        file.write("cut")           # as a crash leaves it
    assert len(common.read_table(path)) == 2
    assert common.read_table(tmp_path / "none.csv") == []
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]
