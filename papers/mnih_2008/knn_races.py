"""Choosing k for k nearest neighbours by a race: Table 1 of Mnih, Szepesvari & Audibert, "Empirical Bernstein
Stopping" (2008), after Maron & Moore, "Hoeffding Races" (1993).

    python -m papers.mnih_2008.knn_races --quick
    FASTRACE_DATA=folder python -m papers.mnih_2008.knn_races
    python -m papers.mnih_2008.knn_races --sets local --sarcos sarcos_inv.mat

The arms are k = 1, 2, 4, ..., 1024. A round takes one point of the data, in random order, and gives every k still in
the race minus its leave-one-out loss there: 0/1 loss for classes, absolute error for numbers, with the range of the
targets for R. All k are scored by one search for the 1024 nearest other points. For every data set and every race the
table tells the work saved and the options left when all points have been used, and which k won; it is printed beside
the paper's figures, written as ``knn_races.csv``, and drawn. Losses are kept in the output folder, so that a second
run races at once.

Data: "local" is made (a noisy piecewise linear function on the unit interval); "covertype2" is 50,000 points of
Covertype, Lodgepole pine against the rest; the 44,484 points of SARCOS come from ``--sarcos FILE`` (21 inputs, then 7
torques; the first torque is predicted), and "sarcos_test", "kin40k" and "protein" are regressions of like kind. See
`papers.datasets` for where they are looked for. Needs the ``data`` and ``demo`` extras.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fastrace as fr
from papers import datasets
from papers.common import parser, save_arrays, sheet, show_table, track, write_table

RACES = {"Hoeffding": fr.HoeffdingRace, "EB": fr.BernsteinRace, "betting": fr.BettingRace}
PAPER = {  # work saved in percent and options left, by Hoeffding's and the empirical Bernstein race
    "sarcos": {"Hoeffding": (0.0, 11), "EB": (44.9, 4)},
    "covertype2": {"Hoeffding": (14.9, 8), "EB": (29.3, 5)},
    "local": {"Hoeffding": (6.0, 9), "EB": (33.1, 6)},
}
FULL = ("covertype2", "local", "sarcos_test", "kin40k", "protein")
QUICK = ("local", "digits", "diabetes")
QUERIES = 128


@dataclass(frozen=True)
class Problem:
    """Points with something to predict; `span` is the range of the loss."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    classes: bool
    span: float


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    data: str
    n_points: int
    race: str
    saved: float
    saved_sd: float
    left: float
    best_k: int
    full_k: int
    lost: float
    paper_saved: float
    paper_left: float


def local(n_points: int, rng: np.random.Generator) -> Problem:
    """A piecewise linear function on [0, 1] with noise, its values scaled to a range of 1."""
    knots = np.sort(np.concatenate([[0.0, 1.0], rng.random(8)]))
    x = rng.random(n_points)
    y = np.interp(x, knots, rng.random(knots.size)) + 0.1 * rng.standard_normal(n_points)
    y = (y - y.min()) / (y.max() - y.min())
    return Problem("local", x[:, None], y, False, 1.0)


def problem(name: str, folder: str | None, sarcos: str | None, quick: bool, seed: int) -> Problem:
    """A named data set with standardised inputs."""
    rng = np.random.default_rng(seed)
    if name == "local":
        return local(2_000 if quick else 10_000, rng)
    if name == "sarcos":
        if sarcos is None:
            raise FileNotFoundError("the set sarcos needs --sarcos FILE")
        data = datasets.load(sarcos, target=21, inputs=range(21))
    elif name == "covertype2":
        data = datasets.load("covertype", folder).one_against_rest(2).sample(50_000, rng)
    else:
        data = datasets.load(name, folder)
    if name == "digits":
        data = data.one_against_rest(8)
    X, y = data.standardized().X, data.y.astype(np.float64)
    classes = name in ("covertype2", "digits")
    return Problem(name, X, y, classes, 1.0 if classes else float(np.ptp(y)))


