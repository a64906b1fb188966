"""Java's properties files, in which Kafka's programs have their settings.

A line is ``key=value`` or ``key: value``. One that begins with ``#`` or ``!`` is a comment. A backslash at the end of a
line joins the next one to it, without the blanks that that begins with. Elsewhere a backslash stands before a character
that is meant as it is, or as one of ``\\t \\n \\r \\f \\uXXXX``. A line without ``=`` and ``:`` is refused, which Java
takes. A value may be a password, so errors show none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sparklog.errors import ConfigError

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_PAIR = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:](?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_BLANK, _DELETE = 0x20, 0x7F
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load_properties(path: Path) -> dict[str, str]:
    """The settings in a file. Raises ConfigError for a file that cannot be read, and for a line that is no setting."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is None:
            raise ConfigError(f"{path} line {number} is not key=value; a line that goes on in the next ends with \\")
        properties[_unescaped(pair["key"])] = _unescaped(pair["value"].strip())
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """The text of a file with these settings, whose names have nothing to escape."""
    return "".join(f"{name}={escaped(value)}\n" for name, value in properties.items())


def escaped(value: str) -> str:
    """A value as it stands in a file: Java reads these as Latin-1, with ``\\uXXXX`` for a unit of UTF-16."""
    encoded = value.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
    blanks = {0, len(units) - 1}
    return "".join(
        f"\\u{unit:04x}" if not _is_plain(unit) or (unit == _BLANK and at in blanks) else chr(unit)
        for at, unit in enumerate(units)
    )


def _is_plain(unit: int) -> bool:
    return _BLANK <= unit < _DELETE and unit != ord("\\")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """With the number of the first line of each."""
    begun, begins = "", 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not begun and (not line.strip() or line[0] in "#!"):
            continue
        begins = begins if begun else number
        begun += line
        if _goes_on(line):
            begun = begun[:-1]
            continue
        yield begins, begun
        begun = ""
    if begun:
        yield begins, begun


def _goes_on(line: str) -> bool:
    """Whether it ends with a backslash that none stands before."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    meant = _ESCAPE.sub(lambda found: _meant(found[1]), text)
    return meant.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")  # a pair is one character


def _meant(escaped: str) -> str:
    return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _CONTROLS.get(escaped, escaped)
