"""Chains on surrogates where each row belongs to a group of several factors: its bound, its twin, exact decisions."""

import pickle

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc.kernels import _surrogate_moves
from fastrace.mcmc.kernels._minibatch import BlockTable
from fastrace.mcmc.kernels._pieces import PiecePoissonChain
from fastrace.mcmc.kernels._proposal import Proposal
from fastrace.mcmc.models._pieces import pieces_of
from guarantee import assert_same_law
from reference import surrogate as twin
from reference.mcmc import RowStream, bend
from surrogates import plain_inner

SEED = 20161124


def crossed(rng, n_rows, sizes, slopes=(), family="logistic", **options):
    """A model whose rows belong to a group of each factor; in the factors of `slopes`, one slope varies too."""
    X = np.column_stack([np.ones(n_rows), rng.standard_normal(n_rows)])
    codes = [rng.permutation(np.r_[np.arange(k), rng.integers(k, size=n_rows - k)]) for k in sizes]
    eta = X @ [0.3, -0.5] + sum(0.6 * rng.standard_normal(k)[c] for k, c in zip(sizes, codes, strict=True))
    y = eta + rng.standard_normal(n_rows)
    if family == "logistic":
        y = (rng.random(n_rows) < 1 / (1 + np.exp(-eta))) * 1.0
    if family == "poisson":
        y = rng.poisson(np.exp(0.4 * eta)) * 1.0
    groups = {f"f{k}": mcmc.Groups(c, slopes=[1] if k in slopes else None) for k, c in enumerate(codes)}
    return mcmc.GLM(X, y, family, groups=groups, prior=mcmc.Normal(0.0, 2.0), group_prior=mcmc.HalfNormal(1.0),
                    **options)


def nested(rng, n_rows, shape, family="logistic", **options):
    """A model of `shape`: names of factors, each a tuple of levels of what it is nested in, and whether slopes vary."""
    X = np.column_stack([np.ones(n_rows), rng.standard_normal(n_rows)])
    base = {"a": rng.integers(4, size=n_rows), "b": rng.integers(3, size=n_rows), "c": rng.integers(3, size=n_rows)}
    groups, eta = {}, X @ [0.3, -0.5]
    for name, sloped in shape.items():
        groups[name] = mcmc.Groups(tuple(base[part] for part in name), slopes=[1] if sloped else None)
        codes = groups[name].codes
        eta = eta + (0.5 * rng.standard_normal(codes.max() + 1))[codes]
    y = rng.poisson(np.exp(0.4 * eta)) if family == "poisson" else rng.random(n_rows) < 1 / (1 + np.exp(-eta))
    return mcmc.GLM(X, y * 1.0, family, groups=groups, prior=mcmc.Normal(0.0, 2.0), group_prior=mcmc.HalfNormal(1.0),
                    **options)


class Summed:
    """The twin on sums of effects: those of a factor within others come with theirs, which are then left out."""

    def __init__(self, covariance, design, factors, within):
        onto, gone = np.eye(len(covariance)), []
        for fine, coarse in within.items():
            (first, count, width, codes), (outer, n_outer, few, theirs) = factors[coarse], factors[fine]
            for g in range(count):
                around = set(theirs[codes == g].tolist())
                for h in around:
                    assert len(around) == 1
                    for k in range(few):                # intercepts first, so that a slope belongs to a slope
                        onto[first + g * width + k, outer + h * few + k] = 1.0
            gone.extend(range(outer, outer + n_outer * few))
        self.keep = np.delete(np.arange(len(covariance)), gone)
        self.onto = onto[self.keep]
        kept = [(int(np.searchsorted(self.keep, first)), count, width, codes)
                for i, (first, count, width, codes) in enumerate(factors) if i not in within]
        self.plain = twin.Pieces(self.onto @ covariance @ self.onto.T, design[:, self.keep], kept)
        self.lengths, self.widths, self.blocks = self.plain.lengths, self.plain.widths, self.plain.blocks

    def cubes(self, step):
        return self.plain.cubes(self.onto @ step)

    def sizes(self, before, after, totals):
        return self.plain.sizes(self.onto @ before, self.onto @ after, totals)


