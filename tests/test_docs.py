"""Examples in docstrings and in the README run and print what they say."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import fastrace

ROOT = Path(__file__).resolve().parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SOURCE = ROOT / "src" / "fastrace"
PUBLIC = sorted(
    ".".join(file.relative_to(SOURCE).with_suffix("").parts)
    for file in SOURCE.rglob("*.py*")
    if file.suffix in (".py", ".pyx") and file.stem not in ("__init__", "cli", "demo")
)

FRAMEWORKS = {
    "mcmc.doors.blackjax": ["blackjax"],
    "mcmc.doors.emcee": ["emcee"],
    "mcmc.doors.jax._compiled": ["jax"],
    "mcmc.doors.jax._gibbs": ["jax"],
    "mcmc.doors.jax._metropolis": ["jax"],
    "mcmc.doors.jax._races": ["jax"],
    "mcmc.doors.jax._xla": ["jax"],
    "mcmc.doors.jax._xla_chain": ["jax"],
    "mcmc.doors.numpyro": ["numpyro"],
    "mcmc.doors.pymc._graphs": ["pymc"],
    "mcmc.doors.pymc.models": ["pymc"],
    "mcmc.doors.pymc.steps": ["pymc"],
}  # tests/mcmc/


def _run(test, **options):
    said = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append, **options)
    assert not said, "".join(said)


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_in_docstrings(name):
    for package in FRAMEWORKS.get(name, ()):
        pytest.importorskip(package)
    module = importlib.import_module(f"fastrace.{name}")
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
        _run(test)


def test_public_classes_and_functions_have_an_example():
    """Everything that can be called by a name of `fastrace` shows how."""
    missing = [
        name for name in fastrace.__all__
        if callable(getattr(fastrace, name)) and ">>>" not in (getattr(fastrace, name).__doc__ or "")
        and not hasattr(getattr(fastrace, name), "__dataclass_fields__")
    ]
    assert not missing, f"without an example: {missing}"


def test_readme_examples():
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    names = {}
    for number, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, names, f"README, block {number}", "README.md", 0)
        assert test.examples, block
        _run(test, clear_globs=False)
        names = test.globs


def test_readme_opens_with_the_two_commands():
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25])
    assert 'python -m pip install ".[demo]" && fastrace demo' in first_screen
    assert 'python -m pip install ".[test]" && python -m pytest' in first_screen


def test_hints_install_the_missing_library_itself():
    """Another project holds the name `fastrace` on the index, and who has a wheel has no folder to install from."""
    hints = {(path.name, hint) for path in (ROOT / "src").rglob("*.py*") if path.suffix in (".py", ".pyx")
             for hint in re.findall(r"pip install ([^\n`]*)", path.read_text(encoding="utf-8"))}
    assert len(hints) > 10
    assert not {(name, hint) for name, hint in hints if "fastrace" in hint or re.match(r"[\"']?\.", hint)}
