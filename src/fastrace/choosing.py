"""One call that selects the m best of n arms by any of the rules."""

from __future__ import annotations

from typing import Any

from fastrace import _checks, _progress, selection
from fastrace.adaptive_selection import Adapt
from fastrace.lucb import KLLUCB, LUCB, SAR
from fastrace.pulls import ResampledPulls, as_pulls
from fastrace.results import SelectionResult
from fastrace.sources import Source

METHODS = ("auto", "lucb", "kl-lucb", "adapt", "direct", "halving", "incremental", "median-elimination", "sar")


def select_best(
    pull: Any,
    n_arms: int,
    n_best: int = 1,
    epsilon: float = 0.0,
    delta: float = 0.05,
    *,
    method: str = "auto",
    support: _checks.Support = (0.0, 1.0),
    max_pulls: int | None = None,
    progress: bool = False,
    rng: _checks.RngLike = None,
    **options: Any,
) -> SelectionResult:
    r"""Select the m best of n arms from noisy rewards, with few pulls and a stated probability of error.

    Parameters
    ----------
    pull : callable, PullSource, array_like, object with a method `pull`, LowLevelCallable or Source
        Where rewards come from. A function ``pull(arms, counts)`` returns ``counts[0]`` rewards of ``arms[0]``, then
        ``counts[1]`` of ``arms[1]`` and so on, flat or as a list of arrays, one per arm; an object's method `pull` does
        the same. A table of shape (n_recorded, n_arms) holds rewards drawn beforehand, used from the top down. A
        `Source`, a population of rows, is read at random rows drawn with `rng`, with replacement. See
        `fastrace.pulls.as_pulls`.
    n_arms : int
        Number of arms.
    n_best : int, default 1
        Arms to select.
    epsilon : float, default 0.0
        Accuracy in reward units: an arm within `epsilon` of the `n_best`-th largest mean is good enough.
    delta : float, default 0.05
        Probability that an arm of the answer is not good enough, in (0, 1).
    method : str, default "auto"
        ``"auto"`` and ``"lucb"``: `LUCB` with the bound ``"eb-mix"``, see the notes. By name: ``"kl-lucb"``,
        ``"adapt"``, ``"direct"``, ``"halving"``, ``"incremental"``, ``"median-elimination"`` (one best arm), and
        ``"sar"``, which spends `max_pulls` and takes no epsilon.
    support : tuple of float or of arrays of shape (n_arms,), default (0, 1)
        Interval (low, high) that holds every reward, of each arm.
    max_pulls : int, optional
        Pulls after which to stop with the best answer so far, ``stopped_by="max_pulls"`` and an error bound that says
        what it is worth.
    progress : bool, default False
        Show the pulls made, against `max_pulls` if that is given, on standard error; needs rich.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness of rules and sources that draw.
    **options
        Passed on to the rule, such as ``bound``, ``split`` or ``batch``.

    Returns
    -------
    SelectionResult

    Raises
    ------
    ValueError
        If a parameter is out of range, or a reward is nan or outside the support; the error names the arm.

    Notes
    -----
    Why the default is what it is: mean pulls to the stop with uniform rewards of standard deviation 1, means uniform in
    [0, 1], 15 of 50 arms, epsilon 0.1, delta 0.15 (fresh means in each run), and for Bernoulli rewards at epsilon 0,
    delta 0.1: one mean of 0.55 amid nine of 0.45, one of 0.6 amid 99 of 0.4, five of 0.10 amid 15 from 0.02 to 0.05.

    =======================  =======  ========  ======  =======  =======
    rule                     proof    15 of 50  0.55    0.6      0.10
    =======================  =======  ========  ======  =======  =======
    LUCB, "eb-mix"           yes        36 200   8 300   23 800   20 800
    LUCB, "eb-stitch"        yes        68 300  16 300   37 000   34 000
    LUCB, "hoeffding-mix"    yes       103 000   7 520   25 300   58 100
    KL-LUCB                  yes       390 000  35 400   69 900   64 200
    LUCB, "hoeffding-lil"    yes       701 000  60 600  109 000  454 000
    LUCB, "lucb1"            yes       812 000  73 700  143 000  541 000
    Direct                   yes       697 000
    KL-LUCB, rate="easy"     no                  6 300   11 600   11 400
    the same, split="sides"  no                  8 750   14 600   16 600
    ADAPT                    no         46 200
    =======================  =======  ========  ======  =======  =======

    KL-LUCB with the easy rate need not stop: one of its 100 runs of the last column was left out, as it had not stopped
    after a million pulls. ADAPT took more pulls than the default in each of 40 runs of the first column, and may take
    fewer where nearly all arms are tied within `epsilon`.

    See Also
    --------
    LUCB : the rule itself, to be driven by hand, saved, and continued after an error.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rng = np.random.default_rng(1)
    >>> means = np.linspace(0.1, 0.9, 20)
    >>> def pull(arms, counts):
    ...     return rng.random(counts.sum()) < np.repeat(means[arms], counts)
    >>> result = fr.select_best(pull, 20, 3, epsilon=0.05)
    >>> sorted(result.best.tolist())
    [17, 18, 19]
    """
    name = _checks.choice(method, "method", METHODS)
    generator = _checks.generator(rng)
    limit = None if max_pulls is None else _checks.integer(max_pulls, "max_pulls", 0, "it counts pulls")
    rule = _rule(name, n_arms, n_best, epsilon, delta, support, limit, generator, options)
    if isinstance(pull, Source):
        source = as_pulls(ResampledPulls(pull, rng=generator.spawn(1)[0]), rule._n_arms)
    else:
        source = as_pulls(pull, rule._n_arms)
    with _progress.meter("pulls", limit, progress) as show:
        while progress and not rule.done and (limit is None or rule.n_pulls < limit):
            part = rule.n_pulls + max(100, rule.n_pulls // 10)
            rule.run(source, part if limit is None else min(part, limit))
            show(rule.n_pulls)
        return rule.run(source, limit)


def _rule(
    name: str,
    n_arms: int,
    n_best: int,
    epsilon: float,
    delta: float,
    support: _checks.Support,
    limit: int | None,
    rng: _checks.Generator,
    options: dict[str, Any],
) -> selection.Selection:
    """The rule of that name."""
    if name == "sar":
        if limit is None:
            raise ValueError("max_pulls is None; method 'sar' spends a budget: say how many pulls it is")
        return SAR(n_arms, n_best, limit, support, delta, rng=rng, **options)
    if name == "median-elimination":
        if n_best != 1:
            raise ValueError(f"n_best is {n_best}; median elimination finds one arm: use incremental, or the default")
        return selection.MedianElimination(n_arms, epsilon, delta, support, rng=rng, **options)
    rules: dict[str, Any] = {
        "auto": LUCB,
        "lucb": LUCB,
        "kl-lucb": KLLUCB,
        "adapt": Adapt,
        "direct": selection.Direct,
        "halving": selection.Halving,
        "incremental": selection.Incremental,
    }
    found: selection.Selection = rules[name](n_arms, n_best, epsilon, delta, support, rng=rng, **options)
    return found
