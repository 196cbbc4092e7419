"""Chances of rewards that are 0 or 1, by enumeration: a promise is kept or broken, and no trial has to be lucky.

Trials alone refuse a rule that breaks its promise by little only if they are thousands. Where what a rule says depends
on how many rewards of each arm were 1, and not on their order, all that can happen is a table of few cells; where it
depends on the order, all orders of a dozen rewards are few too.
"""

import itertools

import numpy as np
from scipy import stats

SELDOM = 1e-7       # a state of less chance is left alone, as if all were well there


def chance_of_a_miss(missed, looks, rates):
    """Chance, or little less, that ``missed(pulls, ones)`` is true at any look, for rewards of 1 with these rates.

    `looks` has tuples of growing numbers of pulls, one by arm, at each of which somebody looks.
    """
    chance, held, before = 0.0, np.ones([1] * len(rates)), (0,) * len(rates)
    for pulls in looks:
        for axis, (now, then, rate) in enumerate(zip(pulls, before, rates, strict=True)):
            more = stats.binom.pmf(np.arange(now - then + 1), now - then, rate)
            held = np.apply_along_axis(np.convolve, axis, held, more)
        before = pulls
        for ones in map(tuple, np.argwhere(held > SELDOM).tolist()):
            if missed(pulls, ones):
                chance += held[ones]
                held[ones] = 0.0
    return chance


def chance_over_orders(missed, n, rate):
    """Chance that ``missed(rewards)`` is true of n rewards, each of them 1 with this rate, over all their orders."""
    chance = 0.0
    for rewards in itertools.product((0.0, 1.0), repeat=n):
        ones = int(sum(rewards))
        if missed(np.array(rewards)):
            chance += rate**ones * (1.0 - rate) ** (n - ones)
    return chance


def every_reward(order, n):
    """Looks after each of n rewards, of arms that take turns in this order."""
    pulls, found = [0] * (max(order) + 1), []
    for arm in itertools.islice(itertools.cycle(order), n):
        pulls[arm] += 1
        found.append(tuple(pulls))
    return found


def chance_over_paths(missed, n, rate, seldom=0.0):
    """Chance that ``missed(rewards)`` is true after any of n rewards, each of them 1 with this rate.

    For what is said by the number of rewards and of ones among them, as long as nothing was missed before: one way to
    each number is tried. Numbers of a chance up to `seldom` are given up, as if all were well from there on.
    """
    chance, held = 0.0, {0: (1.0, ())}
    for _ in range(n):
        ways = {}
        for ones, (p, rewards) in held.items():
            for reward, q in ((0.0, 1.0 - rate), (1.0, rate)):
                more = ones + int(reward)
                before, way = ways.get(more, (0.0, (*rewards, reward)))
                ways[more] = before + p * q, way
        ways = {ones: found for ones, found in ways.items() if found[0] > seldom}
        fell = {ones for ones, (_, rewards) in ways.items() if missed(np.array(rewards))}
        chance += sum(ways[ones][0] for ones in fell)
        held = {ones: way for ones, way in ways.items() if ones not in fell}
    return chance
