"""Whether a table can take the fields of a schema: the same types, and fields that are missing can be added.

Nothing else is changed in a table: a type, a name, what a column means. A column that the schema no longer names is
refused too: it would be null from then on, and nobody would have said so.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType


class Unsuited(Exception):
    """The table cannot take the schema; the message says why, and names both sides."""


class Evolution(NamedTuple):
    """What a table becomes to take a schema."""

    schema: StructType
    """Of the table. Columns that were there stay as they are; new ones come last, of the table or of their struct."""
    added: tuple[str, ...]
    """Paths and types of what is new, such as ``place.zip string``."""


def evolution(table: StructType, wanted: StructType) -> Evolution:
    """What the table becomes that it may hold the fields ``wanted``. Raises Unsuited.

    Columns of the table that are not wanted stay; the caller knows which ones may.
    """
    added: list[str] = []
    return Evolution(_merged(table, wanted, "", added, are_all_wanted=False), tuple(added))


def _merged(table: StructType, wanted: StructType, where: str, added: list[str], *, are_all_wanted: bool) -> StructType:
    known = {each.name.casefold(): each for each in wanted.fields}
    fields = []
    for each in table.fields:
        field = known.pop(each.name.casefold(), None)
        if field is None:
            if are_all_wanted:
                raise Unsuited(missing_in_schema(where + each.name))
            fields.append(each)
        else:
            fields.append(_same_field(each, field, where, added))
    for each in known.values():
        added.append(f"{where}{each.name} {each.dataType.simpleString()}")
        fields.append(StructField(each.name, each.dataType))
    return StructType(fields)


def _same_field(table: StructField, wanted: StructField, where: str, added: list[str]) -> StructField:
    if table.name != wanted.name:
        raise Unsuited(
            f"column {where}{table.name} of the table is {where}{wanted.name} in the schema, and tables do not tell"
            " upper case from lower: write the name as the table does"
        )
    kind = _merged_type(table.dataType, wanted.dataType, f"{where}{table.name}", added)
    return StructField(table.name, kind, table.nullable, table.metadata)


def _merged_type(table: DataType, wanted: DataType, where: str, added: list[str]) -> DataType:
    if isinstance(table, StructType) and isinstance(wanted, StructType):
        return _merged(table, wanted, f"{where}.", added, are_all_wanted=True)
    if isinstance(table, ArrayType) and isinstance(wanted, ArrayType):
        inner = _merged_type(table.elementType, wanted.elementType, f"{where}[]", added)
        return ArrayType(inner, table.containsNull)
    if isinstance(table, MapType) and isinstance(wanted, MapType):
        if table.keyType != wanted.keyType:
            raise Unsuited(_other_type(where, table, wanted))
        inner = _merged_type(table.valueType, wanted.valueType, f"{where}{{}}", added)
        return MapType(table.keyType, inner, table.valueContainsNull)
    if table != wanted:
        raise Unsuited(_other_type(where, table, wanted))
    return table


def _other_type(where: str, table: DataType, wanted: DataType) -> str:
    return (
        f"column {where} is {table.simpleString()} in the table and {wanted.simpleString()} in the schema:"
        " a type is not changed. Give the field another name in the schema, or offload to another table"
    )


def missing_in_schema(column: str) -> str:
    """Why a column that only the table has is refused."""
    return (
        f"column {column} of the table is neither one of the log nor in the schema: keep it in the schema (values"
        " without it give null), also where a field has a new name"
    )
