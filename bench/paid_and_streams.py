"""Goals of races that cost money, of observed streams and of their rules, beside what is measured now; for README.md.

    python bench/paid_and_streams.py [words of the lines]

Each experiment is one of `benchmarks/` or of the scripts beside this file, at a size at which all of them together take
some twenty minutes of one core; their own tables have more runs, and the laws one by one. A goal is missed where the
figure is above it, whatever its error.
"""

import math
import sys
import time

import common_rounds
import fixed_budgets
import heavy_tails
import killed
import numpy as np
import pairs
import permutation_figure
from benchmarks import comparison, in_flight, lucb, paid, permutation, proxies, sequences, stream_racing

import fastrace as fr

DELTA = 0.05
RUNS = {"common": 20, "pairs": 40, "budgets": 2000, "widths": 100, "portfolio": 5, "stops": 200, "equal arms": 100,
        "unequal arms": 1000, "peeking": 1000, "tails": 400}
TIMES = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
OWN = "killed_by_a_signal", "permutations"      # whose scripts have a quick pass of their own
LINES = {}      # what is measured, by name: yields work, goal, figure, and whether that is within the goal, or None


def line(measure):
    LINES[measure.__name__] = measure
    return measure


def listed(values, form="{:.2f}"):
    return ", ".join(form.format(value) for value in values)


@line
def near_ties():
    for name in paid.NEAR_TIES:
        share, wrong = paid.near_ties(name, 0.01)
        yield (f"six variants of 20,000 prompts, epsilon one point: {name}", "10 % of the prompts read, 5 % wrong",
               f"{100 * share.mean():.1f} % (most {100 * share.max():.1f} %), {wrong} wrong of {paid.SEEDS}",
               share.mean() <= 0.1 and wrong <= DELTA * paid.SEEDS)


@line
def twelve_models():
    first = next(iter(paid.INSTANCES))
    for door in ("race", "FiniteRace", paid.IN_FLIGHT):
        taken, wrong = paid.runs(door, first)
        yield (f"12 models, 50,000 prompts, correlated .8: `{door}`", "mean 31,000 evaluations, none above 60,000",
               f"{taken.mean():,.0f}, most {taken.max():,} in {taken.size} runs, {wrong} wrong",
               taken.mean() <= 31_000 and taken.max() <= 60_000)
    flight, alone = (paid.runs(door, first)[0] for door in (paid.IN_FLIGHT, "FiniteRace"))
    more = flight.sum() / alone.sum() - 1.0
    yield "the same with 64 in flight, over one at a time", "10 % more", f"{100 * more:.1f} % more", more <= 0.1


@line
def killed_by_a_signal():
    again, alike = 0, []
    for after in killed.AFTER:
        whole, found, counts = killed.killed(after)
        alike.append(killed.same(whole, found))
        again += counts["answered before"]
    yield (f"the same, killed after {listed(killed.AFTER, '{:,}')} evaluations, gone on from the journal",
           "the same answer, no evaluation twice",
           f"the same answer in {sum(alike)} of {len(alike)}, {again} evaluations twice", all(alike) and not again)


@line
def planned():
    case = in_flight.Planned()
    guess, truth = case.track_mean_planned(), case.track_mean_on_tables()
    yield (f"the same, `plan_race` beside {case.races} tables", "", f"{guess:,.0f} planned, {truth:,.0f} taken", None)


@line
def common():
    case, runs = stream_racing.SameRows(), RUNS["common"]
    for gap in (0.02, 0.005):
        rules = "FiniteRace", "differences", "LUCB, paired"
        taken = [np.mean([case.pulls(case.table(gap, 0.8, np.random.default_rng([20201204, k])), rule, k)
                          for k in range(runs)]) for rule in rules]
        for name, mean in zip(("BettingRace", "LUCB(paired=True)"), taken[1:], strict=True):
            yield (f"12 models, steps of {gap}, correlated .8, rounds: `{name}` over `FiniteRace`", "1.20",
                   f"{mean / taken[0]:.2f} of {taken[0]:,.0f}", mean <= 1.2 * taken[0])


