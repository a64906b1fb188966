"""What a table may become to hold a schema, and what it may not."""

import re

import pytest

types = pytest.importorskip("pyspark.sql.types")

from sparklog.spark.lake.evolution import Unsuited, evolution  # noqa: E402

_LONG, _STRING = types.LongType(), types.StringType()


def _struct(**kinds):
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


TABLE = _struct(
    key=types.BinaryType(),
    n=_LONG,
    place=_struct(zip=_STRING),
    all=types.ArrayType(_struct(x=_LONG)),
    by=types.MapType(_STRING, _struct(x=_LONG)),
)
SCHEMA = types.StructType(TABLE.fields[1:])


def test_a_table_that_has_all_fields_stays_as_it_is():
    assert evolution(TABLE, SCHEMA) == (TABLE, ())


def test_fields_are_added_at_the_end_of_the_table_and_of_structs():
    wanted = _struct(
        new=_LONG,
        n=_LONG,
        place=_struct(country=_STRING, zip=_STRING),
        all=types.ArrayType(_struct(x=_LONG, y=_LONG)),
        by=types.MapType(_STRING, _struct(y=_LONG, x=_LONG)),
    )
    found = evolution(TABLE, wanted)
    assert found.added == ("place.country string", "all[].y bigint", "by{}.y bigint", "new bigint")
    assert found.schema.names == ["key", "n", "place", "all", "by", "new"]
    assert found.schema["place"].dataType.names == ["zip", "country"]
    assert all(each.nullable for each in found.schema.fields)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (_struct(n=_STRING), "column n is bigint in the table and string in the schema"),
        (_struct(N=_LONG), "column n of the table is N in the schema"),
        (
            _struct(place=_struct(city=_STRING)),
            "column place.zip of the table is neither one of the log nor in the schema",
        ),
        (_struct(place=_STRING), "column place is struct<zip:string> in the table and string in the schema"),
        (_struct(by=types.MapType(_LONG, _LONG)), "column by is map<string,struct<x:bigint>> in the table"),
    ],
)
def test_nothing_else_is_changed(wanted, why):
    with pytest.raises(Unsuited, match=re.escape(why)):
        evolution(TABLE, wanted)