def neighbours(X: NDArray[np.float64], first: int, last: int, n_near: int) -> NDArray[np.intp]:
    """The nearest other points of points first to last - 1, nearest first, ties by number."""
    square = np.einsum("ij,ij->i", X, X)
    distance = square - 2.0 * (X[first:last] @ X.T)
    distance[np.arange(last - first), np.arange(first, last)] = np.inf
    near = np.sort(np.argpartition(distance, n_near - 1, axis=1)[:, :n_near], axis=1)
    order = np.argsort(np.take_along_axis(distance, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, order, axis=1)


def losses(p: Problem, ks: NDArray[np.intp], progress: bool) -> NDArray[np.float64]:
    """Leave-one-out loss of every k at every point, shape (n_points, n_arms)."""
    n_points = p.y.size
    table = np.empty((n_points, ks.size))
    starts = range(0, n_points, QUERIES)
    for first in track(starts, progress, f"{p.name}: neighbours of {n_points} points"):
        last = min(first + QUERIES, n_points)
        near = p.y[neighbours(p.X, first, last, int(ks[-1]))]
        guess = np.cumsum(near, axis=1)[:, ks - 1] / ks
        truth = p.y[first:last, None]
        if p.classes:       # a tied vote goes to the nearest point
            vote = np.where(guess == 0.5, near[:, :1], guess > 0.5)
            table[first:last] = vote != truth
        else:
            table[first:last] = np.abs(guess - truth)
    return table


def cached_losses(p: Problem, ks: NDArray[np.intp], output: Path, progress: bool) -> NDArray[np.float64]:
    """The same, kept on disk; computed anew when the data or the ks are others."""
    path = output / f"knn_losses_{p.name}.npz"
    mark = np.array([*p.X.shape, p.X.sum(), p.y.sum(), (p.X[:, 0] * p.y).sum()])
    if path.exists():
        kept = np.load(path)
        if np.array_equal(kept["ks"], ks) and np.array_equal(kept["mark"], mark):
            return np.asarray(kept["table"])
    table = losses(p, ks, progress)
    save_arrays(path, table=table, ks=ks, mark=mark)
    return table


def races(p: Problem, ks: NDArray[np.intp], table: NDArray[np.float64], delta: float, repeats: int, seed: int
          ) -> Iterator[Row]:
    """Race the arms on `repeats` random orders of the points."""
    n_points, n_arms = table.shape
    full = table.mean(axis=0)
    for name, make in RACES.items():
        results = []
        for order in np.random.default_rng(seed).permuted(np.tile(np.arange(n_points), (repeats, 1)), axis=1):
            results.append(make(n_arms, n_points, delta, (-p.span, 0.0)).run(-table[order], order="given"))
        saved = np.array([100.0 * r.work_saved for r in results])
        wins = [r.best for r in results]
        paper = PAPER.get(p.name, {}).get(name, (np.nan, np.nan))
        yield Row(
            data=p.name,
            n_points=n_points,
            race=name,
            saved=float(saved.mean()),
            saved_sd=float(saved.std()),
            left=float(np.mean([r.active.size for r in results])),
            best_k=int(ks[max(set(wins), key=wins.count)]),
            full_k=int(ks[full.argmin()]),
            lost=float(np.mean([full.argmin() not in r.active for r in results])),
            paper_saved=paper[0],
            paper_left=paper[1],
        )


def draw(rows: Sequence[Row], path: Path) -> None:
    names = list(dict.fromkeys(row.data for row in rows))
    figure, ((saved, left),) = sheet(1, 2, (9, 4))
    for i, race in enumerate(RACES):
        at = np.arange(len(names)) + 0.27 * (i - 1)
        mine = {row.data: row for row in rows if row.race == race}
        saved.bar(at, [mine[name].saved for name in names], 0.25, color=f"C{i}", label=race)
        left.bar(at, [mine[name].left for name in names], 0.25, color=f"C{i}", label=race)
        for axes, value in ((saved, "paper_saved"), (left, "paper_left")):
            known = [getattr(mine[name], value) for name in names]
            axes.plot(at, known, "k_", markersize=12, label="paper" if i == 0 else None)
    for axes, title in ((saved, "work saved, %"), (left, "options left")):
        axes.set_xticks(range(len(names)), names, rotation=20)
        axes.set_title(title)
    saved.legend()
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser(__doc__, f"small data: {', '.join(QUICK)}; k up to 256", seed=20080705, data="the data sets")
    add = made.add_argument
    add("--sets", nargs="+", help=f"data sets (default: {', '.join(FULL)}, and sarcos if given)")
    add("--sarcos", help="file of the 44,484 SARCOS points: mat, npy, csv or parquet")
    add("--delta", type=float, default=0.1, help="probability of error (default 0.1)")
    add("--repeats", type=int, default=10, help="random orders of the points (default 10)")
    options = made.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    names = options.sets or (QUICK if options.quick else (*FULL, *(("sarcos",) if options.sarcos else ())))
    ks = 2 ** np.arange(9 if options.quick else 11)
    rows: list[Row] = []
    for name in names:
        try:
            p = problem(name, options.data, options.sarcos, options.quick, options.seed)
        except FileNotFoundError as error:
            print(f"{name} is left out: {error}")
            continue
        table = cached_losses(p, ks, options.output, options.progress)
        rows += races(p, ks, table, options.delta, options.repeats, options.seed)
    if not rows:
        print("no data: nothing to race")
        return 1
    show_table(
        f"work saved and options left of k = 1, 2, 4, ..., delta {options.delta:g}",
        ("data", "points", "race", "saved", "left", "paper", "k", "k of all", "best lost"),
        [(row.data, row.n_points, row.race, f"{row.saved:.1f} %", f"{row.left:.1f}",
          "" if np.isnan(row.paper_saved) else f"{row.paper_saved:.1f} % / {row.paper_left:.0f}",
          row.best_k, row.full_k, f"{100 * row.lost:.0f} %") for row in rows],
    )
    stem = options.output / ("knn_races_quick" if options.quick else "knn_races")
    write_table(stem.with_suffix(".csv"), [asdict(row) for row in rows])
    draw(rows, stem.with_suffix(".png"))
    print(f"written: {stem}.csv, {stem}.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
