"""Metropolis-Hastings whose accept decisions are races."""

from __future__ import annotations

from numpy.typing import ArrayLike

from fastrace.mcmc.kernels._metropolis import Propose, RowMetropolis
from fastrace.mcmc.kernels._racing import Racing
from fastrace.mcmc.models.model import Model, Reference
from fastrace.races._options import RaceOptions, takes_options


class RacingMetropolis(Racing, RowMetropolis):
    r"""Metropolis-Hastings that reads only as many rows as each accept decision needs.

    Parameters
    ----------
    model : GLM, Softmax, FunctionModel, SourceModel or other Model
        Log-likelihood terms and prior.
    delta : float, default 0.05
        Probability that a decision differs from the exact one, in (0, 1).
    bound : str, default "auto"
        "betting" is rigorous: it needs a bound on how far each row's term can change. `GLM` and `Softmax` know one for
        what their control variate leaves, and so does a model with ``third_derivatives``; rows are then drawn in
        proportion to their bounds. "normal" needs none; it rests on means being nearly normal, and has a guard where
        they are not, see `AcceptTest`. "auto" is betting where bounds are known and so small that it reads about as
        many rows as the normal rule, as for a `GLM` of up to some 30 parameters; else it is normal with a control
        variate, and as in `AcceptTest` without. The attribute `bound` says which. Others as in `AcceptTest`.
    proposal : str or callable, default "auto"
        "crank-nicolson": :math:`\theta' = c + \sqrt{1 - s^2} (\theta - c) + s L \xi`, which leaves the reference, a
        normal density near the posterior, invariant [3]_. "independent": draws from the reference. "langevin": a step
        along the gradient of the reference. "student-t": draws from a Student-t density whose center, scale and degrees
        of freedom a pilot of some 2,500 steps, always from one seed, finds when the kernel is made; for posteriors
        that lean or have long tails. "random-walk". Or a function ``(rng, theta)`` that returns a proposal and
        ``log q(theta | proposal) - log q(proposal | theta)``. "auto" is the first with a control variate, or
        "student-t" where the rows bend so unequally that balls have bounds of their own (`Reference.shells`) and the
        pilot's draws are likelier under that density than under the reference; without a control variate the random
        walk.
    size : float, default 1.0
        Size of the proposal at the start: s for "crank-nicolson", else in units of the usual scale (2.38 / sqrt(d)
        standard deviations for random walks). Tuning changes it.
    walk_share : float, default 0.1
        Share of random-walk steps among those of all other named proposals, decided at once: from
        far out in a tail heavier than the reference's they get away, which the others may not. Of "random-walk" and of
        a function, the share of steps whose acceptance is not delayed: no state near a wrong reference holds the chain.
    covariance : array_like of shape (dim, dim), optional
        Of a random walk, for models without derivatives; taken from the draws while tuning.
    control_variate : "auto", None, array_like of shape (dim,) or Reference, default "auto"
        What is known of the log-likelihood without its rows: its second-order expansion at the posterior mode, or at
        the point given. "auto" has it where the model gives derivatives.
    delayed : bool, default True
        Screen a proposal by the expansion first, then race [4]_, if the state and the proposal
        are both within ``sqrt(dim) + 3`` standard deviations of the reference; see the notes.
    first_look, growth
        As in `AcceptTest`. Where rows are drawn in proportion to bounds, the first look is at 16 draws by default, and
        each further one after a quarter more.
    access : {"auto", "random", "shuffled"}, default "auto"
        Which rows a race reads. "random": a subset drawn afresh for each race. "shuffled": consecutive rows from a
        random start, of rows that the model has put in random order, ``GLM(..., shuffle=1)``; each decision then keeps
        its promise over that shuffle, which all decisions of the model share. "auto": "shuffled" if the model
        shuffles its rows.
    student, skewness_guard, scan_advantage
        As in `AcceptTest`. Where rows are drawn in proportion to bounds, a race turns to a full pass also at a
        `scan_advantage` of 1: once it seems to need more draws than the data have rows, since draws with replacement
        make no decision exact.
    options : RaceOptions, optional
        Options said once for several races; what is spelled here goes before them.

    Raises
    ------
    ValueError
        If an argument is out of range, or a rigorous bound has no support.

    See Also
    --------
    PoissonMinibatchMetropolis : exact, where a bound on each row's third derivative is known.
    Metropolis : reads all rows.

    Notes
    -----
    Each transition is within total variation `delta` of the exact one [1]_: with "betting" whatever the data, with
    "normal" as far as means are normal. Where all rows together are bounded, most steps are decided before a row is
    read: those are exact. A race that forecasts that it needs most rows turns to one pass over all of them; so does,
    without a control variate, nearly every race at the scale of a posterior: it then pays no more than `Metropolis`,
    and no less.

    With "betting" and a bound :math:`|d_i| \le w_i M` on the change of each row's term, a race draws rows with
    replacement, row i with probability :math:`w_i / W`, and bets on :math:`d_i / (w_i M)`, whose mean is
    :math:`\sum d / (W M)` [5]_. With 10^5 rows and 5, 10, 20 and 30 parameters it read 10, 111, 869 and 1325 rows a
    step of a logistic and 149, 247, 411 and 1121 of a Poisson regression, where the guarded normal rule read 37, 108,
    910, 1174 and 315, 521, 1086, 1957; its rows cost twice as much time. The terms of Poisson regression are bounded
    only near the mode: a step that leaves a ball of radius sqrt(d) + 5 standard deviations reads all rows.

    Delayed acceptance rejects a proposal that the expansion speaks against, whatever the rows would say. Far from the
    reference the expansion is wrong, and a chain there would stay. So acceptance is delayed only between two states
    near the reference, and decided at once if one of them is not. The posterior stays invariant: with a the ratio that
    is known without rows and b what the rows make of the rest, both ``min(1, a) min(1, b)`` and ``min(1, a b)`` balance
    the two directions of a move, and which of them decides depends on the pair of states, not on its direction.

    While tuning, a chain that is not yet near makes random-walk steps, half of them as long as its distance asks for;
    the proposal adapts when it has arrived, or comes no nearer. With ``n_tune=0`` only `walk_share` leads back.

    Which kernel: for a GLM `PoissonMinibatchMetropolis`, which is exact. Its bounds grow like ``|x|^3``, so its lead
    shrinks with the dimension; `docs/chains.md` has figures, bench/benchmarks/mcmc.py measures them. For terms without
    known bounds, the race.

    Over data far larger than the cache give ``shuffle=``: a step then takes as long with 10^6 rows as with 10^5.
    Without it races read rows from all over memory, which takes 1.5 to 3 times as long.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, eq. 12.
    .. [2] Bardenet, Doucet, Holmes, "On Markov chain Monte Carlo methods for tall data", JMLR 18(47), 2017.
    .. [3] Cotter, Roberts, Stuart, White, "MCMC methods for functions", Statistical Science 28(3), 2013.
    .. [4] Christen, Fox, "Markov chain Monte Carlo using an approximation", JCGS 14(4), 2005.
    .. [5] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0]))
    >>> kernel = mcmc.RacingMetropolis(mcmc.GLM(X, y, prior_sd=10.0))
    >>> trace = mcmc.sample(kernel, n_draws=2000, n_chains=2, rng=1)
    >>> bool(trace.rows.mean() < 100)
    True
    """

    @takes_options
    def __init__(
        self,
        model: Model,
        delta: float = 0.05,
        bound: str = "auto",
        *,
        proposal: str | Propose = "auto",
        size: float = 1.0,
        walk_share: float = 0.1,
        covariance: ArrayLike | None = None,
        control_variate: str | ArrayLike | Reference | None = "auto",
        delayed: bool = True,
        first_look: int | None = None,
        growth: float | None = None,
        access: str = "auto",
        student: bool = False,
        skewness_guard: bool | None = None,
        scan_advantage: float | None = None,
        options: RaceOptions | None = None,
    ) -> None:
        RowMetropolis.__init__(self, model, proposal=proposal, size=size, walk_share=walk_share, covariance=covariance,
                               control_variate=control_variate, delayed=delayed)
        self._race_by(delta, bound, first_look, growth, access, student, skewness_guard, scan_advantage)