def plain_pieces(model, made, within=None):
    design = np.zeros((model.n_rows, model.n_seen))
    design[:, :2] = model._glm.X
    for f in model.factors:
        values = f.values(model._glm.X, slice(0, model.n_rows))
        for k in range(f.width):
            design[np.arange(model.n_rows), f.start + f.width * f.codes + k] = values[:, k]
    factors = [(f.start, f.n_groups, f.width, f.codes) for f in model.factors]
    covariance = np.linalg.inv(made.metric().to_dense())
    if within:
        return Summed(covariance, design, factors, within), design
    return twin.Pieces(covariance, design, factors), design


def plain_unseen(model):
    """The intercept, and a slope that varies too, against the effects of all groups of a factor."""
    out = []
    for f in model.factors:
        for j, k in [(0, 0)] + [(1, 1)] * (f.width > 1):
            out.append(np.zeros(model.n_seen))
            out[-1][j], out[-1][f.start + k : f.stop : f.width] = 1.0, -1.0
    return np.array(out)


def totals_of(weights, blocks):
    return np.bincount(blocks.ravel(), weights.ravel())


CASES = [((7, 4), (), "logistic", {}), ((5, 4), (0,), "logistic", {}), ((6, 4, 3), (1,), "logistic", {}),
         ((5, 3), (0, 1), "poisson", {}), ((6, 4), (), "gaussian", {}), ((5, 4), (), "student-t", {"scale": 1.0})]


NESTED = [      # factors; which of them lies within the finest factor, and where that one is
    ({"a": False, "ab": False}, {0: 1}), ({"ab": True, "a": False}, {1: 0}), ({"a": True, "ab": True}, {0: 1}),
    ({"a": False, "ab": False, "abc": False}, {0: 2, 1: 2}), ({"a": False, "b": False, "ab": False}, {0: 2, 1: 2}),
    ({"a": False, "ab": False, "c": True}, {0: 1}), ({"a": True, "ab": False}, {}),
]


@pytest.mark.parametrize(("sizes", "slopes", "family", "options"), CASES)
def test_bounds_of_rows_of_several_factors_hold(sizes, slopes, family, options):
    rng = np.random.default_rng(SEED)
    check_bounds(rng, crossed(rng, 300, sizes, slopes, family, **options))


@pytest.mark.parametrize(("shape", "within"), NESTED)
@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_bounds_of_rows_of_nested_factors_hold(shape, within, family):
    rng = np.random.default_rng(SEED)
    check_bounds(rng, nested(rng, 300, shape, family), within)


def check_bounds(rng, model, within=None):
    """Pieces are those of the twin, and no row changes by more than its bound."""
    kernel = mcmc.SurrogateMetropolis(model, decision="poisson")
    made, pieces = kernel.compressed, kernel._pieces
    plain, _ = plain_pieces(model, made, within)
    np.testing.assert_allclose(pieces.lengths(model._glm.X, model.factors), plain.lengths, rtol=1e-6, atol=1e-9)
    weights, rounding = model._piece_weights(np.array(made.psi_hat), pieces)
    blocks, radii = plain.blocks(), pieces.radii
    totals, root = totals_of(weights, blocks), made.covariance_root()
    source, theta = model.engine(kernel.reference)
    unseen, metric = plain_unseen(model), made.metric().to_dense()
    rows, closest, checked = np.arange(300), 0.0, 0
    for size in (0.02, 0.3, 1.0, 1.5):
        for _ in range(40):
            before = root @ rng.standard_normal(model.n_seen)
            after = np.sqrt(max(0.0, 1.0 - size**2)) * before + size * (root @ rng.standard_normal(model.n_seen))
            theta[:] = made.psi_hat + np.array([before, after]) + 3.0 * rng.standard_normal((2, len(unseen))) @ unseen
            seen = [twin.seen_part(step - made.psi_hat, unseen, metric) for step in theta]
            for step, part in zip(theta - made.psi_hat, seen, strict=True):
                np.testing.assert_allclose(kernel._seen_of(step), part, rtol=1e-6, atol=1e-9)
                np.testing.assert_allclose(pieces.cubes(part), plain.cubes(part), rtol=1e-5, atol=1e-7)
            norms = [np.cbrt(plain.cubes(step))[blocks] for step in seen]
            inside = all((norm <= radii[:, None]).all() for norm in norms)
            first, second = source.read(rows, [0, 1]).T
            bounds = (weights * plain.sizes(*seen, totals)[blocks]).sum(axis=0)
            assert not inside or (np.abs(second - first) <= bounds + 10.0 * rounding).all()
            closest = max(closest, float((np.abs(second - first) / (bounds + rounding)).max()))
            checked += inside
    assert closest > 0.02 and checked > 100  # and they are not far too wide


