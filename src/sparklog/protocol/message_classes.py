"""The class of every request and response: two for each API of ``ApiKey``, by Kafka's names.

They come from ``kafka-python``'s schema-driven codec: one class per message whatever the version, built from Kafka's
own schema files. A field that a version does not carry reads as its default and is left out when written, so a handler
is written once. What the library lacks (the messages between brokers) is described in ``schemas``.

Type checkers read ``message_classes.pyi``, which ``message_stubs`` makes of these classes.
"""

from __future__ import annotations

from importlib.resources import files
from types import new_class
from typing import Any, Generic, NamedTuple, TypeVar

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.data_container import DataContainer

from sparklog.protocol import schemas
from sparklog.protocol.api_key import ApiKey

Struct = DataContainer
Message = ApiMessage
Response = ApiMessage
A = TypeVar("A")


class Request(Generic[A]):
    """What is answered with an ``A``. For type checkers alone: no request is an instance of it."""


class Schema(NamedTuple):
    """The two classes of one API."""

    request: Any
    response: Any


def _schema(api: ApiKey) -> Schema:
    name = api.name.title().replace("_", "")
    return Schema(_message_class(f"{name}Request"), _message_class(f"{name}Response"))


def _message_class(name: str) -> Any:
    """Our own if there is a schema of it, else the library's, which has some schemas without a class."""
    is_ours = files(schemas).joinpath(f"{name}.json").is_file()
    of_library = (getattr(package, name, None) for package in (admin, consumer, metadata, producer, sasl))
    known = None if is_ours else next(filter(None, of_library), None)
    return known or new_class(
        name,
        (ApiMessage,),
        {"load_json": schemas if is_ours else None},
        lambda namespace: namespace.update(__module__=__name__),
    )


SCHEMAS = {api: _schema(api) for api in ApiKey}
_CLASSES = {each.__name__: each for schema in SCHEMAS.values() for each in schema}
globals().update(_CLASSES)
__all__ = ["SCHEMAS", "A", "Message", "Request", "Response", "Schema", "Struct", *_CLASSES]
