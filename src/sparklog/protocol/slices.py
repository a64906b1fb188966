"""Large messages a piece at a time, so that a loop that serves others too is never held up by one of them.

``decoding`` and ``encoding`` are steps: generators that stop after every element of an array, wherever it is nested,
and give the message, or its bytes, at the end. What they give is what ``decode_request`` and ``encode`` give.

Invariants: between two steps lies the work of one element, or of ``_RUN`` numbers or texts, or of ``_FAR`` bytes of
texts; a request names at most ``MOST_ELEMENTS`` elements in all of its arrays (a controller's more), and is refused
before more than that are made. One that has no large blob by right has at most ``MOST_BYTES``, for texts are
copied, compared and told again in one go, and one that has ``MOST_OF_BLOBS``, for a blob is copied in one go.
Whether a message is large is told without looking at its elements: a request by its bytes, an answer by the lengths of
its arrays. An answer is encoded in pieces, none of which is copied to make room for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

from kafka.protocol.data_container import DataContainer
from kafka.protocol.schemas.fields.codecs import EncodeBuffer, Int8, Int32, UnsignedVarInt32

from sparklog.errors import LocalProtocolError, RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    DECODE_ERRORS,
    ENCODE_ERRORS,
    ENDLESS_VARINT,
    SCHEMAS,
    Message,
    Struct,
    reject_null,
    reject_nulls,
)
from sparklog.protocol.wire import WireStream
from sparklog.structs import LONGEST_TOPIC, Chunk

S = TypeVar("S")
T = TypeVar("T")
Y = TypeVar("Y")
Steps = Generator[None, None, T]
"""Work that may be put off between its steps; its result is the generator's."""

LARGE_REQUEST = 4 << 10
"""A request body of more bytes is decoded in steps: of the smallest elements it may hold some hundred."""
LARGE_ANSWER = 200
"""An answer of more elements is encoded in steps."""
_PLAIN = 10
"""So many numbers or texts take as long as one element of several fields."""
_BLOB = 16 << 10
_PIECE = 1 << 20
MOST_ELEMENTS = 20_000
"""Of one request, in all its arrays together: to make and to forget so many objects takes some milliseconds."""
MOST_OF_CONTROLLER = 100_000
"""Of one request of a controller, which tells of a whole cluster."""
MOST_BYTES = 8 << 20
"""Of one request without a large blob by right: more than ``MOST_ELEMENTS`` names of topics take."""
MOST_OF_BLOBS = 16 << 20
"""Of one request with one. To copy so much takes some milliseconds. No record of ``__consumer_offsets`` has more than a
sixteenth of it, unless a topic's ``max.message.bytes`` says so."""
SLICE = 50
"""So many partitions of a Produce or a Fetch are one step, in which each costs some µs."""
_OF_CONTROLLER = frozenset({ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA})
_WITH_BLOBS = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.ERASE_RECORDS, ApiKey.COMMIT_COMPACTION})
_LONGEST_NAME = 4 * LONGEST_TOPIC
_RUN = 500
_FAR = 256 << 10
_WINDOW = 2 << 10
"""An element that ends within so many bytes is decoded in one go by the library's fast decoder."""


def each_of(make: Callable[[S], T], items: Iterable[S]) -> Steps[list[T]]:
    """What ``make`` makes of each item, one a step."""
    made = []
    for each in items:
        made.append(make(each))
        yield
    return made


def each_in_steps(make: Callable[[S], Generator[Y, None, T]], items: Iterable[S]) -> Generator[Y | None, None, list[T]]:
    """``each_of``, where each item takes steps too; what those yield is yielded."""
    made = []
    for each in items:
        made.append((yield from make(each)))
        yield None
    return made


def then(steps: Steps[S], make: Callable[[S], T]) -> Steps[T]:
    """``steps``, with what ``make`` makes of their result."""
    return make((yield from steps))


def done(result: T) -> Steps[T]:
    """No steps, but a result."""
    yield from ()
    return result


