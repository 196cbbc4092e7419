"""Calls of the command `fastrace`, and files for it."""

import numpy as np
import pytest

from fastrace import cli


def three_columns(rng):
    """A table whose second column has the largest mean."""
    values = rng.random((5000, 3))
    values[:, 1] += 0.2
    return values


def say(capsys, *arguments):
    """Exit status, standard output and standard error of one call."""
    status = cli.main([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


def written(frame, path):
    """A frame as csv or parquet, by the end of the name."""
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    return path


def save(path, table, names="abc"):
    """A table as npy, csv or parquet."""
    if path.suffix == ".npy":
        np.save(path, table)
        return path
    pd = pytest.importorskip("pandas")
    return written(pd.DataFrame(table, columns=list(names)), path)
