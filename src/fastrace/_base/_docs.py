"""Paragraphs that several docstrings share, so that each stands once and every page is complete."""

import re
from collections.abc import Mapping
from textwrap import indent


def filled(page: str | None, texts: Mapping[str, str]) -> str | None:
    """A docstring, each line of which that holds nothing but names in braces gives way to the texts of these names.

    A line with any other name stays: subclasses of users have docstrings too.
    """
    if page is None:                        # python -OO drops docstrings
        return None

    def paragraphs(line: re.Match[str]) -> str:
        names = re.findall(r"\{([\w ]+)\}", line[2])
        return "\n".join(indent(texts[name], line[1]) for name in names) if texts.keys() >= set(names) else line[0]

    return re.sub(r"^( *)((?:\{[\w ]+\} ?)+)$", paragraphs, page, flags=re.M)
