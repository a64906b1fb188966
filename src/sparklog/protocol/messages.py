"""Requests and responses: their classes, and their bytes in every version.

Only this module and its siblings in this package import the schema library.
"""

from __future__ import annotations

import io
import re
import struct
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from sparklog.errors import LocalProtocolError, RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.message_classes import *
from sparklog.protocol.wire import MOST_OF_STRING

M = TypeVar("M", bound="Message")

INCREMENTAL, FULL = 1, 2
"""The types of a LeaderAndIsr and an UpdateMetadata: FULL says that there is nothing else than it names (KIP-866)."""


class Encoded(NamedTuple):
    """An answer that is encoded already, in the version asked for."""

    body: bytes
    throttled_from: int
    """The first version that begins with the throttle time."""


def throttled(answer: Message | Encoded, version: int, throttle_ms: int) -> Message | Encoded:
    """The answer with this throttle time, where it has one."""
    if isinstance(answer, Encoded):
        if version < answer.throttled_from:
            return answer
        return answer._replace(body=throttle_ms.to_bytes(4, "big") + answer.body[4:])
    if hasattr(answer, "throttle_time_ms"):
        answer.throttle_time_ms = throttle_ms
    return answer


@lru_cache(maxsize=1024)
def is_flexible(api: ApiKey, version: int) -> bool:
    """Whether this version of the API uses compact lengths and tagged fields."""
    return bool(SCHEMAS[api].request.flexible_version_q(version))


def has_flexible_response_header(api: ApiKey, version: int) -> bool:
    """Whether the response header carries tagged fields; ApiVersions never does, so that any client can read it."""
    return api is not ApiKey.API_VERSIONS and is_flexible(api, version)


def highest_version(api: ApiKey) -> int:
    """The newest version that the schema describes."""
    return int(SCHEMAS[api].request.max_version)


def decode_request(api: ApiKey, version: int, body: memoryview) -> Message:
    """The request in ``body`` (what follows the header). Raises RemoteProtocolError if it is malformed."""
    schema = SCHEMAS[api].request
    message = decode(schema, version, body)
    reject_nulls(schema._struct, message, version)
    return message


def reject_nulls(schema: Any, message: Struct, version: int) -> None:
    """Raises RemoteProtocolError where a field is null that may not be; the library lets it pass."""
    for field in schema.untagged_fields(version):
        value = getattr(message, field.name)
        if value is None:
            reject_null(field, type(message).__name__, version)
        elif field.is_struct():
            reject_nulls(field, value, version)
        elif field.is_struct_array():
            for each in value:
                reject_nulls(field.array_of, each, version)
        elif field.is_array() and None in value:
            raise RemoteProtocolError(f"malformed {type(message).__name__} version {version}: null in {field.name}")


def reject_null(field: Any, kind: str, version: int) -> None:
    """Raises RemoteProtocolError unless the ``field`` of a message of this ``kind`` may be null."""
    null = field.is_array() or field.type_str in ("string", "bytes")
    if null and not field.nullable_for_version_q(version):
        raise RemoteProtocolError(f"malformed {kind} version {version}: {field.name} is null")


def decode_response(api: ApiKey, version: int, body: memoryview) -> Response:
    """The response in ``body`` (what follows the header). Raises RemoteProtocolError if it is malformed."""
    return decode(SCHEMAS[api].response, version, body)


def decode_answer(asked: Request[A], version: int, body: memoryview) -> A:
    """As ``decode_response``, to the request that was ``asked``."""
    return decode(cast("type[A]", SCHEMAS[ApiKey(asked.API_KEY)].response), version, body)


DECODE_ERRORS = (ValueError, IndexError, struct.error, TypeError, OverflowError, MemoryError, AssertionError)
"""What the library raises where a message is malformed."""
ENCODE_ERRORS = (ValueError, TypeError, AttributeError, struct.error)
"""What the library raises where a field does not fit its type."""
_MOST_OF_CHARACTER = 4
"""Bytes in UTF-8."""
ENDLESS_VARINT = re.compile(rb"[\x80-\xff]{5}")
"""Where a varint may be longer than five bytes; the library's fast decoder would follow it however long it is."""


def decode(schema: type[M], version: int, body: memoryview) -> M:
    """The message of the class ``schema`` in ``body``. Raises RemoteProtocolError if it is malformed."""
    flexible = schema.flexible_version_q(version)
    form = {"version": version, "compact": flexible, "tagged": flexible, "data_class": schema}
    try:
        if flexible and ENDLESS_VARINT.search(body):
            slowly: M = schema._struct.decode(io.BytesIO(body), **form)  # it checks each length
            return slowly
        message: M
        message, end = schema._struct.compiled_decode_from(**form)(body, 0)
    except DECODE_ERRORS as error:
        raise RemoteProtocolError(f"malformed {schema.name} version {version}: {error}") from error
    if end > len(body):
        raise RemoteProtocolError(f"malformed {schema.name} version {version}: it ends in the middle of a field")
    return message


def encode_request(request: Request[A], version: int) -> bytes:
    """The request's body in ``version``. Raises LocalProtocolError if a field does not fit its type.

    So does a string that the broker would not read: it hangs up, and does not say why.
    """
    kind: Any = type(request)
    strings = _strings_of(kind, version)
    try:
        body = encode(request, version)
    except LocalProtocolError:
        _reject_long_strings(request, strings)  # which may be why, and says more
        raise
    if len(body) > MOST_OF_STRING:
        _reject_long_strings(request, strings)
    return body


class _Strings(NamedTuple):
    """A field of one string or several, or else of structures that have some in ``parts``."""

    name: str
    parts: tuple[_Strings, ...]


@lru_cache(maxsize=1024)
def _strings_of(kind: type[Message], version: int) -> tuple[_Strings, ...]:
    return _strings_in(kind._struct, version)


def _strings_in(schema: Any, version: int) -> tuple[_Strings, ...]:
    found = []
    for field in schema.untagged_fields(version):
        structure = field if field.is_struct() else field.array_of if field.is_struct_array() else None
        parts = () if structure is None else _strings_in(structure, version)
        if parts or field.type_str in ("string", "[]string"):
            found.append(_Strings(field.name, parts))
    return tuple(found)


def _reject_long_strings(message: Struct, strings: tuple[_Strings, ...]) -> None:
    for name, parts in strings:
        value = getattr(message, name, None)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                _reject_long_string(each, f"{name} in {type(message).__name__}")
            elif each is not None:
                _reject_long_strings(each, parts)


def _reject_long_string(text: str, name: str) -> None:
    if len(text) * _MOST_OF_CHARACTER <= MOST_OF_STRING:
        return
    size = len(text.encode(errors="surrogatepass"))
    if size > MOST_OF_STRING:
        raise LocalProtocolError(f"{name} has {size} bytes; a string has {MOST_OF_STRING} at most")


def encode(message: Message, version: int) -> bytes:
    """The message's body in ``version``. Raises LocalProtocolError if a field does not fit its type."""
    try:
        return bytes(message.encode(version=version))
    except ENCODE_ERRORS as error:
        raise LocalProtocolError(f"cannot encode {message.name} version {version}: {error}") from error
