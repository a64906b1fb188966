"""A schema as a registry has it: a text, its kind, and the other schemas that it refers to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

from sparklog.errors import RegistryError

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


class Reference(NamedTuple):
    """Another schema: ``name`` is what the text calls it, ``subject`` and ``version`` where the registry has it."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """``kind`` is ``AVRO``, ``JSON`` or ``PROTOBUF``."""

    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()

    def request(self) -> dict[str, Any]:
        """It as the registry is told of it. Older registries know of no other kind than Avro, and of no references."""
        found: dict[str, Any] = {"schema": self.text}
        if self.kind != AVRO:
            found["schemaType"] = self.kind
        if self.references:
            found["references"] = [each._asdict() for each in self.references]
        return found


class Registered(NamedTuple):
    """A schema under its subject. ``version`` counts from 1."""

    subject: str
    version: int
    id: int
    schema: Schema


def schema_of(answer: Any) -> Schema:
    """The schema in an answer. Raises RegistryError for an answer that has none."""
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in answer.get("references") or ()
        )
        text, kind = answer["schema"], answer.get("schemaType") or AVRO
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _not_an_answer(answer) from None
    if not isinstance(text, str) or not isinstance(kind, str):
        raise _not_an_answer(answer)
    return Schema(text, kind, references)


def registered_of(answer: Any) -> Registered:
    """What a subject's version is. Raises RegistryError for another answer."""
    schema = schema_of(answer)
    return Registered(str(answer.get("subject", "")), number_of(answer, "version"), number_of(answer, "id"), schema)


def number_of(answer: Any, name: str) -> int:
    """A whole number of an answer. Raises RegistryError where it has none of that name."""
    found = answer.get(name) if isinstance(answer, Mapping) else None
    if not _is_number(found):
        raise _not_an_answer(answer)
    return found


def numbers_of(answer: Any) -> list[int]:
    """An answer that is a list of whole numbers. Raises RegistryError for another one."""
    if not isinstance(answer, list) or not all(map(_is_number, answer)):
        raise _not_an_answer(answer)
    return list(answer)


def names_of(answer: Any) -> list[str]:
    """An answer that is a list of names. Raises RegistryError for another one."""
    if not isinstance(answer, list) or not all(isinstance(each, str) for each in answer):
        raise _not_an_answer(answer)
    return list(answer)


def _is_number(found: Any) -> TypeGuard[int]:
    """Whether it is one of 32 bits, as ids are in values."""
    return isinstance(found, int) and not isinstance(found, bool) and -(1 << 31) <= found < 1 << 31


def _not_an_answer(answer: Any) -> RegistryError:
    return RegistryError(
        f"this is no answer of a schema registry: {str(answer)[:200]!r}; is schema.registry.url its address? Apicurio's"
        " ends with /apis/ccompat/v7"
    )
