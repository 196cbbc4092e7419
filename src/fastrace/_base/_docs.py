"""Paragraphs that several docstrings share, so that each stands once and every page is complete."""

import re
from collections.abc import Mapping
from textwrap import indent


def filled(page: str | None, texts: Mapping[str, str]) -> str | None:
    """A docstring, each line of which that holds nothing but names in braces gives way to the texts of these names."""
    if page is None:                        # python -OO drops docstrings
        return None

    def paragraphs(line: re.Match[str]) -> str:
        return "\n".join(indent(texts[name], line[1]) for name in re.findall(r"\{([\w ]+)\}", line[2]))

    return re.sub(r"^( *)((?:\{[\w ]+\} ?)+)$", paragraphs, page, flags=re.M)
