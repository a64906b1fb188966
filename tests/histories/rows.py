"""Records of a compacted topic: a history has each as one text, the wire as key, value and a header.

The text begins with the key, then ``=`` for a value or ``!`` for a tombstone, then a name that no other record has. The
name goes into a header, for a tombstone has no value that could tell it from others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_VALUE, _TOMBSTONE = "=", "!"
_HEADER = "row"
Headers = Iterable[tuple[str, bytes | None]]


class Wire(NamedTuple):
    """What of a record goes over the wire; a record of a topic that is not compacted has a value alone."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] | None = None


def row(key: str, name: str, *, is_tombstone: bool = False) -> str:
    return f"{key}{_TOMBSTONE if is_tombstone else _VALUE}{name}"


def key_of(text: str) -> str | None:
    """None for a record of a topic that is not compacted."""
    found = [text.index(mark) for mark in (_VALUE, _TOMBSTONE) if mark in text]
    return text[: min(found)] if found else None


def is_tombstone(text: str) -> bool:
    key = key_of(text)
    return key is not None and text[len(key)] == _TOMBSTONE


def on_wire(text: str) -> Wire:
    key, data = key_of(text), text.encode()
    if key is None:
        return Wire(data)
    return Wire(None if is_tombstone(text) else data, key.encode(), [(_HEADER, data)])


def from_wire(key: bytes | None, value: bytes | None, headers: Headers | None) -> str:
    """The text; of a record whose parts contradict each other, one that nobody has sent."""
    told = dict(headers or ()).get(_HEADER)
    if told is None:
        return (value or b"").decode()
    text = told.decode()
    is_sound = on_wire(text)[:2] == (value, key)
    return text if is_sound else f"{text}, but {key!r}: {value!r}"
