"""``python -m fastrace`` is the command ``fastrace``."""

from fastrace.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
