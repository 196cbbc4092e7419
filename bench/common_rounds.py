"""Evaluations until the best of 12 models is known, of 50,000 prompts: a table for README.md.

    python bench/common_rounds.py [runs]
"""

import sys

import numpy as np
from benchmarks.stream_racing import SameRows

RULES = {"FiniteRace": "FiniteRace", "BettingRace": "differences", "BettingRace, rows as they come":
         "differences, in order", "LUCB": "LUCB", "LUCB, paired": "LUCB, paired"}

if __name__ == "__main__":
    runs, bench = int(sys.argv[1]) if len(sys.argv) > 1 else 40, SameRows()
    print("| correlation | gap | " + " | ".join(RULES) + " |")
    print("|---|---|" + "---|" * len(RULES))
    for correlation in (0.8, 0.0):
        for gap in (0.02, 0.005):
            means = []
            for rule in RULES.values():
                made = []
                for k in range(runs):
                    table = bench.table(gap, correlation, np.random.default_rng([20201204, k]))
                    made.append(bench.pulls(table, rule, k))
                means.append(f"{np.mean(made):,.0f}")
            print(f"| {correlation} | {gap} | " + " | ".join(means) + " |", flush=True)
