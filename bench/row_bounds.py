"""What bounds on third derivatives cost, and how close they are; for `FunctionModel`'s docstring.

    python bench/row_bounds.py

A row's term depends on one, two or three linear combinations of the parameters. `FunctionModel` and `from_pymc` look
for bounds with ``third_derivatives="auto"``. Printed are CPU milliseconds a row, after a first run for what JAX
compiles, and the sum of the bounds over the sum of the largest third derivatives met at 200 random points.
"""

import time

import numpy as np

DIM, N_POINTS = 12, 200


def laws(jax, X, y):
    """Terms by name."""
    jnp = jax.numpy
    X, y = jnp.asarray(X), jnp.asarray(y)

    def logistic(theta, rows):
        return -jnp.logaddexp(0.0, jnp.where(y[rows] > 0.0, -1.0, 1.0) * (X[rows] @ theta[:5]))

    def student(theta, rows):
        return -2.5 * jnp.log1p(jnp.square((y[rows] - X[rows] @ theta[:5]) / jnp.exp(theta[5])) / 4.0) - theta[5]

    def mixture(theta, rows):
        first, second = (-0.5 * jnp.square(y[rows] - X[rows] @ part) for part in (theta[:5], theta[5:10]))
        return jnp.logaddexp(first, second - theta[10])

    return {"one: logistic": logistic, "two: Student-t, scale": student, "three: two lines, odds": mixture}


def largest(jax, terms, hat, factor, radius, rows, rng):
    """The largest absolute third derivative of each row at random points, in random ways."""
    def along(t, at, way):
        return terms(hat + factor @ (at + t * way), rows)

    third = along
    for _ in range(3):
        third = jax.jacfwd(third)
    third = jax.jit(third)
    out = np.zeros(len(rows))
    for _ in range(N_POINTS):
        at, way = rng.standard_normal((2, len(hat)))
        at *= radius * rng.random() / np.linalg.norm(at)
        out = np.maximum(out, np.abs(third(0.0, at, way / np.linalg.norm(way))))
    return out


def main():
    import jax

    from fastrace.mcmc.models._row_bounds import weights_of

    rng = np.random.default_rng(0)
    print(f"{'combinations':26s}{'rows':>8s}{'ms a row':>10s}{'bound / met':>13s}")
    for n in (400, 10_000):
        X = rng.standard_normal((n, 5))
        y = X @ [0.5, -0.2, 0.1, 0.3, 0.2] + rng.standard_t(4, n)
        hat, factor = np.r_[0.5, -0.2, 0.1, 0.3, 0.2, np.zeros(DIM - 5)], np.eye(DIM) / np.sqrt(n)
        with jax.enable_x64(True):
            for name, terms in laws(jax, X, y).items():
                weights_of(terms, hat, factor, n)
                began = time.process_time()
                weights, radius, *_ = weights_of(terms, hat, factor, n)
                took = time.process_time() - began
                met = largest(jax, terms, hat, factor, radius, np.arange(n), rng)
                print(f"{name:26s}{n:8d}{1e3 * took / n:10.2f}{weights.sum() / met.sum():13.1f}", flush=True)


if __name__ == "__main__":
    main()