@line
def best_arm():
    goals = dict(zip(lucb.Distance.instances, (6_825, 9_407, 5_228, 41_959), strict=True))
    for name, means in lucb.Distance.instances.items():
        alone = common_rounds.pulls(name, "LUCB")
        least = lucb.characteristic_time(means) * math.log(1 / DELTA)
        yield (f"`LUCB`, {name} arms, pulls until the best is known", f"{goals[name]:,}",
               f"{alone.mean():,.0f} +- {alone.std() / math.sqrt(alone.size):,.0f}; T* log(1 / delta) is {least:,.0f}",
               alone.mean() <= goals[name])
        before = common_rounds.pulls(name, common_rounds.BY_INTERVALS)
        for rule in ("LUCB, paired", "BettingRace"):
            for over, whose in ((before, "LUCB(rule=\"intervals\")"), (alone, "LUCB")):
                ratio = common_rounds.pulls(name, rule) / over.mean()
                yield (f"the same, independent: {rule} over `{whose}`, {over.mean():,.0f} pulls", "1.00",
                       f"{ratio.mean():.2f} +- {ratio.std() / math.sqrt(ratio.size):.2f}", ratio.mean() <= 1.0)


@line
def by_pairs():
    found = [pairs.compared(name, RUNS["pairs"]) for name in pairs.GOAL]
    ratios = [ratio for _, _, ratio, _, _ in found]
    yield ("`LUCB` by pairs over intervals, the five of `pairs.GOAL`", ".75 on three of them",
           f"{listed(ratios)}; {sum(wrong[1] for *_, wrong in found):.0f} wrong of {5 * RUNS['pairs']}",
           sum(ratio <= 0.75 for ratio in ratios) >= 3)
    ratios = [pairs.compared(name, RUNS["pairs"])[2] for name in pairs.TWENTY]
    yield ("the same, twenty others, chosen before", "1.05 on each", f"{min(ratios):.2f} to {max(ratios):.2f}",
           max(ratios) <= 1.05)
    mean = pairs.compared("10, sd .05, gap .1", RUNS["pairs"])[1]
    yield "`LUCB`, low variance: 10 arms, sd .05, gap .1", "1,000 pulls", f"{mean:,.0f}", mean <= 1000


@line
def budgets():
    trials = RUNS["budgets"]
    made = [fixed_budgets.missed(name, share, trials)[1] for name in fixed_budgets.INSTANCES
            for share in fixed_budgets.SHARES]
    rates = np.array([found.mean(axis=0) for found in made])
    for name, other in (("sequential halving", 3), ("KL-LUCB", 1)):
        above = np.array([fixed_budgets.chance(found, 0, other) < 0.05 for found in made])
        worst = (f"; {listed(100 * rates[above, 0], '{:.1f}')} % wrong beside "
                 f"{listed(100 * rates[above, other], '{:.1f}')} %" if above.any() else "")
        yield (f"`LUCB` with a budget beside {name}, {trials} runs a cell on the same rewards",
               "no more wrong in 10 of 10 cells, but by chance (p > .05)", f"{(~above).sum()} of 10{worst}",
               not above.any())


@line
def unbounded():
    case = lucb.NormalDistance()
    for given in ("sub_gaussian", "symmetric"):
        times = [case.track_pulls_over_lower_bound(name, given) for name in case.instances]
        yield (f"`LUCB` of normal arms, `{given}`, over T* log(1 / delta), five instances",
               "below the 8 to 49 of a support of +-8", f"{min(times):.1f} to {max(times):.1f}", max(times) < 8)


