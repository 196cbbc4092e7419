"""Which 5 of 100 designs are best, if each test of a design is noisy and costs money?

The dull way tests each design equally often, so often that Hoeffding's inequality separates all of them to
`epsilon`. `select_best` spends tests where the fifth and sixth best are still in doubt. Both promise, with
probability 0.95, five designs of which none is worse than the fifth best by more than `epsilon`.

The dull way wins where tests must all be ordered before the first result comes back.
"""

import argparse
import math

import numpy as np

import fastrace as fr


def main(plot=None):
    rng = np.random.default_rng(3)
    n_arms, n_best, epsilon, delta = 100, 5, 0.1, 0.05
    means = np.sort(rng.beta(2, 4, n_arms))

    def test(arms, counts):                     # counts[k] results of design arms[k], one after the other
        return rng.random(counts.sum()) < np.repeat(means[arms], counts)

    result = fr.select_best(test, n_arms, n_best, epsilon, delta, support=(0, 1), rng=1)
    chosen = np.sort(result.best)
    equal = n_arms * math.ceil(2 / epsilon**2 * math.log(n_arms / delta))
    cutoff = means[-n_best] - epsilon
    print(f"designs {chosen.tolist()}; the worst of them has mean {means[chosen].min():.3f}, "
          f"at least {cutoff:.3f} was asked for")
    print(f"tests by select_best:  {result.n_read:8d}, at most {result.pulls.max()} of one design")
    print(f"tests, equally shared: {equal:8d}, {equal // n_arms} of each design")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
        panel.scatter(means, result.pulls, s=12)
        panel.axhline(equal / n_arms, color="k", ls=":", label="equally shared")
        panel.axvline((means[-n_best] + means[-n_best - 1]) / 2, color="C3", label="between the fifth and the sixth")
        panel.set(xlabel="true mean of the design", ylabel="tests", yscale="log")
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
