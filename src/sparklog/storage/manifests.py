"""Numbered manifests: documents that are put one after another, each under its number once, each with its checksum.

A place has what its manifests name. Numbers begin at 0 and have no gap. Two that put under one number differ by what is
in them, such as a drawn id: so each can tell whether it was its own that was taken.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from sparklog.errors import StorageError
from sparklog.storage.place import Place

_DIGITS = 20
_SUFFIX = ".json"
Document = dict[str, Any]
"""What JSON can say."""


class Manifests:
    """The manifests in one directory of a place."""

    def __init__(self, place: Place, directory: str) -> None:
        self._place = place
        self._directory = directory

    def numbers(self) -> range:
        """Those that are there. Raises StorageError where one is missing."""
        names = self._place.list(self._directory).files
        found = sorted(number for number in map(_number_of, names) if number is not None)
        if found and found != list(range(len(found))):
            missing = next(number for number in range(len(found)) if number not in found)
            raise StorageError(f"{self._path(missing)} is missing, and there are later ones")
        return range(len(found))

    def read(self, number: int) -> Document:
        """Raises StorageError for one that is damaged, FileNotFoundError where there is none."""
        path = self._path(number)
        try:
            found = json.loads(self._place.read(f"{self._directory}/{_name_of(number)}"))
            checksum, content = found["sha256"], found["content"]
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{path} is damaged: it is no manifest") from error
        if not isinstance(content, dict) or checksum != _checksum(content):
            raise StorageError(f"{path} is damaged: its checksum is another one")
        return content

    def put(self, number: int, content: Document) -> bool:
        """Put one if that number is free; whether it is this one that is there."""
        data = json.dumps({"sha256": _checksum(content), "content": content}, indent=1, ensure_ascii=False)
        return self._place.publish(f"{self._directory}/{_name_of(number)}", data.encode())

    def make_durable(self, number: int) -> None:
        """Make sure that those up to this one stay: who put them may have died before. Raises OSError."""
        self._place.make_durable(f"{self._directory}/{_name_of(number)}")

    def _path(self, number: int) -> str:
        return f"{self._place.uri}/{self._directory}/{_name_of(number)}"


def _name_of(number: int) -> str:
    return f"{number:0{_DIGITS}d}{_SUFFIX}"


def _number_of(name: str) -> int | None:
    digits = name.removesuffix(_SUFFIX)
    is_one = name.endswith(_SUFFIX) and len(digits) == _DIGITS and digits.isascii() and digits.isdecimal()
    return int(digits) if is_one else None


def _checksum(content: Document) -> str:
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
