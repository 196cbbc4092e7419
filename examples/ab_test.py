"""Is page B better than page A? Look at the experiment every hour, and stop when it is clear.

The dull way is a z-test at a number of visitors that was fixed beforehand. Who looks at it every day and
stops at the first p < 0.05 is wrong far more often than in 5 of 100 experiments. The intervals of a
`Comparison` hold at all times, so the experiment may be looked at after every visitor, and the arms may
have any number of visitors. See docs/ab_tests.md for what to read off them.

The dull way wins where nobody looks before the end: a fixed number of visitors needs fewer of them for a
small effect.
"""

import argparse

import numpy as np
from scipy import stats

import fastrace as fr


def experiment(rng, lift, n_visitors):
    """Which page each visitor saw, three times A for each B, and whether he bought."""
    page = rng.choice(["A", "B"], size=n_visitors, p=[0.75, 0.25])
    return page, rng.random(n_visitors) < np.where(page == "B", 0.10 + lift, 0.10)


def z_test_ever(page, bought, looks):
    """Whether a z-test at level 0.05 calls the pages different at any look."""
    for n in looks:
        a, b = bought[:n][page[:n] == "A"], bought[:n][page[:n] == "B"]
        error = np.sqrt(a.var() / max(a.size, 1) + b.var() / max(b.size, 1))
        if error > 0 and 2 * stats.norm.sf(abs(b.mean() - a.mean()) / error) < 0.05:
            return True
    return False


def main(plot=None):
    rng = np.random.default_rng(4)
    wrong = np.zeros(2)
    for _ in range(60):
        page, bought = experiment(rng, 0.0, 12_000)
        test = fr.Comparison(["A", "B"], support=(0, 1))
        test.observe_many(page, bought)
        past = test.history
        wrong += [(past["difference_lower"] > 0).any() or (past["difference_upper"] < 0).any(),
                  z_test_ever(page, bought, range(400, 12_001, 400))]
    print(f"no difference, 60 experiments, 30 looks; called different, though 5 % was promised: "
          f"comparison {wrong[0] / 60:.0%}, z-test {wrong[1] / 60:.0%}")

    test = fr.Comparison(["A", "B"], support=(0, 1))
    page, bought = experiment(rng, 0.03, 60_000)
    for start in range(0, 60_000, 500):                     # every hour
        test.observe_many(page[start : start + 500], bought[start : start + 500])
        if test.result().verdict[0] != "not known yet":
            break
    print(test.result())

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
        test.plot("history", panel)
        panel.axhline(0.03, color="k", ls=":", label="true difference")
        panel.set(ylim=(-0.1, 0.15))
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
