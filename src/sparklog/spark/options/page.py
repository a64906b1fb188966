"""The tables of options in ``docs/spark.md``, made from the table of options.

``python -m sparklog.spark.options.page docs/spark.md`` writes them anew, between the comments that mark them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from sparklog.spark.options.definition import Option, Use
from sparklog.spark.options.table import CLIENT_PREFIX, OPTIONS, REFUSED_SETTINGS

_MARKED = re.compile(r"(<!-- options of (reading|writing)\b[^>]*-->\n).*?(<!-- end of options -->\n)", re.DOTALL)
_USES = {"reading": Use.READ, "writing": Use.WRITE}
_BATCH = Use.BATCH_READ | Use.BATCH_WRITE


def with_tables(page: str) -> str:
    """The page with its tables as the options are now; the text around them stays."""

    def current(marked: re.Match[str]) -> str:
        return f"{marked[1]}\n{options_table(_USES[marked[2]])}\n{marked[3]}"

    return _MARKED.sub(current, page)


def options_table(use: Use) -> str:
    """The options for these uses, and the settings that they refuse."""
    rows = ["| option | value | default | query | meaning |", "| --- | --- | --- | --- | --- |"]
    rows += [_row(each, use) for each in OPTIONS if each.uses & use]
    rows += ["", "| refused setting | because |", "| --- | --- |"]
    rows += [f"| `{CLIENT_PREFIX}{each.name}` | {each.advice} |" for each in REFUSED_SETTINGS if each.uses & use]
    return "\n".join(rows) + "\n"


def _row(option: Option[object], use: Use) -> str:
    default = ", in a stream ".join(f"`{text}`" for text in _defaults(option))
    return f"| `{option.name}` | {option.kind.looks} | {default} | {_query(option.uses & use)} | {option.help} |"


def _defaults(option: Option[object]) -> Iterator[str]:
    """The default, if there is one, and that of a stream, if it is another one."""
    for value in (option.default, option.stream_default):
        if value not in (None, ()):
            yield option.kind.format(value)


def _query(uses: Use) -> str:
    if uses in (Use.READ, Use.WRITE):
        return "any"
    return "batch" if uses & _BATCH else "stream"


if __name__ == "__main__":
    PAGE = Path(sys.argv[1])
    PAGE.write_text(with_tables(PAGE.read_text()))
