"""Values with ids of a schema registry, as people read and write them: ``--registry`` and ``--registry-config``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparklog.cli.display import counted
from sparklog.cli.records.rows import BadLine
from sparklog.config.properties import load_properties
from sparklog.errors import SchemaNotFound, SerializationError

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.cli.records.rows import JsonLines, Rows, TextLines
    from sparklog.registry import ValueDecoder, ValueEncoder
    from sparklog.structs import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])
_JSON_SCHEMA = ".schema.json"
_Round = tuple["TopicPartition", dict[str, "pa.Array"]]


def registry_options(command: F) -> F:
    """Adds the options; the command gets ``registry`` and ``registry_config``."""
    return _options("Print values as JSON, by their schemas in this registry.", command)


def writing_options(command: F) -> F:
    """As ``registry_options``, with ``--schema``; the command gets ``schema`` as well."""
    schema = click.option(
        "--schema", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Register this schema and write with it: Avro, or JSON Schema in a file called .schema.json;"
        " default: the newest of the subject TOPIC-value.",
    )  # fmt: skip
    return _options("Values are lines of JSON: write them by a schema of this registry.", schema(command))


def _options(what: str, command: F) -> F:
    for option in (
        click.option(
            "--registry-config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A properties file with the registry's settings: schema.registry.url, basic.auth.user.info, ….",
        ),
        click.option("--registry", metavar="URL", help=what),
    ):
        command = option(command)
    return command


def registry_settings(url: str | None, file: Path | None) -> dict[str, str]:
    """By the registry's names; empty without any. Raises ConfigError for a file that cannot be read."""
    return ({} if file is None else load_properties(file)) | ({} if url is None else {"schema.registry.url": url})


def value_decoder(
    url: str | None, file: Path | None, defaults: Mapping[str, str] = MappingProxyType({})
) -> ValueDecoder | None:
    """What the options say, with ``defaults`` for the rest; None without any.

    Raises ConfigError for settings that cannot be.
    """
    settings = registry_settings(url, file)
    if not settings:
        return None
    from sparklog.registry import SchemaRegistry, ValueDecoder

    return ValueDecoder(SchemaRegistry({**defaults, **settings}))


def value_encoder(url: str | None, file: Path | None, schema: Path | None) -> ValueEncoder | None:
    """What the options of a command that writes say; None without a registry.

    Raises ConfigError, UsageError for a schema without a registry, and SerializationError for one that is none.
    """
    settings = registry_settings(url, file)
    if not settings:
        if schema is not None:
            raise click.UsageError("--schema is registered: give --registry or --registry-config too")
        return None
    from sparklog.registry import Schema, SchemaRegistry, ValueEncoder
    from sparklog.registry.schema import AVRO, JSON

    if schema is None:
        return ValueEncoder(SchemaRegistry(settings))
    try:
        text = schema.read_text(encoding="utf-8")
    except ValueError:
        raise SerializationError(f"{schema} is not UTF-8") from None
    kind = JSON if schema.name.endswith(_JSON_SCHEMA) else AVRO
    return ValueEncoder(SchemaRegistry(settings), Schema(text, kind))


class RegistryLines:
    """Lines whose values are JSON, and become values with the id of a schema of the registry."""

    def __init__(self, lines: TextLines | JsonLines, encoder: ValueEncoder, topic: str) -> None:
        """Raises RegistryError, and SchemaNotFound where there is no schema to write with."""
        encoder.prepare(topic)
        self._lines = lines
        self._encode = partial(encoder.encode, topic)
        self.is_ordered, self.separator, self.advice = lines.is_ordered, lines.separator, lines.advice

    def rows(self, lines: pa.Array) -> tuple[Rows, BadLine | None]:
        """The records of the lines, or of those before the first that is none."""
        import pyarrow as pa

        rows, bad = self._lines.rows(lines)
        values: list[bytes | None] = []
        for value in rows.value.to_pylist():
            try:
                values.append(self._encode(value))
            except SerializationError as error:
                bad = BadLine(len(values), f"has a value that cannot be written: {error}")
                break
        return rows.first(len(values))._replace(value=pa.array(values, pa.binary())), bad


class RegistryValues:
    """Makes JSON text of values, by the schemas whose ids they have. Values that are no such are left as they are.

    Without a URL and a file it leaves all as they are. Raises ConfigError for settings that cannot be.
    """

    def __init__(self, url: str | None, file: Path | None) -> None:
        decoder = value_decoder(url, file)
        self._decode: Callable[[bytes], str] | None = None if decoder is None else decoder.decode
        self._others = 0
        self._why = ""

    def shown(self, rounds: Iterator[_Round]) -> Iterator[_Round]:
        """The rounds, with the column ``value`` as text. Raises RegistryError when the registry does not answer."""
        for tp, columns in rounds:
            yield tp, columns if self._decode is None else {**columns, "value": self._column(columns["value"])}

    def _column(self, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        return pa.array([each and self._text(each) for each in values.to_pylist()], pa.binary())

    def _text(self, value: bytes) -> bytes:
        assert self._decode is not None
        try:
            return self._decode(value).encode()
        except (SerializationError, SchemaNotFound) as error:
            self._others += 1
            self._why = self._why or str(error)
            return value

    def say_others(self) -> None:
        """Say on standard error how many values were left as they are, and why the first was."""
        if self._others:
            many = counted(self._others, "value")
            click.echo(f"{many} printed as written, not by a schema; of the first: {self._why}", err=True)
