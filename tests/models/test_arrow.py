"""Arrow-structured matrices against dense NumPy."""

import pickle

import numpy as np
import pytest

from fastrace._models._arrow import Arrow, ArrowFactor, Quadratic

# dense coordinates, blocks, width, start of the blocks, and runs of P's blocks
SHAPES = {
    "dense alone": (4, 0, 1, None, [(4, 1)]),
    "dense with wide blocks of P": (5, 0, 1, None, [(1, 1), (2, 2)]),
    "intercepts": (3, 7, 1, None, [(10, 1)]),
    "slopes": (3, 5, 3, 2, [(2, 1), (5, 3), (1, 1)]),
    "slopes, P of width 1": (2, 4, 2, 0, [(10, 1)]),
    "crossed": (6, 9, 2, 2, [(2, 1), (9, 2), (1, 3), (1, 1)]),
    "blocks alone": (0, 6, 2, 0, [(6, 2)]),
    "one coordinate": (1, 0, 1, None, [(1, 1)]),
}


def spd(rng, size, spread=1.0):
    """A positive definite matrix whose eigenvalues span 10^spread."""
    q, _ = np.linalg.qr(rng.standard_normal((size, size)))
    return (q * 10.0 ** rng.uniform(-spread / 2, spread / 2, size)) @ q.T


def case(name, seed, spread=1.0):
    """An arrow, its layout, P as the blocks one after another, and P whole."""
    s, count, width, start, layout = SHAPES[name]
    rng = np.random.default_rng(seed)
    dim = s + count * width
    first = s if start is None else start
    inside = np.arange(first, first + count * width)
    blocks = np.array([spd(rng, width, spread) for _ in range(count)]).reshape(count, width, width)
    border = rng.standard_normal((s, count * width)) * 0.3
    whole = np.zeros((dim, dim))
    for g in range(count):
        here = inside[g * width : (g + 1) * width]
        whole[np.ix_(here, here)] = blocks[g]
    inverse = np.linalg.inv(whole[np.ix_(inside, inside)])
    dense = spd(rng, s, spread) + border @ inverse @ border.T if s else np.zeros((0, 0))
    arrow = Arrow(dense, border, blocks, start) if count else Arrow(dense)
    parts, P, place = [], np.zeros((dim, dim)), 0
    for number, size in layout:
        for _ in range(number):
            block = spd(rng, size) if place else np.zeros((size, size))     # a flat prior on the first
            parts.append(block.ravel())
            P[place : place + size, place : place + size] = block
            place += size
    return arrow, layout, np.concatenate(parts), P, rng


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("number", [0, 1])
def test_algebra_is_that_of_the_dense_matrix(name, number):
    arrow, layout, precision, P, rng = case(name, number)
    A = arrow.to_dense()
    np.testing.assert_array_equal(A, A.T)
    np.testing.assert_array_equal(arrow.diagonal(), np.diag(A))
    for first, last in ((0, arrow.start), (arrow.start, arrow.dim - arrow.n_dense + arrow.start),
                        (arrow.dim - arrow.n_dense + arrow.start, arrow.dim)):
        places = np.arange(first, last, arrow.width)
        places = places[places + arrow.width <= last]
        parts = [A[i : i + arrow.width, i : i + arrow.width] for i in places]
        found = arrow.blocks_at(places, arrow.width)
        np.testing.assert_array_equal(found, np.reshape(parts, found.shape))
    x = rng.standard_normal(arrow.dim)
    np.testing.assert_allclose(arrow.times(x), A @ x, rtol=1e-12, atol=1e-12)
    factor = ArrowFactor(arrow, layout)
    whole = A + P
    close = {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(factor.factor(precision), np.linalg.slogdet(whole)[1], **close)
    np.testing.assert_allclose(factor.solve(x), np.linalg.solve(whole, x), **close)
    np.testing.assert_allclose(factor.whiten(factor.draw(x)), x, **close)
    root = np.stack([factor.draw(e) for e in np.eye(arrow.dim)], axis=1)        # L'^-1
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(whole), **close)
    dense, blocks = factor.block_covariances()
    inside, outside = arrow.block_coordinates()
    covariance = np.linalg.inv(whole)
    np.testing.assert_allclose(dense, covariance[np.ix_(outside, outside)], **close)
    for g in range(arrow.n_blocks):
        here = inside[g * arrow.width : (g + 1) * arrow.width]
        np.testing.assert_allclose(blocks[g], covariance[np.ix_(here, here)], **close)


@pytest.mark.parametrize("name", ["slopes", "crossed", "dense alone"])
def test_ill_conditioned_matrices_keep_what_double_precision_allows(name):
    arrow, layout, precision, P, rng = case(name, 3, spread=10.0)
    whole = arrow.to_dense() + P
    scale = np.sqrt(np.diag(whole))
    factor = ArrowFactor(arrow, layout)
    np.testing.assert_allclose(factor.factor(precision), np.linalg.slogdet(whole)[1], rtol=1e-6)
    x = rng.standard_normal(arrow.dim)
    residual = (whole @ factor.solve(whole @ x) - whole @ x) / scale
    assert np.abs(residual).max() <= 1e-7 * np.abs(whole / scale[:, None]).sum(axis=1).max() * np.abs(x).max()


def test_what_is_not_positive_definite_is_refused_and_the_next_factor_is_right():
    arrow = Arrow(np.eye(2), np.full((2, 3), 0.1), np.ones((3, 1, 1)))
    factor = ArrowFactor(arrow)
    for bad in ([0, 0, -2.0, 0, 0], [-2.0, 0, 0, 0, 0]):
        with pytest.raises(np.linalg.LinAlgError):
            factor.factor(bad)
        with pytest.raises(ValueError, match="factor"):
            factor.solve(np.ones(5))
    assert factor.factor(np.zeros(5)) == pytest.approx(np.linalg.slogdet(arrow.to_dense())[1], rel=1e-12)


def test_bad_arrows_are_refused():
    with pytest.raises(ValueError, match="shapes"):
        Arrow(np.eye(2), np.zeros((2, 2)), np.ones((3, 1, 1)))
    with pytest.raises(ValueError, match="not finite"):
        Arrow([[np.nan]])
    with pytest.raises(ValueError, match="start"):
        Arrow(np.eye(2), start=3)
    with pytest.raises(ValueError, match="sum to 2"):
        ArrowFactor(Arrow(np.eye(2)), [(3, 1)])
    arrow = Arrow(np.eye(1), np.zeros((1, 4)), np.stack([np.eye(2)] * 2))
    with pytest.raises(ValueError, match="across"):
        ArrowFactor(arrow, [(1, 2), (1, 1), (1, 2)])


def test_a_quadratic_function_and_its_gradient():
    arrow, _, _, _, rng = case("crossed", 5)
    center, gradient, x = rng.standard_normal((3, arrow.dim))
    function = Quadratic(center, 2.5, gradient, arrow)
    d, A = x - center, arrow.to_dense()
    value, slope = function.evaluate(x)
    assert value == pytest.approx(2.5 + gradient @ d - 0.5 * d @ A @ d, rel=1e-12)
    np.testing.assert_allclose(slope, gradient - A @ d, rtol=1e-12, atol=1e-12)
    again = pickle.loads(pickle.dumps(function))
    assert again.evaluate(x)[0] == value
    assert function.shared().evaluate(x)[0] == value