class Shared(Generic[T]):
    """Steps with a result for many: any request that wants it takes the next step, and none waits for another."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps: Steps[T] | None = steps
        self._result: T | None = None
        self._error: Exception | None = None

    def steps(self) -> Steps[T]:
        """What is left of them. Raises what they raised, for each caller."""
        while self._steps is not None:
            try:
                next(self._steps)
            except StopIteration as end:
                self._result, self._steps = end.value, None
            except Exception as error:
                self._error, self._steps = error, None
            else:
                yield
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


def sliced(items: list[T]) -> Iterator[list[T]]:
    """The items, ``SLICE`` at a time."""
    for start in range(0, len(items), SLICE):
        yield items[start : start + SLICE]


def checked_count(api: ApiKey, before: int, more: int) -> int:
    """``more``, the length of an array in a request that holds ``before`` others already. Raises RemoteProtocolError
    if they are too many together.
    """
    if before + more > MOST_ELEMENTS:
        raise _too_many(api, MOST_ELEMENTS)
    return more


def checked_topic(api: ApiKey, name: str) -> str:
    """``name``. Raises RemoteProtocolError if it is four times as long as any topic's; others are answered."""
    if len(name) > _LONGEST_NAME:
        raise RemoteProtocolError(
            f"a topic's name has at most {LONGEST_TOPIC} characters, and one of this {api.name} request has {len(name)}"
        )
    return name


def _too_many(api: ApiKey, most: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"a {api.name} request names more than {most} elements; ask for fewer at a time")


def decoding(api: ApiKey, version: int, body: memoryview) -> Steps[Message]:
    """``decode_request`` in steps. Raises RemoteProtocolError also where the request is too large, or names too many
    elements.
    """
    most = MOST_OF_BLOBS if api in _WITH_BLOBS else MOST_BYTES
    if len(body) > most and api not in _OF_CONTROLLER:
        raise RemoteProtocolError(
            f"{api.name} requests have at most {most >> 20} MB, and this one has {len(body) >> 20}; "
            "ask for less at a time"
        )
    return _Decoder(api, version, body).message()


class _Decoder:
    """Walks a schema down to the structs that are small enough for the library's compiled decoder.

    Tagged fields count as elements. Those that the schema does not have are passed over.
    """

    def __init__(self, api: ApiKey, version: int, body: memoryview) -> None:
        self._api, self._version = api, version
        self._schema = SCHEMAS[api].request
        flexible = self._schema.flexible_version_q(version)
        self._stream = WireStream(body, flexible=flexible)
        self._form = {"version": version, "compact": flexible, "tagged": flexible}
        self._flexible = flexible
        self._most = self._left = MOST_OF_CONTROLLER if api in _OF_CONTROLLER else MOST_ELEMENTS

    def message(self) -> Steps[Message]:
        try:
            message: Message = yield from self._walk(self._schema._struct, self._schema)
        except DECODE_ERRORS as error:
            raise RemoteProtocolError(f"malformed {self._schema.name} version {self._version}: {error}") from error
        return message

    def _walk(self, schema: Any, data_class: Any) -> Steps[Any]:
        values: dict[str, Any] = {}
        for field in schema.untagged_fields(self._version):
            values[field.name] = yield from self._field(field)
        if self._flexible:
            values |= yield from self._tagged(schema)
        return data_class(version=self._version, **values)

    def _field(self, field: Any) -> Steps[Any]:
        value: Any
        if field.is_array():
            value = yield from self._array(field)
        elif not field.is_struct():
            value = self._simple(field)
        elif field.nullable_for_version_q(self._version) and self._stream.read(1) == b"\xff":
            value = None
        else:
            value = yield from self._walk(field, field.data_class)
        if value is None:
            reject_null(field, self._schema.name, self._version)
        return value

    def _simple(self, field: Any) -> Any:
        if field.type_str == "string":
            return self._stream.string_or_none()
        return field.decode(self._stream, **self._form)

    def _tagged(self, schema: Any) -> Steps[dict[str, Any]]:
        values: dict[str, Any] = {}
        stream, version = self._stream, self._version
        count = stream.uvarint()
        if count:
            stream.count_tags(count)
            self._count(count)
            fields = (each for each in schema.fields.values() if each.for_version_q(version))
            known = {each.tag: each for each in fields if each.tagged_field_q(version)}
            for _ in range(count):
                tag, size = stream.uvarint(), stream.uvarint()
                start = stream.position
                stream.take(size)
                if tag in known:
                    end, stream.position = stream.position, start
                    values[known[tag].name] = yield from self._field(known[tag])
                    stream.position = end
        return values

    def _array(self, field: Any) -> Steps[list[Any] | None]:
        count = (self._stream.uvarint() - 1) if self._flexible else self._stream.int32()
        if count == -1:
            return None
        self._count(max(count, 0))
        begun = self._stream.position
        values: list[Any] = []
        for number in range(count):
            if field.is_struct_array():
                values.append((yield from self._element(field.array_of)))
                yield
            else:
                values.append(self._simple(field.array_of))
                if number % _RUN == _RUN - 1 or self._stream.position - begun > _FAR:
                    begun = self._stream.position
                    yield
        if None in values:
            raise RemoteProtocolError(f"malformed {self._schema.name}: null in {field.name}")
        return values

    def _count(self, elements: int) -> None:
        self._left -= elements
        if self._left < 0:
            raise _too_many(self._api, self._most)

    def _element(self, schema: Any) -> Steps[Struct]:
        start = self._stream.position
        window = self._stream.buffer[start : start + _WINDOW]
        if not self._flexible or not ENDLESS_VARINT.search(window):
            message: Struct
            try:
                message, end = schema.compiled_decode_from(**self._form)(window, 0)
            except DECODE_ERRORS:
                end = _WINDOW + 1  # it may be whole beyond the window
            if end <= len(window):
                reject_nulls(schema, message, self._version)
                if not _has_tags(schema, message, self._version):
                    self._count(_elements(schema, message, self._version))
                    self._stream.position = start + end
                    return message
        walked: Struct = yield from self._walk(schema, schema.data_class)
        return walked


