"""One draw of the order of an ARCH model, as in `fastrace demo`: raced, exact compiled, exact with NumPy."""

import numpy as np

from fastrace import DiscreteSampler
from fastrace.demo import ORDERS, OrderPosterior, returns_of_oil


class ArchOrder:
    """Cost of the draw given new parameters, those of a few hundred steps in turn."""

    def setup(self):
        rng = np.random.default_rng(20160619)
        returns = returns_of_oil()
        self.posterior = OrderPosterior(returns, ORDERS, rng)
        self.sampler = DiscreteSampler(self.posterior.raced, delta=0.05, rng=rng)
        self.steps = [self.posterior.draw(rng) for _ in range(256)]
        self.step = 0
        squares, most = returns**2, max(ORDERS)
        self.lags = np.array([np.ones(returns.size - most)]
                             + [squares[most - i : returns.size - i] for i in range(1, most + 1)])
        self.squares = squares[most:]

    def next(self):
        self.step = (self.step + 1) % len(self.steps)
        return self.steps[self.step]

    def time_raced(self):
        self.posterior.set(*self.next())
        self.sampler.draw()

    def time_exact(self):
        self.posterior.set(*self.next())
        self.posterior.plain.totals().argmax()

    def time_exact_numpy(self):
        parameters, log_prior = self.next()
        nu = parameters[:, -1:]
        variance = parameters[:, :-1] @ self.lags
        far = nu * variance + self.squares
        np.log(variance, out=variance)
        np.log(far, out=far)
        (0.5 * nu[:, 0] * variance.sum(axis=1) - 0.5 * (nu[:, 0] + 1) * far.sum(axis=1) + log_prior).argmax()

    def track_fraction_read(self):
        for _ in self.steps:
            self.posterior.set(*self.next())
            self.sampler.draw()
        return self.sampler.stats.fraction_read
