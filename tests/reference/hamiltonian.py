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
        if not np.isfinite(value):
            return xi, 0.0
        velocity = velocity + step_size / 2 * root.T @ gradient
    acceptance = min(1.0, np.exp(value - velocity @ velocity / 2 - energy))
    return (at if uniform < acceptance else xi), acceptance


def split_trajectory(xi, density, center, root, step, length, rng):
    """Where a trajectory on all rows ends, the probability of its acceptance, and how many densities it asked for.

    Also how far the energy rose above that of the start: infinity where there is none.

    Strang's splitting of Shahbaba et al. (2014), section 2: with z = root^-1 (xi - center), positions and velocities
    turn about the origin, and velocities change by the gradient of what the log density has beyond -|z|^2 / 2.
    """
    way = length * (0.7 + 0.6 * rng.random())
    uniform = rng.random()
    n_steps = max(1, int(np.ceil(way / step)))
    angle = way / n_steps
    z, velocity = np.linalg.solve(root, xi - center), np.array([rng.standard_normal() for _ in xi])
    value, gradient = density(xi)
    energy, rise = value - velocity @ velocity / 2, 0.0
    for k in range(n_steps):
        velocity = velocity + angle / 2 * (root.T @ gradient + z)
        z, velocity = np.cos(angle) * z + np.sin(angle) * velocity, np.cos(angle) * velocity - np.sin(angle) * z
        value, gradient = density(center + root @ z)
        velocity = velocity + angle / 2 * (root.T @ gradient + z)
        if not np.isfinite(value):
            return xi, 0.0, k + 1, np.inf
        rise = max(rise, energy - value + velocity @ velocity / 2)
    acceptance = min(1.0, np.exp(value - velocity @ velocity / 2 - energy))
    return (center + root @ z if uniform < acceptance else xi), acceptance, n_steps, rise


def local_scales(theta, density, places, rng):
    """A normal step of the logarithm of each local scale, at `places`, accepted by the change of the log density."""
    for place in places:
        new = theta.copy()
        new[place] += 1.5 * rng.standard_normal()
        uniform = rng.random()
        if uniform < np.exp(density(new) - density(theta)):
            theta = new
    return theta


def scale_step(theta, place, prior, density, size, rng):
    """A normal step of one hyperparameter with a deviation of its own, effects as they are in standard coordinates.

    `prior` has all these, and `density(xi)` is a log density of them.
    """
    step = size * 3.0 * np.exp(-3.4 * rng.random()) * rng.standard_normal()
    uniform = rng.random()
    xi = prior.free_of(theta)
    new = xi.copy()
    new[place] += step
    return prior.from_free(new) if uniform < np.exp(density(new) - density(xi)) else theta


def move(theta, scales, by_local, by_scale, by_trajectory, rng):
    """Local scales, one of `scales` and a trajectory in either order, local scales."""
    first, place = False, None
    if scales:
        coin = 2.0 * rng.random()
        first, place = coin < 1.0, scales[int(len(scales) * (coin % 1.0))]
    theta = by_local(theta)
    if scales and first:
        theta = by_scale(theta, place)
    theta = by_trajectory(theta)
    if scales and not first:
        theta = by_scale(theta, place)
    return by_local(theta)
