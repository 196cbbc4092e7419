"""A cell of a table is paid for once, and a selection ends with it: rules, sources, costs, budgets, faults, saving."""

import copy
import pickle

import numpy as np
import pytest

import fastrace as fr
from fastrace.pulls import ResampledPulls
from fastrace.select._ledger import Ledger
from guarantee import assert_rate_at_most, few_or_many

RULES = {
    "pairs": lambda **options: fr.LUCB(4, 1, rng=1, **options),
    "rounds": lambda **options: fr.LUCB(4, 1, paired=True, rng=1, **options),
    "intervals": lambda **options: fr.LUCB(4, 1, bound="eb-mix", rng=1, **options),
    "no support": lambda **options: fr.LUCB(4, 1, support=None, first_look=20, rng=1, **options),
}
N_ROWS = 300


def near_tie(seed):
    """Two arms of nearly equal means, two that are far below."""
    rng = np.random.default_rng(seed)
    table = rng.random((N_ROWS, 4)) * [1.0, 1.0, 0.5, 0.3]
    table[:, 1] += table[:, 0].mean() - table[:, 1].mean() - 1e-4
    return np.clip(table, 0.0, 1.0)


class Paid:
    """A function of rewards that keeps which cells it was paid for, and raises at some calls."""

    def __init__(self, table, fails=()):
        self.table, self.fails, self.calls, self.cells = table, set(fails), 0, []

    def __call__(self, arms, rows):
        self.calls += 1
        if self.calls in self.fails:
            raise ConnectionError("no answer")
        self.cells += [(arm, row) for arm in arms.tolist() for row in rows.tolist()]
        return self.table[np.ix_(rows, arms)]

    def source(self):
        return fr.sources.as_source(self, 4, N_ROWS)

    def by_arm(self):
        return np.bincount([arm for arm, _ in self.cells], minlength=4).tolist()


@pytest.mark.parametrize("name", RULES)
def test_no_cell_is_paid_for_twice_and_only_arms_in_contention_are_read_to_the_end(name, seed):
    table = near_tie(seed)
    paid = Paid(table)
    cost = np.array([1.0, 2.0, 3.0, 4.0])
    rule = RULES[name](cost=cost)
    result = rule.run(paid.source())
    assert result.stopped_by == "exact" and rule.done and result.best == table.mean(axis=0).argmax()
    assert len(set(paid.cells)) == len(paid.cells) == result.n_read
    assert paid.by_arm() == result.pulls.tolist() and result.cost == result.pulls @ cost
    read = result.pulls == N_ROWS
    assert read[:2].all() and result.mean[read] == pytest.approx(table.mean(axis=0)[read])
    assert (result.lower == result.upper).tolist() == read.tolist()
    assert result.error_bound == (0.0 if read.all() else rule._delta)
    assert result.kind == ("asymptotic" if name == "no support" and not read.all() else "exact")
    assert not read[2:].any()
    assert (result.lower <= table.mean(axis=0) + 1e-12).all() and (table.mean(axis=0) <= result.upper + 1e-12).all()
    again = rule.run(table)
    assert again == result or again.to_dict() == result.to_dict()
    memory = RULES[name](cost=cost).run(table)       # marked by bits, read from memory
    assert memory.pulls.tolist() == result.pulls.tolist() and memory.n_repeated == result.n_repeated
    np.testing.assert_array_equal(memory.mean, result.mean)


@pytest.mark.parametrize("name", RULES)
def test_pulls_are_those_of_draws_with_replacement(name, seed):
    table = np.random.default_rng(seed).random((N_ROWS, 4))
    rule, free = RULES[name](), RULES[name]()
    result = rule.run(Paid(table).source(), 250, rng=seed)
    drawn = free.run(ResampledPulls(table, seed, paired=name == "rounds"), rule.n_pulls)
    assert rule.n_pulls == result.n_read + result.n_repeated > 250
    np.testing.assert_array_equal(result.mean, drawn.mean)
    for field in ("lower", "upper", "error_bound"):     # their sums are added up in other parts
        np.testing.assert_allclose(getattr(result, field), getattr(drawn, field), rtol=1e-12)


@pytest.mark.parametrize("limit", [400, 700, 1199])
def test_a_budget_counts_cells_and_is_kept(limit, seed):
    table = np.random.default_rng(seed).permutation(np.tile(np.arange(N_ROWS) / N_ROWS, (4, 1)).T)
    for make in RULES.values():
        paid, rule = Paid(table), make(delta=1e-6)      # arms of one mean are told apart in a share delta of runs
        result = rule.run(paid.source(), limit)
        assert result.stopped_by == "max_pulls" and limit - 4 < result.n_read == len(paid.cells) <= limit
        assert rule.run(paid.source()).stopped_by == "exact" and len(set(paid.cells)) == len(paid.cells) == 1200


