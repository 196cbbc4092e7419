"""Damaged saved states of every class that saves itself, by the fuzz target on random bytes."""

import numpy as np
import pytest

import catalogue
from fuzz import fuzz_restore
from guarantee import few_or_many

NAMES = [name for name in catalogue.OBJECTS if fuzz_restore.saved(name)]


@few_or_many("states", 8, 400)
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_state_is_refused_or_does_no_harm(name, states, seed):
    rng = np.random.default_rng([seed, *name.encode()])
    for _ in range(states):
        data = rng.bytes(40)
        try:
            fuzz_restore.fuzz(data, [name])
        except BaseException:
            print(f"fuzz_restore.fuzz(bytes.fromhex({data.hex()!r}), [{name!r}])")
            raise


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mcmc.models.model.NoModeError"])
def test_a_state_of_another_version_or_with_missing_parts_is_refused_by_name(name):
    rebuild, (version, *state), *_ = catalogue.made(name).__reduce__()
    assert isinstance(version, int)
    for other in (version + 1, version - 1, None, str(version), version + 0.5, np.array([version, version])):
        with pytest.raises(ValueError, match=r"^this \w+ was pickled as version .*; this fastrace reads version \d"):
            rebuild(other, *state)
    if name == "control_variates.BinnedTaylor":        # it calls a function of the user, whose errors pass unchanged
        return
    for given in ([], state[:-2], [None] * len(state)):
        with pytest.raises(ValueError, match=r"^the saved [\w ]+ is damaged: "):
            rebuild(version, *given)