@line
def intervals():
    laws = list(sequences.LAWS)
    ratio = {}
    for law in laws:
        width = {kind: sequences.widths(kind, law, TIMES, RUNS["widths"]) for kind in sequences.kinds(law)}
        ratio[law] = width.pop("universal") / np.min(list(width.values()), axis=0)
    for what, some in (("beta(100, 300), beta(10, 30) and uniform", laws[:3]), ("three laws more", laws[3:])):
        worst = max(some, key=lambda law: ratio[law].max())
        yield (f"`universal` over the narrowest other kind, 15 times from 2 to 100,000: {what}", "1.03",
               f"at most {ratio[worst].max():.2f}, {worst} at {TIMES[ratio[worst].argmax()]:,}; above 1.03 at "
               f"{sum((ratio[law] > 1.03).sum() for law in some)} of {len(TIMES) * len(some)}",
               max(ratio[law].max() for law in some) <= 1.03)
    times = (10, 30, 100, 300)
    for law in laws[:3]:
        whole = np.median([sequences.portfolio_width(sequences.LAWS[law](np.random.default_rng(child), times[-1]),
                                                     -math.log(DELTA), times)
                           for child in np.random.SeedSequence(20080705).spawn(RUNS["portfolio"])], axis=0)
        found = sequences.widths("universal", law, times, RUNS["portfolio"]) / whole
        yield (f"`universal` over a Beta(1/2, 1/2) portfolio at t = 10, 30, 100, 300: {law}", "1.03", listed(found),
               found.max() <= 1.03)