def test_weights_of_pieces_are_their_formula():
    rng = np.random.default_rng(SEED)
    model = crossed(rng, 60, (4, 3))
    made = mcmc.compress(model)
    pieces = pieces_of(made.factor(), model.factors)
    plain, design = plain_pieces(model, made)

    def third(eta):
        p = 1 / (1 + np.exp(-eta))
        return p * (1 - p) * (1 - 2 * p)

    radii, width = np.sqrt(plain.widths) + 5.0, plain.widths[:, None]
    bends = np.array([bend(third, eta, reach) for eta, reach in zip(design @ made.psi_hat, radii @ plain.lengths,
                                                                    strict=True)])
    parts = plain.lengths * np.sqrt(width)
    weights, _ = model._piece_weights(np.array(made.psi_hat), pieces)
    expected = bends * parts.sum(axis=0) ** 2 * parts / width**1.5
    assert (weights >= expected * (1 - 1e-6)).all()
    np.testing.assert_allclose(weights, expected, rtol=0.3)     # the integral from above, by a few steps


@pytest.mark.parametrize("within", [None, {0: 1}])
@pytest.mark.parametrize(("size", "wider"), [(0.1, 1.5), (0.4, 4.0)])    # straight, and by the point of expansion
def test_minibatches_of_several_factors_are_their_twin(size, wider, within, monkeypatch):
    monkeypatch.setattr(_surrogate_moves, "LEAN", 0.0)
    monkeypatch.setattr(_surrogate_moves, "replaced", lambda *given: None)  # walks of sites have a twin elsewhere
    rng = np.random.default_rng(SEED)
    model = nested(rng, 6000, {"a": False, "ab": False}) if within else crossed(rng, 6000, (4, 3))
    kernel = mcmc.SurrogateMetropolis(model, decision="poisson", size=size)
    kernel._walks, kernel._engines, kernel._wider = None, [], wider     # few rows, as the twin can draw
    made = kernel.compressed
    unseen, metric = plain_unseen(model), made.metric().to_dense()
    plain, design = plain_pieces(model, made, within)
    weights, _ = model._piece_weights(np.array(made.psi_hat), kernel._pieces)
    blocks, y = plain.blocks(), np.asarray(model._glm.y)
    totals, n = totals_of(weights, blocks), model.n_seen
    (first, last), (n_first, n_last) = model.factors, (f.n_groups for f in model.factors)
    blocks_first = first if n_first > n_last else last
    order = np.r_[blocks_first.start : blocks_first.stop, np.delete(np.arange(n), np.arange(
        blocks_first.start, blocks_first.stop))]
    prior = twin.Prior([2.0, 2.0], [(n_first, [1.0]), (n_last, [1.0])])
    inner = plain_inner(kernel, prior, order, size)

    def residual(row, psi):
        return twin.logistic_residual(design[row], y[row], made.psi_hat, psi)

    state = kernel.init(np.r_[made.psi_hat, np.exp(kernel._phi_center)])
    _, steps = kernel.run(np.random.default_rng(3), state, 50)
    stream, theta = np.random.default_rng(3), state.position
    for draw, accepted, rows in zip(model.unconstrain(steps.draws), steps.accepted, steps.rows, strict=True):
        own = RowStream(int(stream.bit_generator.random_raw()))
        level = -stream.standard_exponential()
        new = inner.move(theta, stream)
        level += (new - theta)[:n] @ kernel._tilt
        ends = [twin.seen_part(end[:n] - made.psi_hat, unseen, metric) for end in (theta, new)]
        sizes = wider * plain.sizes(*ends, totals)
        took, read = twin.minibatch_of_pieces(
            own, weights, blocks, sizes,
            lambda row, now=theta, to=new: residual(row, to[:n]) - residual(row, now[:n]), level)
        assert (took, read) == (accepted, rows)
        theta = new if took else theta
        np.testing.assert_allclose(draw, theta, rtol=1e-6, atol=1e-6)
    assert steps.rows.max() > 0


