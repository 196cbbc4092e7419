"""Paid evaluations one by one and many at once: 12 models on 50,000 prompts, correlated .8, the best ahead by .005;
pulls of streams by LUCB, many and few of them; and rounds of streams by BettingRace.

    python bench/benchmarks/in_flight.py            # rounds, 20 races of each case: the figures of docs/selection.md

Answers come after times of an exponential law, by the clock of the simulation.
"""

import asyncio
import heapq

import numpy as np

import fastrace as fr

MODELS, PROMPTS, CORRELATION, SD, GAP = 12, 50_000, 0.8, 0.1, 0.005
SEEDS = 3


def table(seed, models=MODELS, correlation=CORRELATION, gap=GAP, sd=SD):
    rng = np.random.default_rng(seed)
    scores = correlation**0.5 * rng.standard_normal((PROMPTS, 1))
    scores = scores + (1 - correlation) ** 0.5 * rng.standard_normal((PROMPTS, models))
    return np.clip(0.5 + gap * (np.arange(models) == 0) + sd * scores, 0.0, 1.0)


def one_at_a_time(values, seed):
    race = fr.FiniteRace(MODELS, PROMPTS, support=(0, 1), rng=seed)
    while not race.done:
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
    return race.result()


async def simulated(value, seed, concurrency, *sizes, **options):
    """The answer with so many calls at once, how many there were, and the time on a clock that leaps to the next."""
    rng, due = np.random.default_rng([seed, 1]), []
    calls, now = 0, 0.0

    async def answer(arm, row):
        nonlocal calls
        calls += 1
        ready = asyncio.get_running_loop().create_future()
        heapq.heappush(due, (now + rng.exponential(), calls, ready))
        await ready
        return value(arm, row)

    race = asyncio.ensure_future(fr.race_async(answer, *sizes, concurrency=concurrency, **options))
    while not race.done():
        for _ in range(3):                      # let workers take the last answer and ask for the next
            await asyncio.sleep(0)
        if due and not race.done():
            now, _, ready = heapq.heappop(due)
            if not ready.done():                # nor cancelled
                ready.set_result(None)
    return race.result(), calls, now


def on_table(values, seed, concurrency):
    n_rows, n_arms = values.shape
    return simulated(lambda arm, row: values[row, arm], seed, concurrency, n_arms, n_rows, support=(0, 1), rng=seed)


class InFlight:
    params = [8, 64, 256]
    param_names = ["concurrency"]
    timeout = 600

    def setup(self, concurrency):
        self.values = table(0)

    def time_race_async(self, concurrency):
        asyncio.run(on_table(self.values, 0, concurrency))

    def time_finite_race(self, concurrency):
        one_at_a_time(self.values, 0)

    def both(self, concurrency):
        """Evaluations one at a time, with so many at once, and the time of these over that of no waiting at all."""
        for seed in range(SEEDS):
            values = table(seed)
            alone = one_at_a_time(values, seed)
            result, calls, now = asyncio.run(on_table(values, seed, concurrency))
            assert result.best == alone.best and result.n_read == alone.n_read
            yield alone.n_read, calls, now * concurrency / calls

    def track_more_evaluations(self, concurrency):
        alone, paid, _ = np.transpose(list(self.both(concurrency)))
        return float(paid.sum() / alone.sum() - 1.0)

    def track_time_over_no_waiting(self, concurrency):
        return float(np.mean([waiting for _, _, waiting in self.both(concurrency)]))


class PullsInFlight:
    """LUCB at delta .1 on rewards of 0 and 1. What it asks for ahead is dear where few pulls decide."""

    cases = {"one .55 amid nine of .45": [0.55] + [0.45] * 9, ".5 .45 .43 .4": [0.5, 0.45, 0.43, 0.4],
             "few pulls: .9 .5 .5": [0.9, 0.5, 0.5]}
    params = [list(cases), [1, 8, 64]]
    param_names = ["means", "concurrency"]
    timeout = 600

    def both(self, means, concurrency):
        """Pulls one at a time, with so many at once, and the time of these over that of no waiting at all."""
        for seed in range(SEEDS):
            truth = np.array(self.cases[means])
            values = np.random.default_rng(seed).random((40_000, truth.size)) < truth
            alone = fr.LUCB(truth.size, 1, delta=0.1).run(fr.pulls.RecordedPulls(values))
            result, calls, now = asyncio.run(simulated(
                lambda arm, pull, values=values: values[pull, arm], seed, concurrency,
                race=fr.LUCB(truth.size, 1, delta=0.1)))
            assert result.best == alone.best and result.n_read == alone.n_read
            yield alone.n_read, calls, now * concurrency / calls

    def track_evaluations_over_one_at_a_time(self, means, concurrency):
        alone, paid, _ = np.transpose(list(self.both(means, concurrency)))
        return float(paid.sum() / alone.sum())

    def track_time_over_no_waiting(self, means, concurrency):
        return float(np.mean([waiting for _, _, waiting in self.both(means, concurrency)]))


class RoundsInFlight:
    """BettingRace on streams whose arms share a part of their variance."""

    cases = {"12 arms, .8 shared, one .0125 ahead": (12, 0.8, 0.0125, 0.2),
             "4 arms, .5 shared, one .03 ahead": (4, 0.5, 0.03, 0.2)}
    params = [list(cases), [8, 64]]
    param_names = ["arms", "concurrency"]
    timeout = 600

    def both(self, arms, concurrency, seeds=SEEDS):
        """Rewards one at a time, with so many at once, and the time of these over that of no waiting at all."""
        for seed in range(seeds):
            values = table(seed, *self.cases[arms])
            n_arms = values.shape[1]
            alone = fr.BettingRace(n_arms, support=(0, 1)).run(values, order="given")
            result, calls, now = asyncio.run(simulated(
                lambda arm, turn, values=values: values[turn, arm], seed, concurrency,
                race=fr.BettingRace(n_arms, support=(0, 1))))
            assert result.best == alone.best and result.n_read == alone.n_read
            yield alone.n_read, calls, now * concurrency / calls

    def track_evaluations_over_one_at_a_time(self, arms, concurrency):
        alone, paid, _ = np.transpose(list(self.both(arms, concurrency)))
        return float(paid.sum() / alone.sum())


class Planned:
    """Rewards by `plan_race` beside those of races on tables."""

    races = 60
    timeout = 600

    def track_mean_planned(self):
        return fr.plan_race(GAP, SD, PROMPTS, MODELS, CORRELATION, support=(0, 1), n_races=self.races, rng=1).mean

    def track_mean_on_tables(self):
        return float(np.mean([one_at_a_time(table(seed), seed).n_read for seed in range(self.races)]))


def main():
    for arms in RoundsInFlight.cases:
        alone, paid, waiting = np.transpose(list(RoundsInFlight().both(arms, 64, seeds=20)))
        print(f"{arms}: {alone.mean():,.0f} rewards one at a time, {paid.sum() / alone.sum():.3f} times as many with "
              f"64 at once, in {waiting.mean():.2f} times the time of no waiting", flush=True)


if __name__ == "__main__":
    main()
