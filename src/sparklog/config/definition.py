"""How a setting is defined: one dataclass field each, carrying its Kafka name, type, limits and meaning.

``parse`` turns text properties into an instance, ``describe`` turns an instance back into the table that
DescribeConfigs and ``--help`` show. A name that no field carries is an error, with the nearest names in its message.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from sparklog.errors import ConfigError

T = TypeVar("T")
_ALIKE = 0.8
"""How alike a name that is not known must be to one that is, of 1, to be taken for a misspelt one."""
Check = Callable[[Any], str | None]
"""Returns what is wrong with a value, or None."""


class ConfigType(IntEnum):
    """Kafka's numbers for the types of settings (``DescribeConfigsResponse.json``)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """One setting: its Kafka name, type, default, limits, meaning."""

    name: str
    kind: ConfigType
    default: Any
    doc: str
    check: Check | None = None
    broker_synonym: str | None = None

    def parse(self, text: str) -> Any:
        """The typed value. Raises ConfigError naming the setting and what it allows."""
        try:
            value = _PARSERS[self.kind](text.strip())
        except ValueError as error:
            raise ConfigError(f"{self.name}={text!r} is not {_IN_WORDS[self.kind]}") from error
        complaint = self.check(value) if self.check else None
        if complaint:
            raise ConfigError(f"{self.name}={text!r}: {complaint}")
        return value

    def format(self, value: Any) -> str:
        """The value as Kafka writes it; of a password that there is one."""
        if self.kind is ConfigType.PASSWORD:
            return "[hidden]" if value else ""
        if self.kind is ConfigType.BOOLEAN:
            return "true" if value else "false"
        if self.kind is ConfigType.LIST:
            return ",".join(value)
        return str(value)


_WHOLE = re.compile(r"[+-]?[0-9]+")


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _bounded(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text.strip()):  # int() takes 1_000 too, and digits of other scripts
            raise ValueError(text)
        value = int(text)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(text)
        return value

    return parse


_PARSERS: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _bounded(32),
    ConfigType.SHORT: _bounded(16),
    ConfigType.LONG: _bounded(64),
    ConfigType.DOUBLE: float,
    ConfigType.LIST: lambda text: tuple(item.strip() for item in text.split(",") if item.strip()),
    ConfigType.PASSWORD: str,
}

_IN_WORDS = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "a text",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a list",
    ConfigType.PASSWORD: "a text",
}


def at_least(low: float) -> Check:
    """A number of at least ``low``."""
    return lambda value: None if value >= low else f"must be at least {low}"


def above(low: float, high: float = math.inf) -> Check:
    """A number of more than ``low``, and of at most ``high``."""
    most = "" if high == math.inf else f", and at most {high}"
    return lambda value: None if low < value <= high else f"must be more than {low}{most}"


def between(low: float, high: float) -> Check:
    """A number from ``low`` to ``high``, both allowed."""
    return lambda value: None if low <= value <= high else f"must be from {low} to {high}"


def one_of(*allowed: str | bool) -> Check:
    """One of these values."""
    words = ", ".join(str(each).lower() if isinstance(each, bool) else each for each in allowed)
    return lambda value: None if value in allowed else f"must be {'one of ' if len(allowed) > 1 else ''}{words}"


def matching(pattern: str, wanted: str) -> Check:
    """A text that is ``wanted``, which is what matches ``pattern`` as a whole."""
    return lambda value: None if re.fullmatch(pattern, value, re.ASCII) else f"must be {wanted}"


def any_of(*allowed: str) -> Check:
    """A non-empty list of these words."""
    return lambda value: None if value and set(value) <= set(allowed) else f"must list only {', '.join(allowed)}"


def setting(
    name: str, kind: ConfigType, default: Any, doc: str, check: Check | None = None, *, broker: str | None = None
) -> Any:
    """A dataclass field for the setting ``name``; ``broker`` names the broker setting that gives its default.

    A password is left out of the instance's ``repr``, and may have no check: the complaint would show it.
    """
    definition = Definition(name, kind, default, doc, check, broker)
    is_shown = kind is not ConfigType.PASSWORD
    return dataclasses.field(default=default, repr=is_shown, metadata={"definition": definition})


def definitions(cls: type) -> dict[str, tuple[str, Definition]]:
    """Kafka name → (attribute, definition), in the order of the class."""
    table = {}
    for field in dataclasses.fields(cls):
        definition = field.metadata.get("definition")
        if definition is not None:
            table[definition.name] = (field.name, definition)
    return table


def unknown(name: str, known: Iterable[str], most: int = 3) -> ConfigError:
    """That there is no setting of this name, and which of the known ones are like it, ``most`` of them."""
    near = difflib.get_close_matches(name.lower(), known, n=most, cutoff=_ALIKE)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return ConfigError(f"unknown setting {name!r}{hint}")


def parse(cls: type[T], properties: Mapping[str, str], base: T | None = None) -> T:
    """An instance from text properties, over ``base`` or the defaults. Raises ConfigError on any that does not fit."""
    table = definitions(cls)
    values: dict[str, Any] = {}
    for name, text in properties.items():
        if name not in table:
            raise unknown(name, table)
        attribute, definition = table[name]
        values[attribute] = definition.parse(text)
    return dataclasses.replace(base, **values) if base is not None else cls(**values)  # type: ignore[type-var]


def describe(instance: object) -> dict[str, str]:
    """Kafka name → value as text, for every setting of the instance."""
    return {
        name: definition.format(getattr(instance, attribute))
        for name, (attribute, definition) in definitions(type(instance)).items()
    }