@line
def speed():
    for count in (1000, 10_000, 100_000):
        least = []
        for draw in sequences.LAWS.values():
            x, took = draw(np.random.default_rng(20080705), count), []
            for _ in range(max(5, 100_000 // count)):
                start = time.process_time()
                fr.ConfidenceSequence("universal").update_many(x)
                took.append(time.process_time() - start)
            least.append(1e9 * min(took) / count)
        yield (f"`universal`, ns a reward over the first {count:,}: {', '.join(sequences.LAWS)}", "100",
               listed(least, "{:.0f}"), max(least) <= 100)


@line
def stops():
    case = sequences.Samples()
    case.runs, case.delta = RUNS["stops"], DELTA
    case.setup("beta(10, 30)")
    ours, before = case.track_target_odds_stop(None), case.track_target_eb_stop(None)
    yield ("rewards to a relative accuracy of .1, beta(10, 30): `TargetOddsStop`", "110, `TargetEBStop` taking 156",
           f"{ours:.1f}, `TargetEBStop` {before:.1f}", ours <= 110)


@line
def events():
    for kind in comparison.SUPPORT:
        took = comparison.seconds("time_observe_many", kind)
        yield (f"A/B of four unequal arms, 400,000 events, {kind}", ".2 CPU s", f"{took:.2f}", took <= 0.2)
    wrong, _ = comparison.errors(RUNS["equal arms"])
    for kind in comparison.SUPPORT:
        yield (f"four equal arms, any called different at any look, {kind}, beside z-tests at 30 looks", ".05",
               f"{wrong[kind]:.2f} of 100 experiments; z-tests {wrong['z-tests']:.2f}", wrong[kind] <= DELTA)
    by_z = comparison.missed_by_z(RUNS["unequal arms"])
    for kind, promised in (("exact", DELTA), ("asymptotic", 1.2 * DELTA)):
        rate, looks = comparison.missed(kind, RUNS["unequal arms"])
        yield (f"four unequal arms, any of six differences missed at any look, {kind}, beside z at 30 looks",
               f"{promised:.2f}".lstrip("0") + " (1.2 delta)" * (kind != "exact"),
               f"{rate:.3f} of {RUNS['unequal arms']:,} experiments, {looks} looks; by z {by_z:.3f}", rate <= promised)


@line
def peeking():
    light = "normal", "uniform", "Student's t, 5 df", "gamma 4 (timings)", "exponential", "Bernoulli(0.1)"
    missed = [sequences.peeked(law, (200,), RUNS["peeking"])[0] for law in light]
    yield ("asymptotic intervals, missed at any look from the start on, six light tails", ".06 (1.2 delta)",
           f"{min(missed):.3f} to {max(missed):.3f}", max(missed) <= 1.2 * DELTA)
    for law in ("Bernoulli(0.02)", "Bernoulli(0.005)", "0.5 % buyers, sd 1"):
        (_, wrong, silent), _ = heavy_tails.intervals_missed(heavy_tails.sequence, law, RUNS["tails"], 10_100)
        yield (f"the same, {law}, and without a warning", ".06 without a warning", f"{wrong:.3f}, without {silent:.3f}",
               silent <= 1.2 * DELTA)


@line
def scores():
    found = {r: [proxies.runs(name, r) for name in proxies.TABLES] for r in (0.0, 0.5, 0.8, 0.95)}
    useless = [told["proxy"] for told in found[0.0]]
    yield ("`race` with a useless proxy over one without, six kinds of tables", "1.05", listed(useless),
           max(useless) <= 1.05)
    for r in (0.5, 0.8, 0.95):
        share, exact = ([told[way] for told in found[r]] for way in ("proxy", "exact"))
        goals = [1 - told["r"] ** 2 for told in found[r]]
        within = [mean <= goal + 0.05 for mean, goal in zip(share, goals, strict=True)]
        yield (f"the same with one of correlation {r}", f"1 - r^2: {listed(goals)}",
               f"{listed(share)}, within .05 in {sum(within)} of {len(within)}; the best coefficient {listed(exact)}",
               all(within))
    for law in proxies.MEANS:
        useless = [proxies.means(law, epsilon)[1][0.0] for epsilon in (0.1, 0.05, 0.02)]
        yield (f"`estimate_mean` with a useless proxy, {law}, accuracy .1, .05, .02", "1.05", listed(useless),
               max(useless) <= 1.05)


@line
def permutations():
    found = permutation_figure.one()
    near = [told for told in found if 0.033 < told["p by all"] < 0.07]
    far = [told for told in found if told not in near]
    for where, some in (("at most .033 or at least .07", far), ("between", near)):
        share = [told["mean"] / permutation.N for told in some]
        wrong = sum(told["other decisions of 400"] for told in some)
        yield (f"decisions of 99,999 permutations at level .05, p by all {where}", "5 % of them",
               f"{100 * min(share):.2f} to {100 * max(share):.2f} %; {wrong} other decisions", max(share) <= 0.05)
    mean = permutation_figure.null(found)
    yield "the same where p is uniform, on average", "5 % of them", f"{100 * mean:.2f} %", mean <= 0.05
    for shift in permutation.ManyHypotheses.params[0]:
        case = permutation.ManyHypotheses()
        case.setup(shift)
        share, differ = case.track_share_of_permutations(shift), case.track_decisions_that_differ(shift)
        yield (f"1000 hypotheses, 50 of them shifted by {shift}", "5 % of them",
               f"{100 * share:.2f} %; {differ} other decisions", share <= 0.05)


def quick():
    """Each line at its smallest size, but for those in `OWN`."""
    RUNS.update(dict.fromkeys(RUNS, 1), peeking=100)
    globals()["TIMES"] = (2, 5, 10, 20)
    paid.SEEDS = proxies.SEEDS = in_flight.Planned.races = lucb.NormalDistance.runs = 1
    common_rounds.RUNS = dict.fromkeys(common_rounds.RUNS, 1)
    for name, measure in LINES.items():
        if name not in OWN:
            start = time.perf_counter()
            found = list(measure())
            assert found and all(len(told) == 4 and told[3] in (None, True, False) for told in found)
            print(f"paid_and_streams.{name}: {time.perf_counter() - start:.1f} s", flush=True)


def main():
    print("| work | at most | measured | |\n|---|---|---|---|")
    for name, measure in LINES.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        for work, goal, figure, within in measure():
            print(f"| {work} | {goal} | {figure} | {'' if within is None else 'reached' if within else '**MISSED**'} |",
                  flush=True)


if __name__ == "__main__":
    main()
