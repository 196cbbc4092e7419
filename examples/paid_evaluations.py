"""Which of 8 language models answers best, if each answer is paid for?

There is a table of models and questions, and each cell of it is a call that costs money: a model answers, a
grader says right or wrong. Most cells need not be filled. `race_async` sends many calls at once, drops a model
as soon as it is clearly worse, and stops when one is left. What was paid for stands in a journal, so that a run
that was killed goes on and asks for nothing twice. `plan_race` says beforehand what to expect.

The dull way fills the whole table. It wins where questions are few or models nearly equal, since a race then
reads most of the table too, and where the table is wanted for other questions.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import fastrace as fr

MODELS = [f"model {letter}" for letter in "ABCDEFGH"]
SKILL = np.array([0.62, 0.60, 0.66, 0.75, 0.68, 0.58, 0.70, 0.64])
QUESTIONS = 10_000


def made_answers(seed):
    """Right or wrong; a question that is hard for one model is hard for the others."""
    rng = np.random.default_rng(seed)
    hard = rng.standard_normal((QUESTIONS, 1))
    own = rng.standard_normal((QUESTIONS, len(MODELS)))
    order = (np.sqrt(0.7) * hard + np.sqrt(0.3) * own).argsort(axis=0).argsort(axis=0)
    return order < SKILL * QUESTIONS


def main(plot=None):
    plan = fr.plan_race(0.05, 0.5, QUESTIONS, len(MODELS), correlation=0.5, support=(0, 1), n_races=30, rng=1)
    print(f"planned: {plan.mean:,.0f} calls on average, {plan.quantile(0.9):,} or fewer in nine of ten races")

    answers, calls = made_answers(3), 0

    async def grade(model, question):
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)                  # here stands the call of the model, and of the grader
        return answers[question, model]

    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "support": (0, 1), "names": MODELS, "concurrency": 32, "journal": Path(folder) / "race.jsonl"}
        result = asyncio.run(fr.race_async(grade, len(MODELS), QUESTIONS, rng=5, **options))
        print(result)
        paid, calls = calls, 0
        asyncio.run(fr.race_async(grade, len(MODELS), QUESTIONS, **options))
        print(f"calls: {paid:,} of {answers.size:,}; run again with its journal: {calls}")
    print(f"the whole table: best is {MODELS[answers.mean(axis=0).argmax()]}")

    if plot:
        result.plot()[0].figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
