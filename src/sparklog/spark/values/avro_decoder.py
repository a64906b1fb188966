"""Decodes records in Avro's binary encoding, with a function that is made once for a pair of schemas.

``decoder`` resolves the writer's schema to the reader's, as Avro specifies. Of the pair it makes a function of bytes.
The values are as pyarrow takes them: dates are days and timestamps microseconds since 1970. Both must be in the years 1
to 9999, as in Python, and a decimal has at most the digits of its type. Avro leaves open how logical types resolve:

| Writer | Reader | Read as |
| --- | --- | --- |
| a timestamp of any kind | a timestamp of any kind | the same time, whatever the unit: a number of it for -nanos |
| int, long | date, timestamp | the number, in the reader's unit |
| date, timestamp | int, long, float, double | the number as written |
| decimal | decimal of another scale | the same number; one that would be rounded is not readable |
| bytes, fixed | decimal and back | the bytes of the unscaled number |
| date; decimal; string | timestamp; string; decimal | not readable |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

from sparklog.errors import DataSourceError
from sparklog.registry.avro_bounds import MOST_DIGITS, EmptyParts
from sparklog.spark.values import avro_binary
from sparklog.spark.values.avro_binary import Read, wrong
from sparklog.spark.values.decoded import Unreadable

_PROMOTED = {
    "boolean": ("boolean",),
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "double": ("double",),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}
"""The writer's type → the reader's types that it is read as."""
_NAMED = ("record", "error", "enum", "fixed")
_MICROS = {
    "timestamp-millis": 1000,
    "timestamp-micros": 1,
    "local-timestamp-millis": 1000,
    "local-timestamp-micros": 1,
}
"""The logical type → microseconds in its unit."""
NANOS = ("timestamp-nanos", "local-timestamp-nanos")
"""Logical types of timestamps that Spark reads as numbers."""
DAYS = range(-719_162, 2_932_897)
"""The days since 1970 of the years 1 to 9999."""
MICROSECONDS = range(DAYS.start * 86_400_000_000, DAYS.stop * 86_400_000_000)
"""The microseconds since 1970 of the years 1 to 9999."""
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float, str),
    "double": (int, float, str),
    "string": (str,),
    "bytes": (str,),
    "fixed": (str,),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
    "error": (dict,),
}
"""The type → what a default of it is in a parsed schema."""
_EXACT = Context(prec=38)


def decoder(writer: Any, reader: Any) -> Callable[[bytes, int], dict[str, Any]]:
    """The function that decodes a record of ``writer``, from a position to the end of the bytes, as one of ``reader``.

    Both are schemas as fastavro parses them, with no other logical types than those above. The function raises
    Unreadable. Raises DataSourceError for a default that is not of its type; where the schemas do not match, only the
    values concerned are unreadable.
    """
    read = _Resolution(writer, reader).read(writer, reader, "")

    def decode(value: bytes, start: int) -> dict[str, Any]:
        try:
            found, end = read(value, start)
        except IndexError:
            raise Unreadable("it ends in the middle of a record") from None
        except RecursionError:
            raise Unreadable("it is nested too deeply") from None
        if end != len(value):
            raise Unreadable(f"{len(value) - end} bytes follow the record")
        record: dict[str, Any] = found
        return record

    return decode


class _Resolution:
    """Makes the functions that read a writer's types as a reader's; as None they are read to be skipped."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writers: dict[str, Any] = {}
        self._readers: dict[str, Any] = {}
        self._empty = EmptyParts(writer)
        self._skipped: dict[str, Read] = {}
        self._resolved: dict[tuple[str, str], Read] = {}
        """By the writer's record and the place of the reader's: in unions it may be met on very many ways."""
        _add_named(writer, self._writers)
        _add_named(reader, self._readers)

    def read(self, writer: Any, reader: Any, where: str) -> Read:
        if isinstance(writer, list):
            return avro_binary.union([self.read(each, reader, where) for each in writer], where)
        written = _full(writer, self._writers)
        if reader is None:
            return self._skip(written)
        if isinstance(reader, list):
            if written["type"] == "null" and "null" in reader:
                return avro_binary.null
            reader = _not_null(reader)
        wanted = _full(reader, self._readers)
        kind = written["type"]
        if not _matches(written, wanted):
            return _mismatch(_name(written), _name(wanted), where)
        if kind in _PROMOTED or kind == "fixed":
            return _scalar(written, wanted, where)
        return self._composite(written, wanted, where)

    def _composite(self, written: Mapping[str, Any], wanted: Mapping[str, Any] | None, where: str) -> Read:
        kind = written["type"]
        if kind == "array":
            element = self.read(written["items"], wanted and wanted["items"], f"{where}[]")
            if self._empty.of(written["items"]):
                return avro_binary.array_of_empty(None if wanted is None else element, where)
            return avro_binary.array(element, where)
        if kind == "map":
            return avro_binary.map_of(self.read(written["values"], wanted and wanted["values"], f"{where}{{}}"), where)
        if kind == "enum":
            return _enum(written, wanted or written, where)
        if wanted is None:
            return avro_binary.record([(None, self.read(each["type"], None, where)) for each in written["fields"]], {})
        at = written["name"], where
        if at not in self._resolved:
            self._resolved[at] = self._resolved_record(written, wanted, where)
        return self._resolved[at]

    def _skip(self, written: Mapping[str, Any]) -> Read:
        """Only a type that is skipped may be recursive."""
        if self._empty.of(written):
            return avro_binary.null
        kind = written["type"]
        where = f"a {_name(written)} that is not read"
        if kind in _PROMOTED or kind == "fixed":
            return _plain(written, kind, where)
        if kind not in _NAMED:
            return self._composite(written, None, where)
        name = written["name"]
        if name not in self._skipped:
            self._skipped[name] = lambda data, at: self._skipped[name](data, at)
            self._skipped[name] = self._composite(written, None, where)
        return self._skipped[name]

    def _resolved_record(self, written: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> Read:
        path = f"{where}." if where else ""
        missing = {each["name"]: each for each in wanted["fields"]}
        taken = {each["name"] for each in written["fields"]} & missing.keys()
        aliases = {
            alias: name
            for name, each in missing.items()
            if name not in taken
            for alias in each.get("aliases", ())
            if alias not in taken
        }
        reads: list[tuple[str | None, Read]] = []
        for each in written["fields"]:
            field = missing.pop(aliases.get(each["name"], each["name"]), None)
            if field is None:
                reads.append((None, self.read(each["type"], None, path + each["name"])))
            else:
                reads.append((field["name"], self.read(each["type"], field["type"], path + field["name"])))
        without = [path + name for name, each in missing.items() if "default" not in each]
        if without:
            return avro_binary.never(
                f"it is not of the schema: it was written without {', '.join(without)}, and there is no default"
            )
        defaults = {name: self._default(each["type"], each["default"], path + name) for name, each in missing.items()}
        return avro_binary.record(reads, defaults)

    def _default(self, reader: Any, value: Any, where: str) -> Any:
        """The value of a default in JSON. Raises DataSourceError if it is not of the type."""
        if isinstance(reader, list):
            if value is None and "null" in reader:
                return None
            reader = _not_null(reader)
        wanted = _full(reader, self._readers)
        kind = wanted["type"]
        bad = _bad_default(where, value, wanted)
        if not isinstance(value, _JSON_TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
            raise bad
        if isinstance(value, list):
            return [self._default(wanted["items"], each, f"{where}[]") for each in value]
        if isinstance(value, dict) and kind == "map":
            return {name: self._default(wanted["values"], each, f"{where}{{}}") for name, each in value.items()}
        if isinstance(value, dict):
            return self._default_record(wanted, value, where)
        try:
            return _default_scalar(wanted, value, where)
        except (Unreadable, ValueError, OverflowError):
            raise bad from None

    def _default_record(self, wanted: Mapping[str, Any], value: Mapping[str, Any], where: str) -> dict[str, Any]:
        found = {}
        for field in wanted["fields"]:
            name = field["name"]
            if name not in value and "default" not in field:
                raise _bad_default(where, value, wanted)
            given = value[name] if name in value else field["default"]
            found[name] = self._default(field["type"], given, f"{where}.{name}")
        return found


def _add_named(schema: Any, named: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _add_named(each, named)
    elif isinstance(schema, Mapping):
        if schema["type"] in _NAMED:
            named[schema["name"]] = schema
        for field in schema.get("fields", ()):
            _add_named(field["type"], named)
        for inner in ("items", "values"):
            _add_named(schema.get(inner), named)


def _full(schema: Any, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of one type as a mapping."""
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    found: Mapping[str, Any] = schema
    return found


def _not_null(union: list[Any]) -> Any:
    return next(each for each in union if each != "null")


def _name(schema: Mapping[str, Any]) -> str:
    if schema["type"] == "fixed":
        return f"{schema['name']} of {schema['size']} bytes"
    return str(schema.get("name") or schema.get("logicalType") or schema["type"])


def _matches(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    kind, wanted_kind = written["type"], wanted["type"]
    if kind in _PROMOTED:
        return wanted_kind in _PROMOTED[kind] and _logical_types_match(written, wanted)
    if kind != wanted_kind:
        return False
    if kind not in _NAMED:
        return True
    name = written["name"].rpartition(".")[2]
    aliases = wanted.get("aliases", ())
    is_same = name == wanted["name"].rpartition(".")[2] or name in aliases or written["name"] in aliases
    return is_same and written.get("size") == wanted.get("size")


def _logical_types_match(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    if written["type"] != wanted["type"] and "decimal" in (written.get("logicalType"), wanted.get("logicalType")):
        return False
    return not (written.get("logicalType") == "date" and wanted.get("logicalType") in (*_MICROS, *NANOS))


def _scalar(written: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> Read:
    plain = _plain(written, wanted["type"], where)
    convert = _conversion(written, wanted, where)
    if convert is None:
        return plain

    def read(data: bytes, at: int) -> tuple[Any, int]:
        value, at = plain(data, at)
        return convert(value), at

    return read


def _enum(written: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> Read:
    known, default = wanted["symbols"], wanted.get("default")
    return avro_binary.enum(written["symbols"], [x if x in known else default for x in written["symbols"]], where)


def _conversion(written: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> Callable[[Any], Any] | None:
    logical, written_logical = wanted.get("logicalType"), written.get("logicalType")
    if logical == "decimal":
        scale = wanted.get("scale", 0)
        return _decimal(written.get("scale", 0) if written_logical == "decimal" else scale, wanted, where)
    if logical in _MICROS and written_logical in NANOS:
        return lambda nanos: nanos // 1000  # of which 64 bits hold the years 1677 to 2262
    if logical in _MICROS:
        return _within(MICROSECONDS, _MICROS[written_logical or logical], "timestamp", where)
    if logical in NANOS and written_logical in _MICROS:
        return _to_nanos(1000 * _MICROS[written_logical], where)
    if logical == "date":
        return _within(DAYS, 1, "date", where)
    if wanted["type"] in ("float", "double") and written["type"] in ("int", "long"):
        return float
    return None


def _within(allowed: range, unit: int, name: str, where: str) -> Callable[[int], int]:
    def convert(number: int) -> int:
        found = number * unit
        if found not in allowed:
            raise wrong(where, f"is the {name} {number}, outside of the years 1 to 9999")
        return found

    return convert


def _to_nanos(unit: int, where: str) -> Callable[[int], int]:
    def convert(number: int) -> int:
        found = number * unit
        if found not in avro_binary.LONGS:
            raise wrong(where, f"is the timestamp {number}, which is too far for nanoseconds")
        return found

    return convert


def _decimal(scale: int, wanted: Mapping[str, Any], where: str) -> Callable[[bytes], Decimal]:
    """Converts unscaled numbers of ``scale`` to decimals of the type."""
    digits, wanted_scale = wanted["precision"], wanted.get("scale", 0)
    if scale - wanted_scale > MOST_DIGITS:
        return _refuse(where, f"was written with {scale} fractional digits")
    limit = 10**digits
    multiplier, divisor = 10 ** max(0, wanted_scale - scale), 10 ** max(0, scale - wanted_scale)

    def convert(raw: bytes) -> Decimal:
        number, rest = divmod(int.from_bytes(raw, "big", signed=True) * multiplier, divisor)
        if rest or not -limit < number < limit:
            raise wrong(where, f"does not fit into a decimal of {digits} digits, {wanted_scale} of them fractional")
        return Decimal(number).scaleb(-wanted_scale, _EXACT)

    return convert


def _refuse(where: str, what: str) -> Callable[[bytes], Any]:
    def convert(_raw: bytes) -> Any:
        raise wrong(where, what)

    return convert


def _default_scalar(wanted: Mapping[str, Any], value: Any, where: str) -> Any:
    kind = wanted["type"]
    found = value
    if kind in ("bytes", "fixed"):
        found = value.encode("latin-1")
    elif kind in ("float", "double"):
        found = float(value)
    is_wrong = (
        (kind == "enum" and value not in wanted["symbols"])
        or (kind == "fixed" and len(found) != wanted["size"])
        or (kind == "int" and value not in avro_binary.INTS)
        or (kind == "long" and value not in avro_binary.LONGS)
    )
    if is_wrong:
        raise ValueError
    convert = _conversion(wanted, wanted, where)
    return found if convert is None else convert(found)


def _plain(written: Mapping[str, Any], kind: str, where: str) -> Read:
    """Reads a primitive type or a fixed, written as ``written``; strings and bytes as ``kind``."""
    written_kind = written["type"]
    if written_kind == "fixed":
        return avro_binary.fixed(written["size"])
    if written_kind in ("string", "bytes"):
        return avro_binary.string(where) if kind == "string" else avro_binary.binary(where)
    if written_kind == "int":
        return avro_binary.integer(where)
    if written_kind == "boolean":
        return avro_binary.boolean(where)
    return {"long": avro_binary.long, "float": avro_binary.single, "double": avro_binary.double}[written_kind]


def _mismatch(written: str, wanted: str, where: str) -> Read:
    return avro_binary.never(str(wrong(where, f"was written as {written}, not as {wanted}")))


def _bad_default(where: str, value: Any, wanted: Mapping[str, Any]) -> DataSourceError:
    message = f"the default of {where} is not of the type {_name(wanted)}: {value!r}"
    return DataSourceError("SPARKLOG_UNSUPPORTED_SCHEMA", message)
