"""A stranger's extension, built with setuptools against the installed package, delivers rewards without the GIL."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastrace

CONSUMER = Path(__file__).parent / "cimport_consumer"


def run(folder, *command, **environment):
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False,
                          env=os.environ | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_stranger_subclasses_source(tmp_path):
    pytest.importorskip("Cython")
    pytest.importorskip("setuptools")
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc").split()[0], "gcc", "clang", "cl")):
        pytest.skip("no C compiler at hand")
    folder = tmp_path / "consumer"
    shutil.copytree(CONSUMER, folder)
    root = Path(fastrace.__file__).parent.parent
    found_by_cython = any(Path(entry or ".").resolve() == root.resolve() for entry in sys.path)
    run(folder, "setup.py", "-q", "build_ext", "--inplace", CYTHON_INCLUDE="" if found_by_cython else str(root),
        CFLAGS="-O0")
    assert run(folder, "drive.py") == "done\n"
