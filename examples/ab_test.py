"""Is page B better than page A? Look at the experiment every hour, and stop when it is clear.

The dull way is a z-test at a number of visitors that was fixed beforehand. Who looks at it every day and
stops at the first p < 0.05 is wrong far more often than in 5 of 100 experiments. A confidence sequence for
the difference holds at all times, so the experiment may be looked at after every visitor.

The dull way wins where nobody looks before the end: a fixed number of visitors needs fewer of them for a
small effect.
"""

import argparse

import numpy as np
from scipy import stats

import fastrace as fr


def experiment(rng, lift, n_pairs=20_000):
    """Differences B - A of pairs of visitors: -1, 0 or 1."""
    return (rng.random(n_pairs) < 0.10 + lift).astype(float) - (rng.random(n_pairs) < 0.10)


def looks(differences, every=200):
    """Limits of the sequence and p-values of the z-test at each look."""
    sequence = fr.ConfidenceSequence("betting", support=(-1, 1), delta=0.05)
    rows = []
    for n in range(every, len(differences) + 1, every):
        sequence.update_many(differences[n - every : n])
        seen = differences[:n]
        z = seen.mean() / (seen.std() / np.sqrt(n))
        rows.append((n, *sequence.interval, 2 * stats.norm.sf(abs(z))))
    return np.array(rows)


def main(plot=None):
    rng = np.random.default_rng(4)
    null = [looks(experiment(rng, 0.0, 6000)) for _ in range(60)]
    alarms = [np.mean([(run[:, 1] > 0).any() or (run[:, 2] < 0).any() for run in null]),
              np.mean([(run[:, 3] < 0.05).any() for run in null])]
    print(f"no difference, 60 experiments, a look at every 200 pairs; called different, though 5 % was promised: "
          f"sequence {alarms[0]:.0%}, z-test at every look {alarms[1]:.0%}")
    run = looks(experiment(rng, 0.03))
    clear = run[run[:, 1] > 0]
    print(f"B better by 0.03: clear after {int(clear[0, 0])} pairs, interval {clear[0, 1]:.4f} to {clear[0, 2]:.4f}"
          if len(clear) else "B better by 0.03: not clear yet")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
        panel.fill_between(run[:, 0], run[:, 1], run[:, 2], alpha=0.3, label="95 % at all times")
        panel.axhline(0.0, color="k", lw=0.8)
        panel.axhline(0.03, color="C3", ls=":", label="true difference")
        panel.set(xlabel="pairs of visitors", ylabel="B - A", ylim=(-0.1, 0.15))
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
