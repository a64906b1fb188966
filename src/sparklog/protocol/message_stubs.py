"""``message_classes.pyi``: the fields of every message for type checkers, told by the schemas that the codec reads.

``python -m sparklog.protocol.message_stubs > src/sparklog/protocol/message_classes.pyi`` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from sparklog.protocol.message_classes import SCHEMAS

_HEAD = '''\
"""The fields of every message. Made from the schemas: ``python -m sparklog.protocol.message_stubs``.

A field is None where a version may leave it out, or may say null: so is an id that is all zeros. What is not given to
a constructor is the schema's default. An array may be given as any sequence; one that was read is a list.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from uuid import UUID

from sparklog.protocol.api_key import ApiKey

A = TypeVar("A", bound=Response)

class Struct:
    """A message, or a structure within one."""

    _struct: ClassVar[Any]

class Message(Struct):
    """A request or response."""

    API_KEY: ClassVar[int]
    name: ClassVar[str]
    max_version: ClassVar[int]
    @classmethod
    def flexible_version_q(cls, version: int) -> bool: ...
    def encode(self, version: int) -> bytes: ...

class Response(Message): ...

class Request(Message, Generic[A]):
    """What is answered with an ``A``."""

class Schema(NamedTuple):
    """The two classes of one API."""

    request: type[Request[Response]]
    response: type[Response]

SCHEMAS: dict[ApiKey, Schema]
'''
_INDENT = "    "
_INTEGERS = ("int8", "int16", "uint16", "int32", "int64")
_SIMPLE = dict.fromkeys(_INTEGERS, "int") | {
    "bitfield": "set[int]",
    "bool": "bool",
    "bytes": "bytes",
    "float64": "float",
    "records": "bytes",
    "string": "str",
    "uuid": "UUID",
}
_GIVEN = {"bitfield": "Iterable[int]", "bytes": "bytes | bytearray | memoryview"}
"""What a constructor takes beside what is read."""


def stub() -> str:
    """The whole file."""
    lines: list[str] = []
    for request, response in SCHEMAS.values():
        lines += _class(request.__name__, f"Request[{response.__name__}]", request._struct)
        lines += _class(response.__name__, "Response", response._struct)
    return _HEAD + "".join(f"{line}\n" for line in lines)


def _class(name: str, base: str, struct: Any) -> Iterator[str]:
    yield ""
    yield f"class {name}({base}):"
    for line in _body(struct):
        yield f"{_INDENT}{line}" if line else ""


def _body(struct: Any) -> Iterator[str]:
    fields = list(struct.fields.values())
    nested = {each.type_str: each for each in fields if _is_structured(each)}
    lines = [line for name, each in nested.items() for line in _class(name, "Struct", each)]
    yield from lines[1:]
    if nested:
        yield ""
    for each in fields:
        yield f"{each.name}: {_or_none(each, _read(each))}"
    yield "def __init__("
    yield f"{_INDENT}self,"
    yield f"{_INDENT}*,"
    for each in fields:
        default = " = ..." if _has_default(each) else ""
        yield f"{_INDENT}{each.name}: {_or_none(each, _given(each))}{default},"
    yield f"{_INDENT}version: int | None = ...,"
    yield ") -> None: ..."


def _is_structured(field: Any) -> bool:
    return bool(field.is_struct() or field.is_struct_array())


def _read(field: Any) -> str:
    if _is_structured(field):
        element = str(field.type_str)
    else:
        element = _SIMPLE[field.array_of.type_str if field.is_array() else field.type_str]
    return f"list[{element}]" if field.is_array() else element


def _given(field: Any) -> str:
    read = _read(field)
    return read.replace("list[", "Sequence[") if field.is_array() else _GIVEN.get(field.type_str, read)


def _or_none(field: Any, kind: str) -> str:
    is_optional = field._nullable_versions is not None or (_has_default(field) and field.default is None)
    return f"{kind} | None" if is_optional else kind


def _has_default(field: Any) -> bool:
    try:
        field.default  # noqa: B018
    except NotImplementedError:
        return False
    return True


if __name__ == "__main__":
    sys.stdout.write(stub())
