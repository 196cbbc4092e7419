"""Damaged saved states of every class that saves itself, by the fuzz target on random bytes."""

import numpy as np
import pytest

import catalogue
from fuzz import fuzz_restore

NAMES = [name for name in catalogue.OBJECTS if fuzz_restore.saved(name)]


@pytest.mark.parametrize("name", NAMES)
def test_c2_19_a_damaged_state_is_refused_or_does_no_harm(name, seed):
    rng = np.random.default_rng([seed, *name.encode()])
    for _ in range(40):
        data = rng.bytes(40)
        try:
            fuzz_restore.fuzz(data, [name])
        except BaseException:
            print(f"fuzz_restore.fuzz(bytes.fromhex({data.hex()!r}), [{name!r}])")
            raise
