"""Files of keys: one a line, as text or spelled in hexadecimal or base64. Errors name the line, never what is in it."""

from __future__ import annotations

import base64
import binascii
import codecs
import sys
from collections.abc import Callable
from pathlib import Path

import click

from sparklog.compaction.erased_keys import MOST_BYTES

STDIN = "-"
_MOST_READ = 4 * MOST_BYTES
_NO_KEYS = "there is no key in it: write one a line"


def _text(line: bytes) -> bytes:
    line.decode()
    return line


def _hexadecimal(line: bytes) -> bytes:
    return binascii.unhexlify(line)


def _base64(line: bytes) -> bytes:
    return base64.b64decode(line, validate=True)


SPELLINGS: dict[str, Callable[[bytes], bytes]] = {"utf8": _text, "hex": _hexadecimal, "base64": _base64}
"""How a line becomes a key; raises ValueError where it cannot."""


def read_keys(path: str, spelling: str) -> list[bytes]:
    """The keys in the file, or of standard input for ``-``, in its order.

    Raises click.UsageError where a line is empty, is none, or says a key for the second time, and where there is none.
    """
    data = _read(path).removeprefix(codecs.BOM_UTF8)  # which some editors write, and which is of no key
    lines: dict[bytes, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if not line and number == data.count(b"\n") + 1:
            break  # behind the last newline
        key = _key_of(line, number, path, spelling)
        if key in lines:
            raise click.UsageError(f"{_named(path)}: line {number} has the key of line {lines[key]}")
        lines[key] = number
    if not lines:
        raise click.UsageError(f"{_named(path)}: {_NO_KEYS}")
    return [*lines]


def _read(path: str) -> bytes:
    if path == STDIN:
        data = sys.stdin.buffer.read(_MOST_READ + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_READ + 1)
    if len(data) > _MOST_READ:
        raise click.UsageError(f"{_named(path)} has more than {_MOST_READ:,} bytes: erase in parts")
    return data


def _key_of(line: bytes, number: int, path: str, spelling: str) -> bytes:
    if not line:
        raise click.UsageError(f"{_named(path)}: line {number} is empty")
    try:
        return SPELLINGS[spelling](line)
    except ValueError:
        raise click.UsageError(f"{_named(path)}: line {number} is not {spelling}") from None


def _named(path: str) -> str:
    return "standard input" if path == STDIN else path
