"""Races over tables, beside one pass over all rows: compiled, and NumPy's."""

import os
import tempfile

import numpy as np

import fastrace as fr

SEED = 20160619
DELTA = 0.05


class PerRow:
    """10^6 x 10 float64, 10^5 rows of all arms read and compared: time a race, over ROWS a row."""

    params = [["random", "given"], [10_000, 100_000]]
    param_names = ["order", "rows"]
    n_rows, n_arms = 1_000_000, 10

    def setup(self, access, rows):
        values = np.random.default_rng(SEED).standard_normal((self.n_rows, self.n_arms))
        self.source = fr.sources.ArraySource(values)
        self.offset = np.zeros(self.n_arms)
        self.offset[0] = 0.5 * self.n_rows      # clear enough for the one look that is taken
        self.race = fr.FiniteRace(
            self.n_arms, self.n_rows, DELTA, "normal", first_look=rows, order=access, rng=1
        )._race

    def time_race(self, access, rows):
        self.race.begin(self.offset)
        self.race.run(self.source)

    def time_compiled_full_pass(self, access, rows):
        self.source.totals()

    def time_numpy_mean(self, access, rows):
        self.source.values.mean(axis=0).argmax()

    def track_rows(self, access, rows):
        self.time_race(access, rows)
        return int(self.race._pulls.max())


class Hopeless:
    """Equal arms: every row must be read. A race may cost at most a little more than the pass it ends in."""

    params = [["random", "given"], ["normal", "betting"], [0.0, 0.5]]
    param_names = ["order", "bound", "gap"]
    n_rows, n_arms = 1_000_000, 10

    def setup(self, access, bound, gap):
        values = np.random.default_rng(SEED).standard_normal((self.n_rows, self.n_arms))
        values -= values.mean(axis=0)
        self.source = fr.sources.ArraySource(values)
        self.offset = np.zeros(self.n_arms)
        self.offset[0] = gap * np.sqrt(self.n_rows)       # in standard errors of the mean of all rows
        options = {"order": access, "bound": bound, "support": (-6, 6), "scan_advantage": None}
        self.race = fr.FiniteRace(self.n_arms, self.n_rows, DELTA, rng=1, **options)._race

    def time_race(self, access, bound, gap):
        self.race.begin(self.offset)
        self.race.run(self.source)

    def time_compiled_full_pass(self, access, bound, gap):
        self.source.totals()

    def time_numpy_mean(self, access, bound, gap):
        self.source.values.mean(axis=0).argmax()

    def track_fraction_read(self, access, bound, gap):
        self.time_race(access, bound, gap)
        return float(self.race._pulls.mean() / self.n_rows)


class FiniteRace:
    """One call of `race`, by size and gap, beside the dull way."""

    params = ([10_000, 100_000], [0.01, 0.3], ["betting", "normal", "empirical-bernstein-serfling"])
    param_names = ["n_rows", "gap", "bound"]

    def setup(self, n_rows, gap, bound):
        self.values = np.random.default_rng(SEED).random((n_rows, 100))
        self.values[:, 0] += gap

    def time_race(self, n_rows, gap, bound):
        fr.race(self.values, DELTA, bound, support=(0, 1.5), rng=1)

    def time_numpy_mean(self, n_rows, gap, bound):
        self.values.mean(axis=0).argmax()

    def track_fraction_read(self, n_rows, gap, bound):
        return fr.race(self.values, DELTA, bound, support=(0, 1.5), rng=1).fraction_read


class FirstLook:
    """50 rows of a memory map: the same time whatever the number of rows (a sparse file, so it takes no disk)."""

    params = [100_000, 100_000_000]
    param_names = ["n_rows"]

    def setup(self, n_rows):
        handle, self.name = tempfile.mkstemp(suffix=".f32")
        os.close(handle)
        self.values = np.memmap(self.name, np.float32, "w+", shape=(n_rows, 2))
        self.offset = [0.0, 1e9]
        self.race = fr.FiniteRace(2, n_rows, DELTA, bound="hoeffding-serfling", support=(0, 1), rng=1)
        self.rng = np.random.default_rng(1)

    def teardown(self, n_rows):
        del self.values
        os.unlink(self.name)

    def time_race(self, n_rows):
        fr.race(self.values, DELTA, "hoeffding-serfling", support=(0, 1), offset=self.offset, rng=self.rng)

    def time_race_set_up_once(self, n_rows):
        core = self.race._race
        core.begin(np.array(self.offset))
        core.run(fr.sources.ArraySource(self.values))

    def track_rows_read(self, n_rows):
        return int(fr.race(self.values, DELTA, "hoeffding-serfling", support=(0, 1), offset=self.offset).pulls.max())
