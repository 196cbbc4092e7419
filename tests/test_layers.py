"""The files of src/fastrace: imports point down the layers, and the build installs every file."""

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fastrace"

# From the bottom up. A file may import from files of lower lines only.
LAYERS = [
    ["_types", "_words", "_checks"],
    ["_guard", "_heaps", "_keyed_order", "_ranks", "_rng", "_row_stream", "_simd", "_sum_tree", "_uniforms"],
    ["_bets", "_xla_call"],
    ["_alias", "_moments", "_order"],
    ["_betting", "_bounds", "_criteria", "_cutoff", "_schedules"],
    ["_anytime", "_verdict"],
    ["_edges"],
    ["sources"],
    ["_memory", "pulls"],
    ["_row_order", "_selector"],
    ["_arch", "_arch_logs", "_expansion", "likelihoods"],
    ["_softmax", "control_variates"],
    ["_stream_race"],
    ["_accumulate", "_adapt", "_allocate", "_core", "_half_widths", "_lil", "_plans"],
    ["_quantile", "_stopping", "_threshold", "_unequal", "_weighted", "_xla"],
    ["_gbas", "_lucb", "_mean_stops", "_sequences"],
    ["_boost"],
    ["_chain"],
    ["_minibatch", "_xla_chain"],
    ["_files", "_progress", "results"],
    ["_bins"],
    ["_committee"],
    ["_rules", "datasets"],
    ["bounds", "moments"],
    ["gbas", "sequences"],
    ["betting"],
    ["lil_ucb", "racing", "selection", "stream_racing", "stopping", "unequal"],
    ["acceptance", "adaptive_selection", "sampling"],
    ["mcmc", "model_selection"],
    ["lucb"],
    ["choosing"],
    ["boosting"],
    ["__init__"],
    ["demo"],
    ["cli"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# The same inside each folder.
FOLDERS = {
    "mcmc": [
        ["_jax", "_pymc_graphs", "models", "protocol"],
        ["_metropolis", "arch", "softmax", "trace"],
        ["_fingerprint", "binned", "firefly_metropolis", "gibbs", "metropolis", "poisson_metropolis", "pymc_models",
         "racing_metropolis", "slice", "tuna_metropolis"],
        ["_checkpoints"],
        ["_jax_compiled", "_jax_gibbs", "_jax_metropolis", "poisson_gibbs", "racing_gibbs", "racing_slice",
         "sampling"],
        ["bias", "blackjax", "emcee", "jax", "numpyro", "pymc"],
        ["__init__"],
    ],
    "model_selection": [
        ["_parquet_rows", "_penalties", "_results", "_row_scores"],
        ["_displays", "_scheduler"],
        ["_budgeted_ucb", "_curves", "_daub"],
        ["_coarse_grid", "_halving"],
        ["_candidates"],
        ["_held_out", "_trainings"],
        ["_racing_search", "_search"],
        ["__init__"],
    ],
}

CYTHON_IMPORT = re.compile(r"^\s*from\s+(\S+)\s+c?import\s+(\([^)]*\)|[^\n]*)|^\s*c?import\s+([^\n]*)", re.M)


def _ours(module, names, level):
    """Files of the package behind one import of `names` from `module`."""
    path = module.split(".") if module else []
    if level == 0:
        if path[:1] != ["fastrace"]:
            return set()
        path = path[1:]
    if path:
        return {path[0]}
    if not names:
        return {"__init__"}
    files = {name for name in names if name in RANK or (SOURCE / f"{name}.py").exists()}
    return files if files == set(names) else files | {"__init__"}


def _python_imports(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield from _ours(node.module, [alias.name for alias in node.names], node.level)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _ours(alias.name, [], 0)


def _cython_imports(text):
    for module, names, modules in CYTHON_IMPORT.findall(text):
        if module:
            level = len(module) - len(module.lstrip("."))
            names = [part.split()[0] for part in names.strip("()").split("#")[0].split(",") if part.strip()]
            yield from _ours(module.lstrip("."), names, level)
        else:
            for part in modules.split("#")[0].split(","):
                yield from _ours(part.split()[0], [], 0)


def imports(file):
    read = _cython_imports if file.suffix in (".pyx", ".pxd") else _python_imports
    return set(read(file.read_text(encoding="utf-8"))) - {file.stem}


def files(*suffixes):
    return sorted(file for file in SOURCE.iterdir() if file.suffix in suffixes)


@pytest.mark.parametrize("file", files(".py", ".pyi", ".pyx", ".pxd"), ids=lambda file: file.name)
def test_imports_point_down(file):
    assert file.stem in RANK, f"{file.name} has no layer: give it a line in LAYERS"
    for name in imports(file):
        assert name in RANK, f"{file.name} imports {name}, which has no layer"
        assert RANK[name] < RANK[file.stem], f"{file.name} imports {name}, which is not below it"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", "from fastrace.racing import race\nimport numpy.random", {"racing"}),
        ("a.py", "def late():\n    from . import sampling, bounds", {"sampling", "bounds"}),
        ("a.py", "import fastrace as fr", {"__init__"}),
        ("a.py", "from fastrace import race", {"__init__"}),
        ("a.pyx", "from fastrace._bounds cimport normal, hoeffding\ncimport numpy as cnp", {"_bounds"}),
        ("a.pyx", "from fastrace cimport _rng\nfrom libc.math cimport log", {"_rng"}),
        ("a.pyx", "    from .racing import (race,\n        FiniteRace)", {"racing"}),
        ("a.pxd", "cimport fastrace.sources as s", {"sources"}),
    ],
)
def test_the_reader_of_imports_sees_each_form(tmp_path, name, text, found):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert imports(file) == found


def test_the_build_names_every_file():
    build = re.sub(r"#.*", "", (SOURCE / "meson.build").read_text(encoding="utf-8"))
    modules = re.search(r"^modules = \{(.*?)^\}", build, re.M | re.S).group(1)
    named = {f"{name}.pyx" for name in re.findall(r"^\s*'(\w+)'\s*:", modules, re.M)}
    named |= set(re.findall(r"'([\w.]+\.(?:py|pyi|pxd|c))'", build))
    named -= set(re.findall(r"output: '([\w.]+)'", build))               # made by the build
    present = {file.name for file in files(".py", ".pyi", ".pxd", ".pyx", ".c")}
    assert present - named == set(), "in the folder, not in meson.build: these would not be installed"
    assert named - present == set(), "in meson.build, not in the folder"


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_have_layers_and_are_installed(folder):
    rank = {name: k for k, names in enumerate(FOLDERS[folder]) for name in names}
    present = sorted((SOURCE / folder).glob("*.py"))
    assert {file.stem for file in present} == set(rank), "every file of the folder has a line in FOLDERS"
    for file in present:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("fastrace") for alias in node.names), "from fastrace import ..."
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("fastrace"):
                continue
            path = node.module.split(".")
            if path[1:2] == [folder]:
                for name in path[2:3] or [alias.name for alias in node.names]:
                    assert rank[name] < rank[file.stem], f"{folder}/{file.name} imports {name}, which is not below it"
            else:
                for name in path[1:2] or [alias.name for alias in node.names]:
                    assert RANK[name] < RANK[folder], f"{folder}/{file.name} imports {name}, which is not below it"
    build = re.sub(r"#.*", "", (SOURCE / folder / "meson.build").read_text(encoding="utf-8"))
    assert set(re.findall(r"'([\w.]+\.py)'", build)) == {file.name for file in present}
    assert f"subdir('{folder}')" in (SOURCE / "meson.build").read_text(encoding="utf-8")


