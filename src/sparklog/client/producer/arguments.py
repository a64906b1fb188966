"""What a program gives to ``send``, checked before anything is begun: a record that is refused changes nothing.

The producer looks at the class of each part, which costs next to nothing, and calls these only for a part that is not
of the class that it will be written as. A wrong type is a TypeError, an impossible value a ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

Headers = tuple[tuple[str, "bytes | None"], ...]


class TopicSerializer(Protocol):
    """Makes bytes of a key or value that is sent to a topic, as Kafka's serializers do."""

    def serialize(self, topic: str, value: Any, /) -> bytes | None: ...


Serializer = Callable[[Any], "bytes | None"] | TopicSerializer


def serializing(name: str, given: Serializer | None) -> Callable[[str, Any], bytes | None] | None:
    """The function of topic and value that ``given`` is. Raises TypeError for what is no serializer."""
    if given is None:
        return None
    found = getattr(given, "serialize", None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    if not callable(given):
        raise TypeError(f"{name} is a function, not {given!r}; or an object with serialize(topic, value)")
    return lambda _topic, value: given(value)


def check_target(topic: Any, partition: Any) -> None:
    """Raises TypeError for what names no topic or is no partition's number."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic goes by its name, a str, not {topic!r}")
    if partition is not None and not isinstance(partition, int):
        raise TypeError(f"a partition is an int, not {partition!r}")


def as_bytes(given: Any, what: str) -> bytes | None:
    """A key or value: bytes as they are, text as UTF-8. Raises TypeError for anything else."""
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a {what} must be bytes, str or None, not {type(given).__name__}: pass a {what}_serializer")


def as_headers(given: Any) -> Headers:
    """Pairs of a name and bytes or None, from a mapping or from pairs. Raises TypeError for anything else."""
    try:
        pairs = tuple(given.items() if isinstance(given, Mapping) else given)
        for name, value in pairs:
            if name.__class__ is not str or (value is not None and value.__class__ is not bytes):
                return tuple(_header(*each) for each in pairs)
    except (TypeError, ValueError) as error:
        why = error if isinstance(error, _NotHeader) else f"not {given!r}"
        raise TypeError(f"headers are a mapping, or pairs, of a str and bytes or None: {why}") from None
    return pairs


class _NotHeader(TypeError):
    pass


def _header(name: Any, value: Any) -> tuple[str, bytes | None]:
    if not isinstance(name, str):
        raise _NotHeader(f"{name!r} is no str")
    if value is None or isinstance(value, bytes | bytearray | memoryview):
        return name, None if value is None else bytes(value)
    raise _NotHeader(f"that of {name!r} is {type(value).__name__}; encode it")