@pytest.mark.parametrize(("sizes", "slopes", "lean"),
                         [((4, 3), (), 0.0), ((4, 3, 2), (0,), np.inf), (None, None, np.inf)])
def test_minibatches_of_several_factors_leave_what_exact_decisions_leave(sizes, slopes, lean, monkeypatch):
    rng = np.random.default_rng(SEED)
    model = crossed(rng, 250, sizes, slopes) if sizes else nested(rng, 250, {"a": False, "ab": True})
    draws, kernels = [], []
    for decision, tilted in (("exact", np.inf), ("poisson", lean)):
        monkeypatch.setattr(_surrogate_moves, "LEAN", tilted)
        kernels.append(mcmc.SurrogateMetropolis(model, decision=decision, size=0.7))
    assert kernels[0]._tilt is None and (kernels[1]._tilt is None) == (lean > 0.0)
    for kernel in kernels:
        state, _ = kernel.run(rng, kernel.init(None, rng), 200)
        draws.append(kernel.run(rng, state, 16_000)[1].draws)
    assert kernels[1].decision == "poisson"
    assert_same_law(*draws)


def test_chains_of_several_factors_resume_pickle_and_take_turns():
    rng = np.random.default_rng(SEED)
    kernel = mcmc.SurrogateMetropolis(crossed(rng, 400, (5, 4), (0,)), decision="poisson")
    whole = mcmc.sample(kernel, n_draws=40, n_chains=2, n_tune=50, rng=3, threads=1).draws
    np.testing.assert_array_equal(whole, mcmc.sample(kernel, n_draws=40, n_chains=2, n_tune=50, rng=3, threads=2).draws)
    again = pickle.loads(pickle.dumps(kernel))
    np.testing.assert_array_equal(whole, mcmc.sample(again, n_draws=40, n_chains=2, n_tune=50, rng=3).draws)
    part = mcmc.sample(kernel, n_draws=15, n_chains=2, n_tune=50, rng=3)
    rest = mcmc.sample(again, pickle.loads(pickle.dumps(part)), n_draws=25)
    np.testing.assert_array_equal(whole, np.concatenate([part.draws, rest.draws], axis=1))


def test_far_moves_and_tables_of_other_rows():
    rng = np.random.default_rng(SEED)
    model = crossed(rng, 500, (5, 4))
    kernel = mcmc.SurrogateMetropolis(model, decision="poisson")
    far = kernel.init(np.r_[kernel.compressed.psi_hat + 9.0, 1.0, 1.0])
    assert kernel.run(rng, far, 5)[1].rows.max() == 500           # beyond the radii all rows decide
    source, theta = model.engine(kernel.reference)
    chain = PiecePoissonChain(source, theta, None, None, Proposal(), surrogate=True)
    table = BlockTable(np.ones((3, 400)), np.zeros((3, 400), dtype=int), kernel._pieces.n_blocks)
    with pytest.raises(ValueError, match="400 rows"):
        chain.set_pieces(table, kernel._pieces, kernel.compressed.psi_hat, 100)