def _has_tags(schema: Any, message: Any, version: int) -> bool:
    """Whether a struct of the message, which the library decoded, has a tagged field."""
    if message.tags is not None or message.unknown_tags is not None:
        return True
    for field in schema.untagged_fields(version):
        if field.is_struct_array():
            if any(_has_tags(field.array_of, each, version) for each in getattr(message, field.name) or ()):
                return True
        elif field.is_struct():
            value = getattr(message, field.name)
            if value is not None and _has_tags(field, value, version):
                return True
    return False


def _struct_arrays(schema: Any, version: int) -> Iterator[Any]:
    return (field for field in schema.untagged_fields(version) if field.is_struct_array())


def _elements(schema: Any, message: Struct, version: int, enough: int = MOST_OF_CONTROLLER) -> int:
    """How many structs are in the arrays of ``message``; about ``enough`` if there are more."""
    found = 0
    for field in _struct_arrays(schema, version):
        values = getattr(message, field.name, None) or ()
        found += len(values)
        if found < enough and next(_struct_arrays(field.array_of, version), None) is not None:
            for each in values:
                found += _elements(field.array_of, each, version, enough - found)
                if found >= enough:
                    break
    return found


def is_large_answer(message: Message, version: int) -> bool:
    """Whether it is to be encoded in steps."""
    return _is_large(message._struct, message, version)


_BRANCHES: dict[tuple[int, int], list[Any]] = {}


def _branches(schema: Any, version: int) -> list[Any]:
    """The fields of ``schema`` that may hold much: arrays, blobs, and structs that have some."""
    key = id(schema), version  # schemas cannot be hashed, and stay for good
    found = _BRANCHES.get(key)
    if found is None:
        fields = schema.untagged_fields(version)
        found = [
            each
            for each in fields
            if each.is_array() or each.type_str == "bytes" or (each.is_struct() and _branches(each, version))
        ]
        _BRANCHES[key] = found
    return found


def _is_large(schema: Any, message: Any, version: int) -> bool:
    return _weight(schema, message, version, LARGE_ANSWER + 1) > LARGE_ANSWER


