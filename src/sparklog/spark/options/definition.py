"""How an option is defined: its name, the kind of its value, the queries that it is for, its default, its meaning.

``table`` defines every option with these classes. Every refusal is a DataSourceError that names the option.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Flag, auto
from typing import Any, Generic, TypeVar

from sparklog.errors import DataSourceError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_METADATA = "option"


class Use(Flag):
    """The queries that an option is for."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE


@dataclasses.dataclass(frozen=True)
class Kind(Generic[T_co]):
    """What the values of an option are.

    ``parse`` takes the option's name and its text and returns the value, or raises DataSourceError. ``looks`` says in
    Markdown what the text may be, and ``format`` writes a value as such a text.
    """

    parse: Callable[[str, str], T_co]
    looks: str
    format: Callable[[Any], str] = str


@dataclasses.dataclass(frozen=True)
class Option(Generic[T_co]):
    """One option. ``help`` is one line of Markdown.

    ``stream_default`` replaces ``default`` in a streaming query. ``elsewhere`` is the advice with which queries of the
    same direction (reading or writing) refuse the option if ``uses`` leaves them out; None: they do not refuse it.
    """

    name: str
    kind: Kind[T_co]
    uses: Use
    help: str
    default: T_co
    stream_default: T_co | None = None
    elsewhere: str | None = None

    def parse(self, text: str) -> T_co:
        """The value of ``text``. Raises DataSourceError where the option cannot have it."""
        return self.kind.parse(self.name, text)

    def default_for(self, use: Use) -> T_co:
        """The value in a query of this use that does not set the option."""
        if self.stream_default is not None and not use & (Use.BATCH_READ | Use.BATCH_WRITE):
            return self.stream_default
        return self.default


@dataclasses.dataclass(frozen=True)
class RefusedSetting:
    """A setting of Kafka's clients, without ``kafka.``, that queries of these uses refuse, and what to do instead."""

    name: str
    uses: Use
    advice: str


def option_field(option: Option[T]) -> T:
    """A dataclass field that holds the value of ``option``; its default is the option's."""
    return dataclasses.field(default=option.default, metadata={_METADATA: option})


def option_fields(cls: type) -> dict[str, Option[Any]]:
    """Attribute → option, for each field that ``option_field`` made, in the order of the class."""
    return {each.name: each.metadata[_METADATA] for each in dataclasses.fields(cls) if _METADATA in each.metadata}


def invalid(name: str, value: str, reason: str) -> DataSourceError:
    """The error for a value that the option cannot have."""
    return DataSourceError("SPARKLOG_INVALID_OPTION", f"option '{name}' cannot be {value!r}: {reason}")


def unsupported(name: str, advice: str) -> DataSourceError:
    """The error for an option that the query cannot have at all."""
    return DataSourceError("SPARKLOG_UNSUPPORTED_OPTION", f"option '{name}' is not supported: {advice}")
