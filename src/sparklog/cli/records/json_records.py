"""Records as JSON objects, one a line: what ``consume`` prints and ``produce`` takes, so that nothing is lost between.

Keys, values and headers' values are texts, null, or where they are not UTF-8 base64 under a name that says so:
``value_base64`` in place of ``value``. A record without headers has no ``headers``.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.structs import TopicPartition

_BASE64 = "_base64"
_FIELDS = (
    "topic", "partition", "offset", "timestamp", "key", f"key{_BASE64}", "value", f"value{_BASE64}", "headers",
)  # fmt: skip
_OF_A_HEADER = ("key", "value", f"value{_BASE64}")
_LATEST_MS = (1 << 63) - 1
_NO_TIMESTAMP = -1
"""What a record has that was written without."""

Header = tuple[str, bytes | None]


class JsonRecord(NamedTuple):
    """A record that a line spells. None for a partition or a timestamp (ms) that it leaves to the producer."""

    key: bytes | None
    value: bytes | None
    headers: list[Header] | None
    timestamp: int | None
    partition: int | None


def json_lines(tp: TopicPartition, columns: Mapping[str, pa.Array]) -> bytes:
    """The records of the columns key, value, headers, offset and timestamp."""
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    lines = []
    for row in rows:
        record = dict(zip(columns, row, strict=True))
        shown = {"topic": tp.topic, "partition": tp.partition, "offset": record["offset"]}
        shown |= {"timestamp": record["timestamp"], **_spelt("key", record["key"]), **_spelt("value", record["value"])}
        if record["headers"]:
            shown["headers"] = [{"key": each["key"], **_spelt("value", each["value"])} for each in record["headers"]]
        lines.append(json.dumps(shown, ensure_ascii=False))
    return ("\n".join(lines) + "\n").encode()


def read_record(line: bytes) -> JsonRecord:
    """The record; its topic and offset are not looked at. Raises ValueError, in words that follow "line 3"."""
    found = _object(line)
    _check_names(found, _FIELDS, "")
    headers = found.get("headers")
    if headers is not None and not isinstance(headers, list):
        raise ValueError("has headers that are no list")
    return JsonRecord(
        _bytes(found, "key") if "key" in found or f"key{_BASE64}" in found else None,
        _bytes(found, "value"),
        [_header(each) for each in headers or ()] or None,
        _whole(found, "timestamp", _NO_TIMESTAMP),
        _whole(found, "partition", 0),
    )


def _spelt(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}{_BASE64}": b64encode(data).decode()}


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode())
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON object: {error.msg}, character {error.pos + 1}") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists in lists
        raise ValueError("is no JSON object that can be read") from None
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")
    return found


def _header(found: Any) -> Header:
    if not isinstance(found, dict) or not isinstance(found.get("key"), str):
        raise ValueError("has a header without a text as its key")
    _check_names(found, _OF_A_HEADER, " in a header")
    return _utf8(found["key"], "key of a header").decode(), _bytes(found, "value")


def _check_names(found: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    """A misspelt name must not become a null."""
    for name in found:
        if name not in known:
            raise ValueError(f"has {name!r}{where}, which is none of {', '.join(known)}")


def _bytes(found: dict[str, Any], name: str) -> bytes | None:
    spelt = [each for each in (name, name + _BASE64) if each in found]
    if len(spelt) != 1:
        raise ValueError(f"has {'both' if spelt else 'neither'} of {name} and {name}{_BASE64}")
    text = found[spelt[0]]
    if spelt[0] != name:
        return _decoded(text, spelt[0])
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"has a {name} that is neither text nor null")
    return _utf8(text, name)


def _decoded(text: Any, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise ValueError(f"has a {name} that is no base64") from None


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"has a {name} that is no text") from None


def _whole(found: dict[str, Any], name: str, least: int) -> int | None:
    number = found.get(name)
    if number is None:
        return None
    if type(number) is not int or not least <= number <= _LATEST_MS:
        raise ValueError(f"has a {name} that is no whole number from {least}")
    return number
