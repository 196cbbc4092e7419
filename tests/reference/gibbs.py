"""Gibbs sampling of categorical variables, one draw at a time, over tables of log-factors.

Chen & Ghahramani (2016), eq. 2 and Algorithm 1, and Zhang & De Sa (2019), Algorithm 2 for one variable.
A variable is a pair of functions of all variables: the table of its log-factors, (factors, states), and its log prior.
"""

import math

import numpy as np

from reference import racing
from reference.draws import Order, gumbel


def sweeps(variables, z, rng, n, draw):
    """States after each of n sweeps; `draw(i, table, log_prior, state, rng)` draws variable i given the others."""
    z, out = list(z), []
    for _ in range(n):
        for i, (factors, log_prior) in enumerate(variables):
            z[i] = draw(i, factors(z), np.asarray(log_prior(z), dtype=float), z[i], rng)
        out.append(list(z))
    return np.array(out)


def exact(i, table, log_prior, state, rng):
    """The largest of the sums with Gumbel noise has the law of the conditional distribution (eq. 2)."""
    scores = [table[:, s].sum() + log_prior[s] + gumbel(rng) for s in range(len(log_prior))]
    return int(np.argmax(scores))


class Racing:
    """Algorithm 1 on the noisy states. Where races keep reading all factors, most draws are exact ones instead.

    A variable that has lost four races in a row is raced only where the number of its losses is a multiple of sixteen.
    """

    def __init__(self, plans, advantages, bound="normal", **known):
        self.plans, self.advantages = plans, advantages         # of each variable
        self.bound, self.known = bound, known                   # what is known of factors: low, high, still
        self.losses = [0] * len(plans)
        self.n_raced = self.n_left_out = 0

    def __call__(self, i, table, log_prior, state, rng):
        if self.losses[i] >= 4 and self.losses[i] % 16 != 0:
            self.losses[i] += 1
            self.n_left_out += 1
            return exact(i, table, log_prior, state, rng)
        noisy = [prior + gumbel(rng) for prior in log_prior]
        result = racing.race(table, *self.plans[i], bound=self.bound, pairwise=True, order=Order(len(table)),
                             rng=rng, offset=noisy, tails=True, advantage=self.advantages[i], **self.known)
        self.losses[i] = self.losses[i] + 1 if result.stopped_by == "exact" else 0
        self.n_raced += result.stopped_by == "bound"
        return result.best


class PoissonMinibatch:
    """Poisson-minibatch Gibbs for log-factors in [low, high]; `rate` is lambda of the paper."""

    def __init__(self, low, high, rate=None):
        self.low, self.most, self.rate = low, high - low, rate

    def __call__(self, i, table, log_prior, state, rng):
        n, n_states = table.shape
        total = n * self.most                                   # L
        rate = min(max(total**2, 1.0), max(n / 10, 1.0)) if self.rate is None else self.rate
        drawn = rng.integers(0, n, rng.poisson(rate + total))   # each factor with probability M / L = 1 / n
        uniforms = rng.random(len(drawn))
        energy = list(log_prior)
        for b, u in zip(drawn, uniforms, strict=True):
            phi = table[b] - self.low
            if u < (rate * self.most / total + phi[state]) / (rate * self.most / total + self.most):
                for v in range(n_states):
                    energy[v] += math.log(1.0 + total * phi[v] / (rate * self.most))
        return int(np.argmax([e + gumbel(rng) for e in energy]))
