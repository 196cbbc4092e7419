"""How many simulations until a mean is known to 5 %? Stop as soon as the rewards seen say so.

The dull way fixes the number of simulations before it starts. Hoeffding's inequality gives a number that
suffices for every distribution on [0, 1], if somebody knows beforehand how small the mean may be. The rule
`TargetOddsStop` needs no such knowledge, and takes fewer samples because it learns the variance too.

The dull way wins where the mean is near 1/2, rewards are 0 or 1, and one sample costs nothing.
"""

import argparse
import math

import numpy as np

import fastrace as fr


def main(plot=None):
    rng = np.random.default_rng(1)
    epsilon, delta, smallest_mean = 0.05, 0.05, 0.15

    rule = fr.TargetOddsStop(epsilon=epsilon, delta=delta, support=(0, 1))
    path = []
    while not rule.stopped:
        rule.update(rng.beta(2, 8))                 # one simulation: a share of failed parts, say
        path.append((rule.n_samples, *rule.interval))
    hoeffding = math.ceil(math.log(2 / delta) / (2 * (epsilon * smallest_mean) ** 2))

    print(f"estimate {rule.estimate:.4f}, true mean 0.2000, allowed error {epsilon:.0%}")
    print(f"TargetOddsStop:                                {rule.n_samples:6d} simulations")
    print(f"fixed number, if the mean is at least {smallest_mean}:    {hoeffding:6d} simulations")

    if plot:
        from matplotlib import pyplot

        n, low, high = np.array(path[20:]).T
        figure, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
        panel.fill_between(n, low, high, alpha=0.3, label=f"interval that holds at all times, {1 - delta:.0%}")
        panel.axhline(0.2, color="k", ls=":", label="true mean")
        panel.axvline(rule.n_samples, color="C3", label="stopped")
        panel.set(xlabel="simulations", ylabel="mean", ylim=(0.1, 0.35))
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
