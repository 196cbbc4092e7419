"""Which of 500 genes differ between two groups of patients, if no law of their values is assumed?

The dull way is a permutation test of each gene with 99,999 permutations, and Benjamini and Hochberg's
procedure on the p-values. Most genes are clear after some hundred permutations; the rest are few. A test that
stops when the decision of all permutations is clear spends its permutations on those.

The dull way wins where the p-values themselves are the answer, to three digits, and not the list of genes.
"""

import argparse

import numpy as np

import fastrace as fr


def groups(rng, n_genes=500, n_shifted=30):
    """Skewed values of 30 and 40 patients; the first genes are raised in the first group."""
    sick, well = rng.exponential(size=(30, n_genes)), rng.exponential(size=(40, n_genes))
    sick[:, :n_shifted] += 1.0
    return sick, well


def difference(x, y, axis):
    return x.mean(axis=axis) - y.mean(axis=axis)


def main(plot=None):
    data = groups(np.random.default_rng(1))
    result = fr.permutation_test(data, difference, alpha=0.05, rng=1, names=[f"gene {i}" for i in range(500)])
    print(result)
    found = np.flatnonzero(result.rejected)
    print(f"{found.size} genes found, {np.count_nonzero(found >= 30)} of them by mistake; "
          f"{result.n_read / (500 * result.n_resamples):.1%} of the permutations of all tests")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
        panel.scatter(result.estimate, result.n_permutations, c=np.where(result.rejected, "C1", "0.6"), s=12)
        panel.set(xscale="log", yscale="log", xlabel="estimated p-value", ylabel="permutations of the gene")
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