def test_groups_of_one_row_and_groups_whose_rows_have_no_weight():
    rng = np.random.default_rng(SEED)
    n_rows = 5000
    codes = [rng.choice(30, n_rows, p=rng.dirichlet(np.full(30, 0.1))) for _ in range(2)]
    codes[0][0], codes[1][1] = 30, 31                             # one row of its own each
    eta = sum(0.8 * rng.standard_normal(32)[c] for c in codes)
    y = rng.random(n_rows) < 1 / (1 + np.exp(-eta))
    factors = {name: mcmc.Groups(np.r_[c, np.arange(32)]) for name, c in zip("ab", codes, strict=True)}
    model = mcmc.GLM(np.ones((n_rows + 32, 1)), np.r_[y, np.zeros(32)], groups=factors,
                     weights=np.r_[np.ones(n_rows), np.zeros(32)])
    assert mcmc.SurrogateMetropolis(model).decision == "exact"    # some have one outcome alone
    kernel = mcmc.SurrogateMetropolis(model, decision="poisson")
    _, steps = kernel.run(rng, kernel.init(None, rng), 200)
    assert steps.accepted.mean() > 0.2
    assert np.isfinite(steps.draws).all()


def test_moves_without_a_factor_leave_what_moves_with_one_leave():
    rng = np.random.default_rng(SEED)
    model, draws = crossed(rng, 250, (5, 4)), []
    for share in (0.0, 0.7):
        kernel = mcmc.SurrogateMetropolis(model, decision="exact")
        assert kernel._fixed_share == 0.0                         # a factor of so few parameters costs little
        kernel._fixed_share = share
        draws.append(kernel.run(rng, kernel.init(None, rng), 12_000)[1].draws)
    assert_same_law(*draws)


@pytest.mark.parametrize(("n_rows", "share"), [(300, 0.0), (20_000, _surrogate_moves.FIXED)])
def test_moves_without_a_factor_are_made_where_a_pilot_gets_far_by_them(n_rows, share, monkeypatch):
    monkeypatch.setattr(_surrogate_moves, "LARGE", 0.0)
    model = crossed(np.random.default_rng(SEED), n_rows, (20, 20))
    assert mcmc.SurrogateMetropolis(model, decision="exact")._fixed_share == share


