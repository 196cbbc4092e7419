"""Varying intercepts over a memory map of 10^7 rows, beside the same over 2 x 10^5: set-up, memory, effective draws.

python bench/memory_map.py [ROWS[:GROUPS[:sorted]] ...] writes a float32 table to a temporary folder, 320 MB for 10^7
rows, and deletes it. There are 50 groups by default; rows of a "sorted" table stand by group. Each table runs in a
process of its own. "MB more" is the most that it holds beside the map and the libraries at the ends of these stages:
outcomes and codes of groups, bounds of rows, chains. Seconds are those of the CPU; "expand s" are those of `compress`,
which is made last, by itself.

Passes over the map of 10^7 rows, as tests/mcmc/test_mcmc_passes.py counts them: 1 by `GLM` and 1 by
`SurrogateMetropolis`, or by `compress`; over 10^6 rows in 5,000 groups as many. Before its pass `GLM` takes 2 x 10^5 of
the rows into memory, in runs of 256, or shorter ones where rows stand by group.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from fastrace import mcmc

SLOPES, GROUPS, AT_ONCE = 7, 50, 500_000


def write(path, n_rows, n_groups=GROUPS, by_group=False):
    """A table of an intercept and slopes, the outcomes and the groups, made piece by piece."""
    rng = np.random.default_rng(20161122)
    table = np.lib.format.open_memmap(path / "X.npy", "w+", np.float32, (n_rows, SLOPES + 1))
    share = rng.dirichlet(np.full(n_groups, 0.5))
    theta, effects = 0.5 * rng.standard_normal(SLOPES + 1), 0.6 * rng.standard_normal(n_groups)
    y, group = np.empty(n_rows, dtype=bool), np.empty(n_rows, dtype=np.int32)
    order = np.sort(rng.choice(n_groups, n_rows, p=share)) if by_group else None
    for first in range(0, n_rows, AT_ONCE):
        part = slice(first, min(first + AT_ONCE, n_rows))
        x = rng.standard_normal((part.stop - first, SLOPES + 1), dtype=np.float32)
        x[:, 0] = 1.0
        group[part] = rng.choice(n_groups, len(x), p=share) if order is None else order[part]
        y[part] = rng.random(len(x)) < 1.0 / (1.0 + np.exp(-x @ theta - effects[group[part]]))
        table[part] = x
    np.save(path / "y.npy", y)
    np.save(path / "group.npy", group)


def resident(kind):
    """Megabytes of this process: "RssAnon" leaves out what is mapped from files."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) / 1024.0
    return float("nan")


def measure(folder, table):
    path, before = pathlib.Path(folder), resident("RssAnon")
    X = np.load(path / "X.npy", mmap_mode="r")
    y, group = np.load(path / "y.npy"), np.load(path / "group.npy")
    start = time.process_time()
    model = mcmc.GLM(X, y, groups={"group": group})
    made = time.process_time()
    held = [resident("RssAnon")]
    kernel = mcmc.SurrogateMetropolis(model)
    ready = time.process_time()
    held.append(resident("RssAnon"))
    trace = mcmc.sample(kernel, n_draws=4000, n_chains=2, rng=1, threads=1)
    drawn = time.process_time()
    held.append(resident("RssAnon"))
    least = trace.ess().min()
    again = time.process_time()
    mcmc.compress(model)
    expanded = time.process_time()
    rate, rows = least / (drawn - ready), trace.rows.mean()
    print(f"{table:>19} {made - start:7.2f} {ready - made:8.2f} {drawn - ready:8.2f} {rate:9.1f} {rows:9.1f} "
          f"{max(held) - before:8.0f} {expanded - again:8.2f} {trace.rhat().max():6.3f}", flush=True)


def main(tables):
    print(f"{'rows and groups':>19} {'model s':>7} {'kernel s':>8} {'draws s':>8} {'ESS/s':>9} {'rows/step':>9} "
          f"{'MB more':>8} {'expand s':>8}  R-hat", flush=True)
    for table in tables:
        rows, groups, by_group = (*table.split(":"), "", "")[:3]
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder), int(float(rows)), int(groups or GROUPS), by_group == "sorted")
            subprocess.run([sys.executable, __file__, "measure", folder, table], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(*sys.argv[2:])
    else:
        main(sys.argv[1:] or ["2e5", "1e7"])
