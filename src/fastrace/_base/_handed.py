"""What was paid for is never lost: an exception takes with it what it cut short."""

from __future__ import annotations

import contextlib
from typing import Any

NOTE = ("fastrace: nothing paid for is lost. This exception has the {what} as it stands: error.{what}.result() is what "
        "is known, and {on}")
KEPT = "fastrace: the draws made so far are not lost: error.{what} has them, {on}"
WITH_ANSWER = "; error.answer is all that the function gave"


def handed_over(
    error: BaseException, what: str, thing: Any, on: str, paid: bool, note: str = NOTE, **others: Any
) -> None:
    """Give an exception what it cut short as its attribute `what`, and say how to go `on` if any of it was `paid` for.

    What else it takes to go on are `others`, by name. The `note` says both, where {what} and {on} stand.
    """
    with contextlib.suppress(Exception):        # an exception without room for attributes goes as it came
        for name, value in {what: thing, **others}.items():
            setattr(error, name, value)
        note = note.format(what=what, on=on) + (WITH_ANSWER if "answer" in vars(error) else "")
        if paid and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
