"""Nested model classes within a budget of time: the coarse grid of Agarwal, Duchi, Bartlett & Levrard (2011).

    python -m papers.agarwal_2011.coarse_grid --quick
    FASTRACE_DATA=folder python -m papers.agarwal_2011.coarse_grid

Synthetic: polynomials of degree 1 to 16 for a smooth function with noise. Real: the first features, in a fixed random
order, of "protein" in the data folder, or of scikit-learn's diabetes data with ``--quick``. Least squares with d
parameters on n rows costs d n, so one quantum of time does for n_i = n_K d_K / d_i rows. Losses are squared errors,
clipped and scaled to [0, 1]. For each budget the table tells the held-out risk of the class chosen by the coarse grid
(training risk plus penalty, as in the paper; and by held-out risk), by Algorithm 1, by equal time for all classes, and
of the oracle: the class whose model on the whole budget is best. Averages over repetitions with fresh orders of rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace import model_selection as ms
from papers import datasets
from papers.common import parser, sheet, show_table, track, write_table

Array = NDArray[np.floating[Any]]


def synthetic(rng: np.random.Generator, n_rows: int) -> tuple[list[Array], Array]:
    """Design matrices of growing degree, and the target."""
    x = rng.uniform(-1, 1, n_rows)
    y = np.sin(4 * x) + 0.4 * np.cos(9 * x) + 0.4 * rng.standard_normal(n_rows)
    basis = np.polynomial.legendre.legvander(x, 16)
    return [basis[:, : d + 1] for d in range(1, 17)], y


def real(rng: np.random.Generator, quick: bool, folder: str | None) -> tuple[list[Array], Array]:
    """Growing sets of features, and the target."""
    data = datasets.load("diabetes" if quick else "protein", None if quick else folder)
    x, y = data.X.astype(float), data.y.astype(float)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    x = x[:, np.random.default_rng(4).permutation(x.shape[1])]
    wide = np.column_stack([np.ones(len(x)), x, x**2])
    rows = rng.permutation(len(x))
    return [wide[rows][:, : d + 1] for d in range(1, wide.shape[1])], y[rows]


def repeat(designs: list[Array], y: Array, quanta: int, scale: float) -> dict[str, float]:
    """Held-out risks of all choices in one repetition."""
    n_train = int(0.7 * y.size)
    span = np.quantile(np.abs(y - y.mean()), 0.99) ** 2

    def fit(i: int, n: int) -> tuple[float, float, float]:
        """Training risk, risk on a fifth held out of the n rows, risk on unseen rows."""
        design, cut = designs[i], max(1, int(0.8 * n))

        def risk(weights: Array, rows: slice) -> float:
            return float(np.minimum((design[rows] @ weights - y[rows]) ** 2 / span, 1.0).mean())

        def solve(rows: int) -> Array:
            return np.linalg.lstsq(design[:rows], y[:rows], rcond=None)[0]

        whole = solve(n)
        held = risk(solve(cut), slice(cut, n)) if cut < n else 1.0
        return risk(whole, slice(0, n)), held, risk(whole, slice(n_train, None))

    sizes = np.array([design.shape[1] for design in designs])
    rates = np.maximum(1, 8 * sizes[-1] // sizes)
    penalties = [ms.vc_penalty(int(d), scale) for d in sizes]
    seen: dict[tuple[int, int], float] = {}

    def train(i: int, n: int) -> tuple[float, float]:
        own, held, seen[i, n] = fit(i, n)
        return own, held

    found = {}
    for name, method in (
        ("coarse grid", ms.CoarseGrid(rates, quanta, penalties, n_rows=n_train)),
        ("coarse grid, slack 3", ms.CoarseGrid(rates, quanta, penalties, n_rows=n_train, slack=3.0)),
        ("coarse grid, held out", ms.CoarseGrid(rates, quanta, penalties, n_rows=n_train, criterion="held-out")),
        ("Algorithm 1", ms.BudgetedUCB(rates, quanta, penalties, n_rows=n_train, kappa2=0.1)),
    ):
        result = method.run(train)
        found[name] = seen[result.best, int(result.reached[result.best])]
    share = [min(n_train, max(1, quanta * int(rate) // len(rates))) for rate in rates]
    equal = [fit(i, n) for i, n in enumerate(share)]
    found["equal time, held out"] = equal[int(np.argmin([held for _, held, _ in equal]))][2]
    found["oracle"] = min(fit(i, min(n_train, quanta * int(rate)))[2] for i, rate in enumerate(rates))
    return found


def main() -> None:
    made = parser(__doc__, "few repetitions, bundled data", seed=11, data="protein")
    made.add_argument("--repetitions", type=int, help="repetitions (default 50, quick 5)")
    made.add_argument("--scale", type=float, default=0.1, help="penalties are scale sqrt(d / n) (default: 0.1)")
    options = made.parse_args()
    count = options.repetitions or (5 if options.quick else 50)
    makers: dict[str, Callable[[np.random.Generator], tuple[list[Array], Array]]] = {
        "synthetic, degree": lambda rng: synthetic(rng, 3000 if options.quick else 20_000),
        "diabetes, features" if options.quick else "protein, features":
            lambda rng: real(rng, options.quick, options.data),
    }
    lines = []
    work = [(name, quanta) for name in makers for quanta in ((40, 160) if options.quick else (40, 160, 640))]
    for name, quanta in track(work, options.progress, "nested classes"):
        rng = np.random.default_rng(options.seed)
        try:
            each = [repeat(*makers[name](rng), quanta, options.scale) for _ in range(count)]
        except (FileNotFoundError, ImportError) as error:
            sys.exit(f"{error}\nor try --quick")
        for choice in each[0]:
            risks = np.array([one[choice] for one in each])
            lines.append((name, quanta, choice, risks.mean(), risks.std() / np.sqrt(count)))
    oracle = {(line[0], line[1]): line[3] for line in lines if line[2] == "oracle"}
    columns = ("classes", "quanta", "choice", "risk", "error")
    show_table("held-out risks of the classes chosen", (*columns, "excess"),
               [(*line, line[3] - oracle[line[:2]]) for line in lines])
    options.output.mkdir(parents=True, exist_ok=True)
    write_table(options.output / "coarse_grid.csv", [dict(zip(columns, line, strict=True)) for line in lines])
    draw(lines, options.output / "coarse_grid.png")
    print(f"written to {options.output}")


def draw(lines: list[tuple[str, int, str, float, float]], path: Path) -> None:
    names = list(dict.fromkeys(line[0] for line in lines))
    figure, (panels,) = sheet(1, len(names), (11, 4.5))
    for ax, name in zip(panels, names, strict=True):
        for choice in dict.fromkeys(line[2] for line in lines):
            own = [line for line in lines if line[0] == name and line[2] == choice]
            ax.errorbar([line[1] for line in own], [line[3] for line in own], [line[4] for line in own],
                        label=choice, capsize=2, ls="--" if choice == "oracle" else "-")
        ax.set(xscale="log", xlabel="budget, quanta", ylabel="held-out risk", title=name)
    panels[0].legend(fontsize="small")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
