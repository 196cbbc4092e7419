"""How often set-up reads the rows of a `GLM`, and which code does."""

import sys
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest

import fastrace.likelihoods
from fastrace._models import glm_inputs
from fastrace.mcmc.models.base import Model


class _Counted(np.ndarray):
    """Rows that note how many of them are taken. What is computed of them is of the plain kind."""

    to = None

    def __array_finalize__(self, other):
        self.to = getattr(other, "to", None)

    def __getitem__(self, key):
        out = super().__getitem__(key).view(np.ndarray)
        if self.to is not None and self.ndim == 2:
            self.to[_reader()] += len(out)
        return out


def _reader():
    """The functions of fastrace that are at work, the innermost first."""
    frame, out = sys._getframe(2), []
    while frame is not None and len(out) < 4:
        name = frame.f_code.co_name
        if "fastrace" in frame.f_globals.get("__name__", "") and not name.startswith("<"):
            out.append(name)
        frame = frame.f_back
    return " < ".join(out)


@contextmanager
def passes():
    """Counter of rows that are read of dense tables, by reader.

    Compiled reads of single rows, as of chains, are not in it. Compiled sums over all rows go along with slices of X,
    but for that of `Model._rounding`.
    """
    found = Counter()
    table, finite, rounding = glm_inputs.design_table, glm_inputs.require_finite, Model._rounding

    def counted_table(X, check_finite):
        out = np.asarray(table(X, check_finite)).view(_Counted)
        out.to = found
        return out

    def counted_finite(X, names):
        found["require_finite"] += len(X)
        finite(X, names)

    def counted_rounding(self, hat):
        found["_rounding"] += self.n_rows
        return rounding(self, hat)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastrace.likelihoods, "design_table", counted_table)
        patch.setattr(glm_inputs, "require_finite", counted_finite)
        patch.setattr(Model, "_rounding", counted_rounding)
        yield found