def test_every_compiled_module_has_a_stub():
    missing = {file.stem for file in files(".pyx")} - {file.stem for file in files(".pyi")}
    assert not missing, f"compiled, without a stub: {sorted(missing)}"


def test_one_version_everywhere():
    places = {
        "pyproject.toml": r'^version = "([^"]+)"',
        "meson.build": r"version: '([^']+)'",
        "CITATION.cff": r"^version: (\S+)",
        "src/fastrace/__init__.py": r'^__version__ = "([^"]+)"',
    }
    stated = {name: re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.M).group(1)
              for name, pattern in places.items()}
    assert len(set(stated.values())) == 1, stated


def test_the_table_of_layers_names_every_file():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    start = text.index("| layer |")
    table = text[start : text.index("\n\n", start)]
    named = {name.rstrip("/") for name in re.findall(r"`(\w+/?)`", table)} - {"select_best"}
    assert set(RANK) - {"__init__"} - named == set(), "files without a line in CONTRIBUTING.md"
    assert named - set(RANK) == set(), "lines of CONTRIBUTING.md without a file"


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("nm"), reason="needs nm, of Linux")
@pytest.mark.parametrize("module", [file.stem for file in files(".pyx")])
def test_modules_export_their_initialiser_alone(module):
    """What they link, such as NumPy's random_*, must not answer to other libraries of the process."""
    library = importlib.util.find_spec(f"fastrace.{module}").origin
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1] for line in listed.splitlines() if not line.split()[-1].startswith("__asan")}
    assert exported == {f"PyInit_{module}"}


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "reference").glob("*.py")), ids=lambda path: path.stem)
def test_twins_do_not_use_the_package(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.split(".")[0] == "fastrace" for name in names)
