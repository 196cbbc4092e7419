"""A Hamiltonian trajectory written plainly: leapfrog steps of Neal (2011), equation 5.18 and onwards."""

import numpy as np


def trajectory(xi, density, root, step, length, rng):
    """Where one trajectory ends, and the probability of its acceptance.

    `density(xi)` gives a log density and its gradient. Velocities are standard normal along the columns of `root`, the
    Cholesky factor of a covariance. The number of steps and the step are drawn first: they depend on nothing else.
    """
    step_size = step * (0.8 + 0.4 * rng.random())
    n_steps = int(2.0 * length / step * rng.random()) + 1
    uniform = rng.random()
    velocity = np.array([rng.standard_normal() for _ in xi])
    value, gradient = density(xi)
    energy, at = value - velocity @ velocity / 2, xi
    for _ in range(n_steps):
        velocity = velocity + step_size / 2 * root.T @ gradient
        at = at + step_size * root @ velocity
        value, gradient = density(at)
        velocity = velocity + step_size / 2 * root.T @ gradient
    acceptance = min(1.0, np.exp(value - velocity @ velocity / 2 - energy))
    return (at if uniform < acceptance else xi), acceptance


def local_scales(theta, density, places, rng):
    """A normal step of the logarithm of each local scale, at `places`, accepted by the change of the log density."""
    for place in places:
        new = theta.copy()
        new[place] += 1.5 * rng.standard_normal()
        uniform = rng.random()
        if uniform < np.exp(density(new) - density(theta)):
            theta = new
    return theta