def _weight(schema: Any, message: Any, version: int, enough: int) -> int:
    """How many structs are in ``message``, wherever they are nested, and as one ``_PLAIN`` numbers or texts, or
    ``_BLOB`` bytes; about ``enough`` if there are more.
    """
    found = 0
    for field in _branches(schema, version):
        value = getattr(message, field.name, None)
        if not value or found >= enough:
            continue
        if field.is_struct_array():
            found += len(value)
            if _branches(field.array_of, version):
                for each in value:
                    if found >= enough:
                        break
                    found += _weight(field.array_of, each, version, enough - found)
        elif field.is_array():
            found += len(value) // _PLAIN
        elif not field.is_struct():
            found += len(value) // _BLOB
        else:
            found += _weight(field, value, version, enough - found)
    return found


def encoding(message: Message, version: int) -> Steps[bytes]:
    """``encode`` in steps. Raises LocalProtocolError if a field does not fit its type."""
    pieces: list[Any] = yield from encoding_in_pieces(message, version)
    return b"".join(pieces)


def encoding_in_pieces(message: Message, version: int) -> Steps[list[Chunk]]:
    """As ``encoding``, in pieces of some ``_PIECE``, so that nothing large is ever copied whole.

    Raises as that does.
    """
    pieces = _Pieces()
    try:
        yield from _encode(message._struct, message, version, message.flexible_version_q(version), pieces)
    except ENCODE_ERRORS as error:
        raise LocalProtocolError(f"cannot encode {message.name} version {version}: {error}") from error
    pieces.end(at_least=0)
    return pieces.ended


class _Pieces:
    """``ended`` are those that are full; ``out`` is where the next one is written."""

    def __init__(self) -> None:
        self.ended: list[Chunk] = []
        self.out = EncodeBuffer()

    def end(self, at_least: int = _PIECE) -> None:
        """Begin another piece, if this one has so many bytes."""
        if self.out.pos >= at_least:
            self.ended.append(memoryview(self.out.buf)[: self.out.pos])
            self.out = EncodeBuffer()


def _encode(schema: Any, message: Any, version: int, flexible: bool, pieces: _Pieces) -> Steps[None]:
    form = {"version": version, "compact": flexible, "tagged": flexible}
    for field in schema.untagged_fields(version):
        value = getattr(message, field.name)
        if field.is_struct_array() and value is not None:
            yield from _encode_structs(field, value, version, flexible, pieces)
        elif field.is_array() and value is not None and len(value) > _RUN:
            yield from _encode_plain(field, value, version, flexible, pieces)
        elif field.is_struct() and isinstance(value, DataContainer) and _is_large(field, value, version):
            if field.nullable_for_version_q(version):
                Int8.encode_into(pieces.out, 1)
            yield from _encode(field, value, version, flexible, pieces)
        else:
            field.encode_into(value, pieces.out, **form)
    if flexible:
        schema.tagged_fields(version).encode_into(message, pieces.out, version=version)
    pieces.end()


def _encode_structs(field: Any, values: list[Any], version: int, flexible: bool, pieces: _Pieces) -> Steps[None]:
    form = {"version": version, "compact": flexible, "tagged": flexible}
    _encode_length(values, flexible, pieces)
    if not pieces.ended:  # what a frame begins with is copied behind its length
        pieces.end(at_least=1)
    whole = field.array_of.compiled_encode_into(**form)
    for each in values:
        if not isinstance(each, DataContainer):
            field.array_of.encode_into(each, pieces.out, **form)
        elif _is_large(field.array_of, each, version):
            yield from _encode(field.array_of, each, version, flexible, pieces)
        else:
            whole(each, pieces.out)
        pieces.end()
        yield


def _encode_plain(field: Any, values: list[Any], version: int, flexible: bool, pieces: _Pieces) -> Steps[None]:
    form = {"version": version, "compact": flexible, "tagged": flexible}
    _encode_length(values, flexible, pieces)
    begun = pieces.out.pos
    for number, each in enumerate(values):
        field.array_of.encode_into(each, pieces.out, **form)
        if number % _RUN == _RUN - 1 or pieces.out.pos - begun > _FAR:
            pieces.end()
            begun = pieces.out.pos
            yield


def _encode_length(values: list[Any], flexible: bool, pieces: _Pieces) -> None:
    if flexible:
        UnsignedVarInt32.encode_into(pieces.out, len(values) + 1)
    else:
        Int32.encode_into(pieces.out, len(values))
