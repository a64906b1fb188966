"""Bytes of records as text for people (invariant 5 of ``docs/adr/0039``).

Nothing is put in the place of what cannot be shown: bytes that are no UTF-8 are shown in hex. JSON is the record's own
text; the indented form has the same tokens in the same order, since numbers and strings are never parsed and written
again. A text that is cut says so, and how many bytes the whole has.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from sparklog.clock import Clock, SystemClock
from sparklog.errors import RegistryError, RegistryUnavailable, SerializationError
from sparklog.registry import ValueDecoder

T = TypeVar("T")
AUTO: Final = "auto"
_LARGEST_JSON: Final = 1 << 20
_LARGEST_INDENTED: Final = 4 << 20
IMPATIENT: Final[Mapping[str, str]] = {"schema.registry.request.timeout.ms": "2000", "schema.registry.max.retries": "0"}
"""Settings of a registry that visitors wait for, where nobody has said others."""
_LEFT_ALONE_S: Final = 30.0
_THREADS: Final = 4
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


class Decoder(Protocol):
    """Another format. Its ``name`` is what a visitor chooses; ``is_json``: its texts are JSON. It may wait."""

    name: str
    is_json: bool

    def decode(self, data: bytes, *, is_key: bool, topic: str) -> str | None:
        """The text; None for bytes that it does not know."""


class Shown(NamedTuple):
    """``form`` is the name of the decoder that made ``text``; ``size`` in bytes."""

    form: str
    text: str
    size: int
    is_cut: bool

    def indented(self, decoding: Decoding) -> Shown:
        """JSON with a line for each member, unless it is cut; anything else as it is."""
        return self._replace(text=indented(self.text)) if decoding.is_json(self.form) and not self.is_cut else self


class JsonDecoder:
    """Objects and arrays in JSON, as they are written."""

    name = "json"
    is_json = True

    def decode(self, data: bytes, *, is_key: bool, topic: str) -> str | None:  # noqa: ARG002
        if len(data) > _LARGEST_JSON or data.lstrip()[:1] not in (b"{", b"["):
            return None
        try:
            text = data.decode()
            json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return None
        return text


class TextDecoder:
    """UTF-8."""

    name = "utf-8"
    is_json = False

    def decode(self, data: bytes, *, is_key: bool, topic: str) -> str | None:  # noqa: ARG002
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None


class HexDecoder:
    """Bytes in hex, whatever they are."""

    name = "hex"
    is_json = False

    def decode(self, data: bytes, *, is_key: bool, topic: str) -> str | None:  # noqa: ARG002
        return data.hex(" ")


class SchemaDecoder:
    """Values with the id of a schema in a registry, as JSON. Without an answer of the registry it knows no bytes.

    A registry that does not answer is left alone for a while: each id that a record names would wait for it anew, and
    records are a stranger's.
    """

    name = "schema"
    is_json = True

    def __init__(self, values: ValueDecoder, clock: Clock | None = None) -> None:
        self._values = values
        self._clock = clock or SystemClock()
        self._alone_until = -math.inf

    def decode(self, data: bytes, *, is_key: bool, topic: str) -> str | None:  # noqa: ARG002
        if self._clock.monotonic() < self._alone_until:
            return None
        try:
            return self._values.decode(data)
        except RegistryUnavailable:
            self._alone_until = self._clock.monotonic() + _LEFT_ALONE_S
        except (SerializationError, RegistryError):
            pass
        return None


DECODERS: Final[tuple[Decoder, ...]] = (JsonDecoder(), TextDecoder(), HexDecoder())
"""Those that there always are, in the order in which they are asked."""


class Decoding:
    """``more`` decoders are asked before the others.

    It has threads of its own, for a decoder may wait: names of brokers are looked up on those of the loop.
    """

    def __init__(self, more: Sequence[Decoder] = ()) -> None:
        self._decoders = {each.name: each for each in (*more, *DECODERS)}
        self._threads = ThreadPoolExecutor(_THREADS, "sparklog web decoding")

    async def aside(self, work: Callable[[], T]) -> T:
        """What ``work`` returns, on a thread of these. There are few: it may wait for others."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Begin no more of such work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def names(self) -> tuple[str, ...]:
        """What a visitor may choose."""
        return AUTO, *self._decoders

    def is_json(self, form: str) -> bool:
        """Whether texts of that form are JSON."""
        return self._decoders[form].is_json

    def shown(self, data: bytes | None, form: str, most: int, *, topic: str, is_key: bool = False) -> Shown | None:
        """At most ``most`` characters, as ``form`` says; None for null. What that form is not goes on to the next."""
        if data is None:
            return None
        wanted = list(self._decoders.values())
        if form in self._decoders:
            wanted.sort(key=lambda each: each.name != form)
        for decoder in wanted:
            part = data[: (most + 1) // 3] if decoder.name == HexDecoder.name else data
            text = decoder.decode(part, is_key=is_key, topic=topic)
            if text is not None:
                return Shown(decoder.name, text[:most], len(data), len(text) > most or len(part) < len(data))
        raise AssertionError("every byte has a form in hex")


def indented(text: str) -> str:
    """JSON with a line for each member, and its tokens as they were.

    The text itself where that is too large: the blanks before deep members can be a thousand times the text.
    """
    lines: list[str] = [""]
    depth, before, size = 0, "", len(text)
    for token in _TOKEN.findall(text):
        if token in "]}":
            depth -= 1
        begins_line = before not in "[{" if token in "]}" else before in ("[", "{", ",")
        if begins_line:
            size += 2 * depth
            if size > _LARGEST_INDENTED:
                return text
            lines.append("  " * depth)
        lines[-1] += f"{token} " if token == ":" else token
        depth += token in ("[", "{")
        before = token
    return "\n".join(lines)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