def test_the_end_is_sooner_where_what_is_left_is_cheaper(seed):
    table = near_tie(seed)
    rules = [fr.LUCB(4, 1, rng=1, cost=cost) for cost in (None, [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 5.0, 5.0])]
    found = [rule.run(table) for rule in rules]
    assert all(rule.n_pulls < 1.3 * 2 * N_ROWS + 200 for rule in rules)         # of 1200 cells
    assert [result.pulls.tolist() for result in found[:2]] == [found[0].pulls.tolist()] * 2
    assert all((result.pulls[2:] < N_ROWS).all() for result in found)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("at", [2, 9, -1])
def test_an_interruption_loses_no_cell(name, at, seed):
    table = near_tie(seed)
    whole = Paid(table)
    RULES[name]().run(whole.source())
    paid = Paid(table, {at % whole.calls + 1})
    rule = RULES[name]()
    with pytest.raises(ConnectionError) as caught:
        rule.run(paid.source())
    assert caught.value.rule is rule and rule.result().n_read <= len(paid.cells)
    for other in (copy.copy(rule), copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):
        on = Paid(table)
        on.cells = list(paid.cells)
        result = other.run(on.source())
        assert result.stopped_by == "exact" and len(set(on.cells)) == len(on.cells) == result.n_read
    assert rule.run(paid.source()).n_read == len(set(paid.cells)) == len(paid.cells)


def test_a_reward_that_was_refused_is_asked_for_again(seed):
    table = near_tie(seed)
    wrong = table.copy()
    wrong[7, 0] = np.nan
    paid, rule = Paid(wrong), fr.LUCB(4, 1, rng=1)
    with pytest.raises(ValueError, match="reward .* of arm 0 is nan|arm 0 on row 7 is nan"):
        rule.run(paid.source())
    paid.table = table
    result = rule.run(paid.source())
    assert result.stopped_by == "exact" and paid.cells.count((0, 7)) == 2
    assert len(set(paid.cells)) == len(paid.cells) - 1


def test_a_saved_rule_has_what_it_read(seed):
    table = near_tie(seed)
    for source in (table, Paid(table).source()):
        for limit in (100, 500):
            rule = fr.LUCB(4, 1, rng=1)
            rule.run(source, limit)
            again = pickle.loads(pickle.dumps(rule))
            assert again._ledger.n_known.tolist() == rule._ledger.n_known.tolist()
            one, other = rule.run(source), again.run(source)
            assert one.to_dict() == other.to_dict() and one.stopped_by == "exact"
            assert pickle.loads(pickle.dumps(rule)).result().to_dict() == one.to_dict()
    rule._exact["mean"][:] = np.nan
    with pytest.raises(ValueError, match="damaged"):
        pickle.loads(pickle.dumps(rule))


def test_a_ledger_knows_what_was_read(seed):
    """Against a set and a dict."""
    rng = np.random.default_rng(seed)
    table = rng.random((1000, 5))
    for keeps in (False, True):
        ledger, known = Ledger(5, 1000, keeps).over(fr.sources.as_source(table)), set()
        for _ in range(60):
            arms, rows = rng.permutation(5)[: rng.integers(1, 6)], rng.integers(0, 1000, rng.integers(1, 200))
            np.testing.assert_array_equal(ledger.read(rows, arms), table[np.ix_(rows, arms)])
            known |= {(arm, row) for arm in arms.tolist() for row in rows.tolist()}
            ledger = pickle.loads(pickle.dumps(ledger)).over(fr.sources.as_source(table))
            assert ledger.n_known.tolist() == [sum(arm == i for arm, _ in known) for i in range(5)]
        low = np.array([0.0, 0.0, 0.5, 0.0, 0.0])
        ledger.forget(low, np.ones(5), False)
        kept = [(arm, row) for arm, row in known if not keeps or table[row, arm] >= low[arm]]
        assert int(ledger.n_known.sum()) == len(kept)


@few_or_many("trials", 40, 1000)
def test_the_best_is_promised_where_arms_were_left_out_before_the_end(trials, seed):
    wrong, early, delta = 0, 0, 0.1
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        table = (rng.random((120, 5)) < rng.uniform(0.2, 0.8, 5)).astype(float)
        table[:, 1] = rng.permutation(table[:, 0])
        result = fr.LUCB(5, 2, delta=delta, rng=rng).run(table)
        mean = table.mean(axis=0)
        wrong += mean[result.best].min() < np.sort(mean)[-2] - 1e-12
        early += result.stopped_by == "exact" and result.error_bound > 0.0
    assert early > trials // 10
    assert_rate_at_most(wrong, trials, delta)
