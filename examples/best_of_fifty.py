"""Which of 50 columns of a table has the largest mean? Read as few rows as the answer needs.

The dull way reads the whole table: `table.mean(axis=0).argmax()`. A race reads rows at random, drops columns
that can no longer win, and stops when one is left. With probability 0.95 it is the column with the largest
mean of all rows.

The dull way wins where the table is small: a race of a thousand rows costs more than their mean. Where the
two best columns are nearly equal the race has to read all rows too, and then saves nothing either.
"""

import argparse
import time

import numpy as np

import fastrace as fr


def main(plot=None):
    rng = np.random.default_rng(2)
    for n_rows, gap in ((400_000, 0.1), (400_000, 0.03), (400_000, 0.003), (1000, 0.1)):
        table = rng.random((n_rows, 50), dtype=np.float32)
        table[:, 17] += gap
        start = time.perf_counter()
        result = fr.race(table, delta=0.05, support=(0, 1.1), rng=1)
        middle = time.perf_counter()
        dull = int(table.mean(axis=0).argmax())
        end = time.perf_counter()
        print(f"{n_rows:6d} rows, gap {gap:.3f}: race says {result.best:2d}, read {result.fraction_read:7.2%} in "
              f"{1e3 * (middle - start):6.2f} ms; all rows say {dull:2d} in {1e3 * (end - middle):6.2f} ms")
        if plot and gap == 0.03:
            result.plot("means").figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