def test_the_tilt_is_the_gradient_in_the_mean_over_each_rows_spread(monkeypatch):
    monkeypatch.setattr(_surrogate_moves, "LEAN", 0.0)
    rng = np.random.default_rng(SEED)
    model = crossed(rng, 400, (5, 4), (0,), weights=rng.integers(3, size=400))
    kernel = mcmc.SurrogateMetropolis(model, decision="exact")
    _, design = plain_pieces(model, kernel.compressed)
    covariance = np.linalg.inv(kernel.compressed.metric().to_dense())
    eta, spread = design @ kernel.compressed.psi_hat, twin.spread_of(design, covariance)
    z, p = np.linspace(-8.0, 8.0, 801), 1 / (1 + np.exp(-eta))
    mean = (1 / (1 + np.exp(-eta[:, None] - spread[:, None] * z))) @ (np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum())
    expected = -design.T @ ((mean - p) * np.asarray(model._glm.weights))
    np.testing.assert_allclose(kernel._tilt, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_small_groups_of_crossed_factors_leave_minibatches_small():
    """The rows of a group are no function of its effect alone there: what stands in for them cost 60 times the rows."""
    rng, n = np.random.default_rng(1), 100_000
    codes = [rng.choice(k, n, p=rng.dirichlet(np.full(k, c))) for k, c in ((300, 50.0), (60, 3.0))]
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    eta = X @ [-1.0, 0.5, -0.3] + sum((0.6 * rng.standard_normal(code.max() + 1))[code] for code in codes)
    model = mcmc.GLM(X, rng.random(n) < 1 / (1 + np.exp(-eta)), groups={"a": codes[0], "b": codes[1]})
    kernel = mcmc.SurrogateMetropolis(model)
    trace = mcmc.sample(kernel, n_draws=300, n_chains=1, rng=1)
    assert kernel.decision == "poisson" and trace.rows.mean() < 2000 and trace.accepted.mean() > 0.5


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_nested_factors_move_far_in_every_step(family):
    """Effects of a group and of its parts are anything but independent; rows see their sum."""
    rng = np.random.default_rng(SEED)
    X, clinic = np.column_stack([np.ones(20_000), rng.standard_normal(20_000)]), rng.integers(15, size=20_000)
    ward = 3 * clinic + rng.integers(3, size=20_000)
    eta = X @ [-0.3, 0.5] + (0.4 * rng.standard_normal(15))[clinic] + (0.3 * rng.standard_normal(45))[ward]
    y = rng.poisson(np.exp(eta)) if family == "poisson" else rng.random(20_000) < 1.0 / (1.0 + np.exp(-eta))
    model = mcmc.GLM(X, y, family, groups={"clinic": clinic, "ward": ward})
    kernel = mcmc.SurrogateMetropolis(model)
    _, design = plain_pieces(model, kernel.compressed)
    covariance = np.linalg.inv(kernel.compressed.metric().to_dense())
    np.testing.assert_allclose(kernel._lengths_of_rows(), twin.spread_of(design, covariance))
    _, steps = kernel.run(np.random.default_rng(1), kernel.init(rng=1), 300)
    assert steps.accepted.mean() > 0.6              # about .83; .1 to .3 where factors were taken for independent
    assert family != "poisson" or steps.rows.mean() < 100   # about 3; a race of 2,800 where effects had own bounds


def test_groups_without_a_row_are_in_no_other_group():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(SEED)
    clinic = rng.integers(5, size=3000)
    ward = pd.Categorical(2 * clinic + rng.integers(2, size=3000), categories=range(14))
    model = mcmc.GLM(np.ones((3000, 1)), rng.poisson(1.0, 3000), "poisson", groups={"clinic": clinic, "ward": ward})
    kernel = mcmc.SurrogateMetropolis(model, decision="poisson")
    pieces = kernel._pieces
    assert pieces.kept == (1,) and len(pieces.sums) == 10
    _, steps = kernel.run(rng, kernel.init(None, rng), 300)
    assert steps.accepted.mean() > 0.5 and steps.rows.mean() < 100


def test_which_factors_rows_see_hangs_on_groups_with_rows_alone():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(SEED)
    fine = rng.integers(12, size=600)
    coarse = pd.Categorical(fine // 4, categories=range(40))
    X, y = np.column_stack([np.ones(600), rng.standard_normal(600)]), rng.poisson(1.0, 600)
    sloped, plain = mcmc.Groups(fine, slopes=[1]), mcmc.Groups(fine)
    for groups, kept in (({"a": coarse, "b": fine}, 1), ({"p": plain, "q": sloped}, 1), ({"q": sloped, "p": plain}, 0)):
        model = mcmc.GLM(X, y, "poisson", groups=groups)
        assert pieces_of(mcmc.compress(model).factor(), model.factors).kept == (kept,)


def test_bounds_do_not_hang_on_the_unit_and_the_origin_of_a_slope():
    """Years: intercepts and slopes of a group are then all but collinear."""
    read = []
    for origin, unit in ((0.0, 1.0), (2000.0, 10.0)):
        rng = np.random.default_rng(SEED)
        x, a, n = rng.standard_normal(20_000), rng.integers(8, size=20_000), 20_000
        ab = 4 * a + rng.integers(4, size=n)
        eta = 0.5 * x - 0.3 + (0.4 * rng.standard_normal(8))[a] + (0.3 * rng.standard_normal(32))[ab]
        groups = {name: mcmc.Groups(codes, slopes=[1]) for name, codes in (("a", a), ("ab", ab))}
        model = mcmc.GLM(np.column_stack([np.ones(n), origin + unit * x]), rng.random(n) < 1 / (1 + np.exp(-eta)),
                         groups=groups)
        kernel = mcmc.SurrogateMetropolis(model, decision="poisson")
        read.append(mcmc.sample(kernel, n_draws=300, n_chains=1, rng=1).rows.mean())
    assert max(read) < 1500     # 539 and 2; 7,291 for years where the trace of a covariance said what is small
