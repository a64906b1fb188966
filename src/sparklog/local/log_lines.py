"""What a broker's log says, read by the program that runs the broker: as text or as JSON (``sparklog.cli.logs``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

_TEXT_ERROR = re.compile(r"^\S+ \S+ (?:ERROR|CRITICAL) ", re.MULTILINE)
"""How the line of an error begins: date, time, level."""
_JSON_ERROR = re.compile(r'^{"time": "[^"]*", "level": "(?:ERROR|CRITICAL)", ', re.MULTILINE)
_OF_OPERATOR = r"sparklog\.log\.(?:cut|directories\.room)"
_TEXT_NEWS = re.compile(rf"^\S+ \S+ WARNING {_OF_OPERATOR}  (.*)\n", re.MULTILINE)
_JSON_NEWS = re.compile(rf'^{{"time": "[^"]*", "level": "WARNING", "logger": "{_OF_OPERATOR}", .*}}$', re.MULTILINE)


def has_errors(text: str) -> bool:
    """Whether one of these lines tells of an error."""
    return _TEXT_ERROR.search(text) is not None or _JSON_ERROR.search(text) is not None


def news_in(text: str) -> list[str]:
    """Lines for the person that watches the broker: what a start cut off a damaged log, and full disks."""
    return [*_TEXT_NEWS.findall(text), *_messages(_JSON_NEWS.findall(text))]


def _messages(lines: Iterable[str]) -> Iterator[str]:
    for each in lines:
        with suppress(ValueError):  # one that a full disk cut, and the next one behind it
            yield json.loads(each)["message"]
