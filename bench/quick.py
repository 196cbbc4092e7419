"""Run each benchmark once, with the first value of each parameter: do they run at all?

python bench/quick.py [MODULE ...] prints the seconds each class took, and each script beside this file that has a
function `quick`: the same at its smallest size, with what must hold whatever the figures are. For figures, use asv and
the scripts.
"""

import importlib
import pathlib
import pkgutil
import sys
import time

import benchmarks

SCRIPTS = "killed", "fixed_budgets", "permutation_figure", "recorded_evaluations", "paid_and_streams"


def run(cls):
    benchmark = cls()
    lists = getattr(cls, "params", [])
    lists = lists if lists and isinstance(lists[0], (list, tuple)) else [lists] if lists else []
    first = [values[0] for values in lists]
    kept = (benchmark.setup_cache(),) if hasattr(benchmark, "setup_cache") else ()
    for name in dir(benchmark):
        if name.split("_")[0] in ("time", "track", "timeraw", "mem", "peakmem"):
            try:
                if hasattr(benchmark, "setup"):
                    benchmark.setup(*kept, *first)
                getattr(benchmark, name)(*kept, *first)
            except NotImplementedError as error:        # as asv: not to be had here
                print(f"{cls.__name__}.{name}: {error}")
            if hasattr(benchmark, "teardown"):
                benchmark.teardown(*kept, *first)


def main():
    for found in pkgutil.iter_modules(benchmarks.__path__):
        if sys.argv[1:] and found.name not in sys.argv[1:]:
            continue
        module = importlib.import_module(f"benchmarks.{found.name}")
        for cls in list(vars(module).values()):      # a warning adds to the module
            if isinstance(cls, type) and cls.__module__ == module.__name__ and any("_" in name for name in vars(cls)):
                start = time.perf_counter()
                run(cls)
                print(f"{found.name}.{cls.__name__}: {time.perf_counter() - start:.1f} s", flush=True)
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))       # `papers`, which has the data sets
    for name in SCRIPTS:
        if not sys.argv[1:] or name in sys.argv[1:]:
            start = time.perf_counter()
            importlib.import_module(name).quick()
            print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
