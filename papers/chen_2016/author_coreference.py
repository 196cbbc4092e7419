"""Which author mentions are the same person? Annealed Gibbs sampling by races, as in Figure 3 of Chen & Ghahramani
(2016).

    python -m papers.chen_2016.author_coreference --quick

Mentions of a name ("first initial, last name": a block) are to be parted into persons. The model has a factor f(i, j)
for each pair in one cluster, and a Gibbs step moves a mention to a cluster y, an empty one included, with probability
proportional to exp(sum over the cluster of f / temperature). Every mention starts as a cluster of its own; the
temperature falls geometrically. ``exact`` evaluates all factors of a mention, the races (`fastrace.UnequalRace`) only
as many as they need:

- ``even``, the paper's: 3 members of each cluster first, then tenths of the rest of all clusters alike;
- ``adaptive``: one cluster at a time, the one that may yet win by most. What a mention shows by itself bounds its
  factors, so small clusters that cannot win are not read; variances of few factors are pooled with those of others;
- ``known``: besides, most of a factor is an inner product of two mentions' words, co-authors, venues and names. Its sum
  over a cluster is one inner product with the cluster's sum, counted as one evaluation per cluster and draw; the race
  is over what is left of the factors (a control variate, ibid., section 3.4).

The factors are the log odds of a logistic regression on shared co-authors, words of titles and affiliations, venues and
years, fitted to a third of the blocks of AMiner's hand-labelled set; different first names add -8. The other two
thirds, joined with the unlabelled mentions of WhoIsWho (or of the ACL Anthology, ``--unscored acl2019``), are sampled,
and the labelled ones scored by B-cubed F1. Pairs' factors are computed once for all runs and looked up, so what is
compared is their number, as in the paper, not time. ``--quick`` uses made mentions: points near centres, whose numbers
follow a power law.

Prints a table beside the paper's figures; writes ``author_coreference.csv`` (a line per sampler, run and sweep) and
``author_coreference.png``. Blocks are kept as they are done, and not done again unless ``--fresh``; Ctrl-C shows what
there is. ``--draw TABLE`` draws the picture of a csv file again, beside it. Needs the extras ``data`` and ``demo``; the
sets come from the folder in FASTRACE_DATA or ``--data``.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats

import fastrace as fr
from fastrace import mcmc
from papers import datasets
from papers.common import meter, parser, read_table, save_arrays, settings, sheet, write_table

SAMPLERS = {"exact": ("exact", "C0", "-"), "even": ("race, even (the paper's)", "C1", "--"),
            "adaptive": ("race, adaptive", "C2", "-."), "known": ("race, known part apart", "C3", "--")}
FIRST_LOOK = 3
POOLING = 8.0               # rows that the variance within all clusters counts for
FILES = {"whoiswho": "coref_whoiswho_unlabelled", "acl2019": "coref_acl2019"}
CONFLICT = -8.0
FEATURES = 7
COLUMNS = ("sampler", "run", "sweep", "temperature", "evaluations", "precision", "recall", "f1", "wrong", "draws")


@dataclass(frozen=True)
class Mention:
    """What is known of one author of one paper."""

    name: str
    authors: frozenset[str]                 # keys of the co-authors
    title: tuple[str, ...]
    org: tuple[str, ...]
    venue: str
    year: float
    person: int                             # -1: not labelled


@dataclass(frozen=True)
class Block:
    """Mentions that may be the same person.

    Factors of all pairs, the part of them that is an inner product, and for each mention the limits of its factors and
    of what the inner products leave of them; and persons.
    """

    name: str
    factors: NDArray[np.float32]            # (n, n)
    known: NDArray[np.float32]              # (n, n)
    limits: NDArray[np.float64]             # (n, 2)
    rest: NDArray[np.float64]               # (n, 2)
    person: NDArray[np.int64]               # -1: not scored


def words(text: Any) -> tuple[str, ...]:
    """Words of three letters and more."""
    return tuple(re.findall(r"[a-z]{3,}", text.lower())) if isinstance(text, str) else ()


def key(name: str) -> str:
    """First initial and last name."""
    parts = re.findall(r"[^\W\d_]+", name.lower())
    return f"{parts[0][0]}_{parts[-1]}" if parts else ""


def mentions(frame: Any, unscored: bool) -> dict[str, list[Mention]]:
    """Mentions by block."""
    found: dict[str, list[Mention]] = {}
    acl = "first" in frame
    for row in frame.itertuples():
        name = f"{row.first} {row.last}" if acl else row.block.replace("_", " ")
        own = key(name)
        listed = row.coauthors if acl else row.authors
        others = frozenset(key(one) for one in str(listed or "").split(";")) - {own, ""}
        org = () if acl else words(row.org)
        found.setdefault(own, []).append(
            Mention(name.lower(), others, words(row.title), org, str(row.venue), float(row.year),
                    -1 if unscored else int(row.y)))
    return found


def similarity(sets: Sequence[Sequence[str]]) -> NDArray[np.float32]:
    """Cosines between lists of words, rare ones counting more."""
    counts = Counter(word for one in sets for word in set(one))
    place = {word: k for k, word in enumerate(counts)}
    rows = np.repeat(np.arange(len(sets)), [len(set(one)) for one in sets])
    columns = [place[word] for one in sets for word in sorted(set(one))]
    weight = np.log1p(len(sets) / np.array([counts[word] for word in place], dtype=float))
    table = sparse.csr_matrix((weight[columns], (rows, columns)), shape=(len(sets), max(len(place), 1)))
    length = np.sqrt(np.asarray(table.multiply(table).sum(axis=1))).ravel()
    table = sparse.diags(1.0 / np.where(length > 0.0, length, 1.0)) @ table
    return np.asarray((table @ table.T).toarray(), dtype=np.float32)


def features(block: Sequence[Mention]) -> NDArray[np.float32]:
    """Of all pairs: shape (FEATURES, n, n)."""
    n = len(block)
    out = np.ones((FEATURES, n, n), dtype=np.float32)
    place = {word: k for k, word in enumerate({one for m in block for one in m.authors})}
    pairs = [(i, place[one]) for i, m in enumerate(block) for one in m.authors]
    shape = (n, max(len(place), 1))
    index = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    shared = sparse.csr_matrix((np.ones(len(pairs)), (index[:, 0], index[:, 1])), shape=shape)
    together = (shared @ shared.T).toarray()
    out[1] = together > 0
    out[2] = np.log1p(together)
    out[3] = similarity([m.title for m in block])
    out[4] = similarity([m.org for m in block])
    venue = np.array([m.venue for m in block])
    out[5] = (venue[:, None] == venue[None, :]) & (venue != "nan")[None, :]
    year = np.nan_to_num(np.array([m.year for m in block]), nan=2000.0)
    out[6] = np.minimum(np.abs(year[:, None] - year[None, :]) / 10.0, 3.0)
    return out


def fit(blocks: Sequence[Sequence[Mention]], rng: np.random.Generator) -> NDArray[np.float64]:
    """Weights of the features, from random pairs of labelled mentions."""
    X, y = [], []
    for block in blocks:
        n = len(block)
        i, j = rng.integers(n, size=(2, min(4 * n, 1500)))
        i, j = i[i != j], j[i != j]
        X.append(features(block)[:, i, j].T)
        y += [block[a].person == block[b].person for a, b in zip(i, j, strict=True)]
    model = mcmc.GLM(np.concatenate(X).astype(float), np.array(y, dtype=float), prior_sd=5.0)
    return np.asarray(model.reference().theta_hat)


Factors = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def factors(block: Sequence[Mention], weights: NDArray[np.float64]) -> Factors:
    """Of each pair: log odds, different first names apart, and their part that is an inner product; and both limits."""
    seen = features(block)
    first = np.array([m.name.split()[0] for m in block])
    full = np.array([len(one) > 1 for one in first])
    apart = CONFLICT * ((first[:, None] != first[None, :]) & full[:, None] & full[None, :])
    found = np.tensordot(weights.astype(np.float32), seen, axes=1) + apart.astype(np.float32)
    # One shared author: as many times that as there are shared authors is an inner product, and at least the factor's.
    one = weights[1] + weights[2] * math.log(2.0)
    count = np.rint(np.expm1(seen[2]))
    known = weights[0] + one * count + np.tensordot(weights[3:6], seen[3:6], axes=1) + apart
    limits, rest = np.empty((len(block), 2)), np.empty((len(block), 2))
    for i, mention in enumerate(block):
        shared = np.arange(len(mention.authors) + 1)
        authors = weights[1] * (shared > 0) + weights[2] * np.log1p(shared)
        for k, (end, sign) in enumerate(((np.min, -1.0), (np.max, 1.0))):
            years = 3.0 * sign * max(sign * weights[6], 0.0)
            rest[i, k] = end(authors - one * shared) + years
            limits[i, k] = weights[0] + end(authors) + sign * np.maximum(sign * weights[3:6], 0.0).sum() + years
        limits[i, 0] += CONFLICT
    slack = 1e-3 * np.array([-1.0, 1.0])                # single precision
    return np.asarray(found, np.float32), np.asarray(known, np.float32), limits + slack, rest + slack


def made(options: argparse.Namespace) -> Iterator[Block]:
    """Points near centres; sizes of the clusters follow a power law."""
    rng = np.random.default_rng([options.seed, 5])
    for number in range(options.blocks or 2):
        sizes = np.minimum((3.0 * rng.random(12) ** -1.2).astype(int), 120)
        person = np.repeat(np.arange(len(sizes)), sizes)
        points = rng.normal(0.0, 2.0, (len(sizes), 4))[person] + rng.normal(0.0, 0.7, (len(person), 4))
        apart = np.square(points[:, None] - points[None, :]).sum(axis=2)
        noise = rng.normal(0.0, 1.0, apart.shape)
        noise = np.clip(noise + noise.T, -4.0, 4.0)
        known = (3.0 - 0.5 * apart).astype(np.float32)
        rest = np.tile([-4.01, 4.01], (len(person), 1))
        limits = np.tile([float(known.min()) - 4.01, 7.01], (len(person), 1))
        yield Block(f"made-{number}", known + noise.astype(np.float32), known, limits, rest, person)


def real(options: argparse.Namespace) -> Iterator[Block]:
    """Scored blocks joined with the unlabelled mentions of the same name, and the other unlabelled blocks."""
    rng = np.random.default_rng([options.seed, 6])
    scored = mentions(datasets.read_frame("coref_aminer", options.data), False)
    mass = mentions(datasets.read_frame(FILES[options.unscored], options.data), True) if options.unscored else {}
    names = rng.permutation(sorted(scored))
    third = len(names) // 3
    weights = fit([scored[name] for name in names[:third] if len(scored[name]) > 1], rng)
    print("weights of the features: " + ", ".join(
        f"{word} {value:.2f}" for word, value in zip(
            ("intercept", "any shared author", "log shared authors", "title", "affiliation", "venue", "decades apart"),
            weights, strict=True)), flush=True)
    rest = rng.permutation([name for name in sorted(mass) if name not in scored and len(mass[name]) > 1])
    chosen = [str(name) for name in names[third:][: options.blocks]]
    chosen += [str(name) for name in rest[: len(chosen) if options.blocks else None]]
    for name in chosen:
        block = scored.get(name, []) + mass.get(name, [])
        if options.least <= len(block) <= options.most:
            yield Block(name, *factors(block, weights), np.array([m.person for m in block]))


@dataclass
class Record:
    """What the samplers did in one block: arrays of (samplers, runs, sweeps) and what D and N_y were at the end."""

    evaluations: NDArray[np.int64]
    precision: NDArray[np.float64]          # sums over the scored mentions
    recall: NDArray[np.float64]
    wrong: NDArray[np.int64]
    draws: NDArray[np.int64]
    scored: int
    ends: NDArray[np.int64]                 # smallest and largest D, largest N_y, in the last sweep


def b_cubed(labels: NDArray[Any], person: NDArray[np.int64]) -> tuple[float, float]:
    """Sums over the labelled mentions of B-cubed precision and recall, among themselves."""
    known = person >= 0
    if not known.any():
        return 0.0, 0.0
    system = np.unique(labels[known], return_inverse=True)[1]
    truth = np.unique(person[known], return_inverse=True)[1]
    both = np.unique(system * (truth.max() + 1) + truth, return_inverse=True)[1]
    common = np.bincount(both)[both]
    return float((common / np.bincount(system)[system]).sum()), float((common / np.bincount(truth)[truth]).sum())


def anneal(block: Block, sampler: str, rng: np.random.Generator, options: argparse.Namespace) -> tuple[Any, ...]:
    """One run of a sampler in a block. A race's answer is checked by the sums of all factors.

    Returns evaluations, precision, recall, wrong draws and draws, per sweep, and the ends.
    """
    n = len(block.person)
    labels: NDArray[Any] = np.arange(n, dtype=np.int16 if n < 2**15 else np.int64)        # short ones are sorted faster
    left = block.factors - block.known
    count = np.ones(n + 1, dtype=np.int64)
    count[n] = 0
    out = np.zeros((5, options.sweeps))
    ends = np.array([n + 1, 0, 0])
    for sweep, temperature in enumerate(temperatures(options)):
        for i in rng.permutation(n):
            count[labels[i]] -= 1
            labels[i] = -1
            ids = np.flatnonzero(count)
            order = np.argsort(labels, kind="stable")[1:]
            noise = -np.log(rng.standard_exponential(ids.size + 1))
            row = block.factors[i, order]
            sums = np.bincount(labels[order], row, minlength=n + 1)[ids]
            best = int((np.append(sums, 0.0) / temperature + noise).argmax())
            if sampler != "exact" and ids.size:
                settings_: dict[str, Any] = {"first_look": FIRST_LOOK, "offset": noise, "temperature": temperature,
                                             "scan_advantage": 1.0, "rng": rng}
                if sampler != "even":
                    limits = block.limits[i] if sampler == "adaptive" else block.rest[i]
                    settings_ |= {"allocation": "adaptive", "bound": "normal", "pooling": POOLING,
                                  "support": tuple(limits)}
                if sampler == "known":
                    sums = np.bincount(labels[order], block.known[i, order], minlength=n + 1)[ids]
                    settings_["offset"] = noise + np.append(sums, 0.0) / temperature
                    out[0, sweep] += ids.size
                    row = left[i, order]
                race = fr.UnequalRace(np.append(count[ids], 0), options.delta, **settings_)
                result = race.run(row)
                out[0, sweep] += result.pulls.sum()
                out[3, sweep] += result.best != best
                best = int(result.best)
            else:
                out[0, sweep] += n - 1
            out[4, sweep] += 1
            if sweep == options.sweeps - 1 and ids.size:
                ends = np.array([min(ends[0], ids.size + 1), max(ends[1], ids.size + 1), max(ends[2], count.max())])
            labels[i] = ids[best] if best < ids.size else int((count == 0).argmax())
            count[labels[i]] += 1
        out[1:3, sweep] = b_cubed(labels, block.person)
    return (*out, ends)


def temperatures(options: argparse.Namespace) -> NDArray[np.float64]:
    """Of each sweep."""
    return np.geomspace(options.hot, options.cold, options.sweeps)


KEPT = ("runs", "sweeps", "hot", "cold", "delta", "unscored", "quick", "seed")      # what a block's record depends on


def sample(block: Block, options: argparse.Namespace) -> Record:
    """All samplers and runs in a block, or what was kept of them."""
    words_kept = ",".join(SAMPLERS) + ";" + settings(options, *KEPT)
    file = options.output / f"author_coreference_{zlib.crc32((block.name + words_kept).encode()):08x}.npz"
    if file.exists() and not options.fresh:
        with np.load(file) as found:
            return Record(**{name: found[name] for name in Record.__dataclass_fields__})
    shape = (len(SAMPLERS), options.runs, options.sweeps)
    out = Record(np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64),
                 np.zeros(shape, np.int64), int((block.person >= 0).sum()), np.array([len(block.person) + 1, 0, 0]))
    for k, sampler in enumerate(SAMPLERS):
        for run in range(options.runs):
            rng = np.random.default_rng([options.seed, k, run, zlib.crc32(block.name.encode())])
            *parts, ends = anneal(block, sampler, rng, options)
            for name, part in zip(("evaluations", "precision", "recall", "wrong", "draws"), parts, strict=True):
                getattr(out, name)[k, run] = part
            out.ends = np.array([min(out.ends[0], ends[0]), max(out.ends[1], ends[1]), max(out.ends[2], ends[2])])
    save_arrays(file, **vars(out))
    return out


def added(records: Sequence[Record]) -> Record:
    """All blocks together: evaluations add up over sweeps."""
    total = {name: sum(getattr(one, name) for one in records) for name in Record.__dataclass_fields__}
    ends = np.stack([one.ends for one in records])
    total["ends"] = np.array([ends[:, 0].min(), ends[:, 1].max(), ends[:, 2].max()])
    total["evaluations"] = np.cumsum(total["evaluations"], axis=2)
    scored = max(int(total["scored"]), 1)
    for name in ("precision", "recall"):
        total[name] = total[name] / scored
    return Record(**total)


def f1(record: Record) -> NDArray[np.float64]:
    """Of each sampler, run and sweep."""
    return np.asarray(2.0 * record.precision * record.recall / np.maximum(record.precision + record.recall, 1e-300))


def reached(record: Record, level: float) -> NDArray[np.float64]:
    """Evaluations until F1, the mean of the runs, is at a level, per sampler; infinity if it never is."""
    there = f1(record).mean(axis=1) >= level
    spent = np.append(record.evaluations.mean(axis=1), np.full((len(there), 1), math.inf), axis=1)
    first = np.where(there.any(axis=1), there.argmax(axis=1), there.shape[1])
    return np.asarray(spent[np.arange(len(there)), first])


def print_table(record: Record, n_blocks: int, n_mentions: int, options: argparse.Namespace) -> None:
    """What the paper reports, beside it."""
    score = f1(record)
    last = np.diff(record.evaluations, axis=2, prepend=0)[:, :, -1].mean(axis=1)
    level = 0.99 * score[0, :, -1].mean()
    until = reached(record, level)

    def row(text: str, cells: Sequence[str], said: str = "") -> None:
        print(f"{text:<44}" + "".join(f"{cell:>26}" for cell in cells) + f"{said:>20}")

    print(f"\n{n_blocks} blocks of {n_mentions} mentions, {record.scored} of them scored; {options.runs} runs of "
          f"{options.sweeps} sweeps, temperature {options.hot:g} to {options.cold:g}")
    row("", [words_ for words_, *_ in SAMPLERS.values()], "paper, racing")
    row("B-cubed F1 at the end, mean and sd of runs",
        [f"{one[:, -1].mean():.4f} +- {one[:, -1].std():.4f}" for one in score], "as exact")
    row("  precision", [f"{one[:, -1].mean():.4f}" for one in record.precision])
    row("  recall", [f"{one[:, -1].mean():.4f}" for one in record.recall])
    row("factors evaluated, all sweeps", [f"{one[:, -1].mean():.4g}" for one in record.evaluations])
    row("factors evaluated, last sweep", [f"{value:.4g}" for value in last])
    row("  times fewer than exact", [f"{last[0] / value:.2f}" for value in last], "about 5")
    row(f"until F1 is {level:.3f}, 99 % of exact's last",
        [f"{value:.4g}".replace("inf", "not reached") for value in until])
    row("  times fewer than exact", [f"{until[0] / value:.2f}" if value < math.inf else "-" for value in until],
        "about 3")
    cells = []
    for wrong, draws in zip(record.wrong.sum(axis=(1, 2)), record.draws.sum(axis=(1, 2)), strict=True):
        low, high = stats.binomtest(int(wrong), int(draws)).proportion_ci(0.95)
        cells.append(f"{wrong / draws:.4f} ({low:.4f}, {high:.4f})")
    row(f"wrong draws (promised: {options.delta:g})", ["-", *cells[1:]], "0.045 to 0.046")
    print(f"last sweep: D from {record.ends[0]} to {record.ends[1]} (paper: 2 to 215), N_y up to {record.ends[2]} "
          f"(paper: 1829)")


def write(record: Record, options: argparse.Namespace) -> tuple[Path, Path]:
    """The csv file and the figure."""
    table = options.output / "author_coreference.csv"
    score = f1(record)
    lines = []
    for k, sampler in enumerate(SAMPLERS):
        for run, sweep in np.ndindex(options.runs, options.sweeps):
            cell = k, run, sweep
            found = (sampler, run, sweep + 1, float(temperatures(options)[sweep]), record.evaluations[cell],
                     float(record.precision[cell]), float(record.recall[cell]), float(score[cell]),
                     record.wrong[cell], record.draws[cell])
            lines.append(dict(zip(COLUMNS, found, strict=True)))
    write_table(table, lines)
    return table, draw(table)


def draw(table: Path) -> Path:
    """The figure of a csv file, beside it."""
    from matplotlib.ticker import LogLocator, NullFormatter

    lines, picture = read_table(table), table.with_suffix(".png")
    runs, n_sweeps = (max(int(line[name]) for line in lines) + extra for name, extra in (("run", 1), ("sweep", 0)))
    evaluations, score = (np.array([float(line[name]) for line in lines]).reshape(len(SAMPLERS), runs, n_sweeps)
                          for name in ("evaluations", "f1"))
    figure, ((left, middle, right),) = sheet(1, 3, (15.0, 4.8))
    sweeps = np.arange(1, n_sweeps + 1)
    each = np.diff(evaluations, axis=2, prepend=0).mean(axis=1)
    for k, (text, colour, dash) in enumerate(SAMPLERS.values()):
        for run in range(runs):
            label = text if run == 0 else None
            left.plot(evaluations[k, run], score[k, run], dash, color=colour, lw=1.0, label=label)
            middle.plot(sweeps, score[k, run], dash, color=colour, lw=1.0, label=label)
        if k:
            right.plot(sweeps, each[0] / each[k], color=colour, label=text)
    left.set(title="(a)", xlabel="factors evaluated", ylabel="B-cubed F1", xscale="log")
    left.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    left.xaxis.set_major_formatter("{x:.0e}")
    left.xaxis.set_minor_formatter(NullFormatter())
    middle.set(title="(b)", xlabel="sweep", ylabel="B-cubed F1")
    right.set(title="(c) factors of an exact sweep over those of a race's", xlabel="sweep", ylabel="times fewer")
    for panel in (left, middle, right):
        panel.grid(alpha=0.3)
        panel.legend()
    figure.savefig(picture, dpi=110)
    return picture


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options."""
    made_parser = parser(__doc__, "made mentions and two runs", data="the sets", fresh="do all blocks")
    add = made_parser.add_argument
    add("--unscored", choices=("whoiswho", "acl2019", ""), default="whoiswho", help="unlabelled mentions to join")
    add("--blocks", type=int, help="most scored blocks, and as many unlabelled ones (default: all; quick 2)")
    add("--least", type=int, default=2, help="mentions of a block below which it is left out")
    add("--most", type=int, default=6000, help="mentions of a block above which it is left out")
    add("--runs", type=int, help="runs of each sampler (default 7, quick 2)")
    add("--sweeps", type=int, help="sweeps over all mentions (default 15, quick 8)")
    add("--hot", type=float, default=2.0, help="temperature of the first sweep")
    add("--cold", type=float, default=0.2, help="temperature of the last sweep")
    add("--delta", type=float, default=0.05, help="probability of a wrong draw")
    add("--draw", type=Path, metavar="TABLE", help="draw the picture of a csv file of an earlier run, and nothing else")
    options = made_parser.parse_args(arguments)
    options.runs = options.runs or (2 if options.quick else 7)
    options.sweeps = options.sweeps or (8 if options.quick else 15)
    if options.draw and not options.draw.exists():
        made_parser.error(f"there is no table {str(options.draw)!r}")
    if options.runs < 1 or options.sweeps < 2 or not 0.0 < options.delta < 1.0 or not 0.0 < options.cold <= options.hot:
        made_parser.error("a run, two sweeps, a delta in (0, 1) and temperatures above 0 are needed")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment; return the exit status."""
    options = parse(arguments)
    if options.draw:
        print(f"wrote {draw(options.draw)}")
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    records: list[Record] = []
    n_mentions = 0
    try:
        with meter("blocks", None, options.progress) as done:
            for block in made(options) if options.quick else real(options):
                records.append(sample(block, options))
                n_mentions += len(block.person)
                done(len(records))
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"stopped after {len(records)} blocks; the same command goes on from there", file=sys.stderr)
    if not records:
        return 1
    record = added(records)
    print_table(record, len(records), n_mentions, options)
    print("wrote {}, {}".format(*write(record, options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
