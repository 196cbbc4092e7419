"""Every public name with every argument replaced by nonsense: words of the package, or a right answer; nothing else.

No crash, hang, leaking warning, error of another kind, or error in the words of NumPy. `tests/nonsense.py` has the good
arguments, the nonsense and the walk.
"""

import sys

import nonsense
import pytest

from fastrace import mcmc

pytestmark = [pytest.mark.resources,
              pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")]
NAMES = list(nonsense.names())
FEW = {"good", "None", "nan", "-1", "1e9", "text", "[]", "no numbers", "ragged", "object"}


def walked(name, only):
    if name.startswith(nonsense.OF_SKLEARN):
        pytest.importorskip("sklearn")
    wrong, count = nonsense.walk(name, only)
    assert count and not wrong, "\n".join(f"{name}({key}={what}): {words}" for (key, what), words in wrong.items())


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("SearchCV")])
def test_some_nonsense_is_refused_in_words(name):
    walked(name, lambda key, what: what in FEW)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_all_nonsense_is_refused_in_words(name):
    walked(name, lambda key, what: True)


@pytest.mark.parametrize("size", [{"n_draws": 10**15}, {"n_chains": 10**12}, {"n_draws": 10**10, "n_chains": 1000}])
def test_draws_that_no_memory_holds_are_refused_before_they_are_asked_for(size):
    with pytest.raises(ValueError, match="n_draws is .* and n_chains .*: the draws would take .* bytes of memory"):
        mcmc.sample(mcmc.Metropolis(nonsense.glm()), **size)


@pytest.mark.parametrize("make", [lambda: mcmc.SurrogateMetropolis(nonsense.glm(), n_inner=10**9),
                                  lambda: mcmc.VariableSelection(nonsense.glm(), n_flips=10**9)])
def test_a_step_that_nothing_could_interrupt_is_refused(make):
    with pytest.raises(ValueError, match="at most 1048576 .*in one step, which nothing interrupts"):
        make()
