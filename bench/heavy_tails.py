"""How often asymptotic answers are wrong, and what they cost, on laws with light and with long tails.

    python bench/heavy_tails.py [trials] [words of the cases]

"wrong" counts runs that told equal arms apart, or that lost a best arm; "silent" those of them without a warning.
"""

import sys

import numpy as np

import fastrace as fr

LAWS = {
    "normal": lambda rng, size: rng.normal(size=size),
    "uniform": lambda rng, size: rng.random(size),
    "t5": lambda rng, size: rng.standard_t(5, size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "lognormal": lambda rng, size: rng.lognormal(size=size),
    "-lognormal": lambda rng, size: -rng.lognormal(size=size),
}


def constant(value):
    return lambda rng, size: np.full(size, value)


def events(p, scale=1.0):
    return lambda rng, size: scale * (rng.random(size) < p)


def shifted(law, by):
    return lambda rng, size: LAWS[law](rng, size) + by


def scaled(law, by):
    return lambda rng, size: LAWS[law](rng, size) * by


def near(value, spread):
    return lambda rng, size: value + spread * rng.normal(size=size)


# Arms, the arms that are best, and the most rewards of a run.
CASES = {f"equal {law}": ([shifted(law, 0.0)] * 2, None, 20_000) for law in LAWS}
for name in ("normal", "uniform", "t5"):
    CASES[f"apart {name}"] = ([shifted(name, 0.0), shifted(name, 0.2)], [1], 200_000)
    CASES[f"close {name}"] = ([shifted(name, 0.0), shifted(name, 0.05)], [1], 400_000)
CASES |= {
    "apart lognormal": ([scaled("lognormal", 1.0), scaled("lognormal", 1.2)], [1], 400_000),
    "apart -lognormal": ([scaled("-lognormal", 1.0), scaled("-lognormal", 1.2)], [0], 400_000),
    "lognormal, normal": ([shifted("lognormal", -np.exp(0.5)), near(0.0, 0.5)], None, 40_000),
}
for p in (0.001, 0.005, 0.01, 0.05):
    most = int(400 / p)
    CASES[f"equal {p}"] = ([events(p)] * 2, None, most)
    CASES[f"equal {p} x 4"] = ([events(p)] * 4, None, 2 * most)
    CASES[f"apart {p}"] = ([events(p), events(1.5 * p)], [1], 8 * most)
    CASES[f"missed {p}"] = ([events(1.5 * p), events(p)], [0], 8 * most)
    CASES[f"{p} beside the same constant"] = ([events(p), constant(p)], None, most)
    CASES[f"{p} beside a nearly constant arm"] = ([events(p, 1 / p), near(1.0, 0.01)], None, most)
    CASES[f"{p} beside a normal arm"] = ([events(p, 1 / p), near(1.0, 1.0)], None, most)
    CASES[f"{p} twice beside a constant 0"] = ([events(p), events(p), constant(0.0)], [0, 1], most)
CASES["0.3 beside a constant 0"] = ([events(0.3), constant(0.0)], [0], 100_000)
CASES["two constants"] = ([constant(0.0), constant(1.0)], [1], 100_000)


def lucb(arms, best, most, rng, delta):
    def pull(which, counts):
        return np.concatenate([arms[i](rng, n) for i, n in zip(which, counts, strict=True)])

    result = fr.LUCB(len(arms), 1, delta=delta, support=None).run(pull, most)
    stopped = result.stopped_by == "bound"
    return stopped, stopped if best is None else stopped and result.best not in best, result


def race(arms, best, most, rng, delta):
    rows = most // len(arms)
    rewards = np.stack([arm(rng, rows) for arm in arms], axis=1)
    result = fr.BettingRace(len(arms), delta=delta, support=None).run(rewards, order="given")
    lost = result.active.size < len(arms) if best is None else any(arm not in result.active for arm in best)
    return result.stopped_by == "bound", lost, result


def measure(rule, name, trials, delta):
    arms, best, most = CASES[name]
    wrong = silent = stopped = pulls = 0
    for seed in range(trials):
        over, bad, result = rule(arms, best, most, np.random.default_rng([seed, 7]), delta)
        stopped, wrong, pulls = stopped + over, wrong + bad, pulls + int(result.pulls.sum())
        silent += bad and not any("tail" in text or "same in all" in text for text in result.warnings)
    print(f"{rule.__name__:5}{name:36}delta {delta:<6}wrong {wrong / trials:<8.3f}silent {silent / trials:<8.3f}"
          f"stopped {stopped / trials:<7.2f}rewards {pulls / trials:,.0f}", flush=True)


if __name__ == "__main__":
    TRIALS, WORDS = int(sys.argv[1]) if len(sys.argv) > 1 else 400, sys.argv[2:]
    for case in CASES:
        if all(word in case for word in WORDS):
            measure(lucb, case, TRIALS, 0.1)
            measure(race, case, TRIALS, 0.05)
