"""The scripts of examples/: short, by public names only, and each runs, prints and draws."""

import ast
import importlib
import os
import shlex
import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(file.stem for file in EXAMPLES.glob("*.py"))
SLOW = {"pymc_model"}               # compiles for long


def names_used(tree):
    """Dotted names of what a script imports, and names of attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.attr


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_is_short_uses_public_names_and_says_when_not_to_race(script):
    text = (EXAMPLES / f"{script}.py").read_text(encoding="utf-8")
    assert 30 <= len(text.splitlines()) <= 80
    tree = ast.parse(text)
    for name in names_used(tree):
        assert not any(part.startswith("_") for part in name.split(".")), name
    words = " ".join(ast.get_docstring(tree).split())
    assert "dull way" in words and "wins" in words
    assert f"`{script}.py`" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("script", [pytest.param(script, marks=pytest.mark.long) if script in SLOW else script
                                    for script in SCRIPTS])
def test_an_example_runs_prints_and_draws(script, tmp_path, monkeypatch, capsys):
    if script == "own_likelihood_compiled" and shutil.which(shlex.split(os.environ.get("CC", "cc"))[0]) is None:
        pytest.skip("needs a C compiler")
    if script == "pymc_model":
        pytest.importorskip("pymc")
    monkeypatch.syspath_prepend(EXAMPLES)
    importlib.import_module(script).main(tmp_path / "picture.png")
    assert capsys.readouterr().out.count("\n") >= 2
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
