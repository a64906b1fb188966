"""Which Avro values the JVM decodes, and that it makes the same of them as the workers."""

import datetime
import decimal
import json

import pytest

from sparklog.errors import DataSourceError
from sparklog.local.jars import is_fetched
from sparklog.registry import AvroSerializer, Schema, SchemaRegistry
from sparklog.spark import registry_values
from sparklog.spark.values.jvm_avro import plain_writers
from sparklog.testing.registry import schema_registry

pytest.importorskip("fastavro")


def _record(**fields):
    return {"type": "record", "name": "R", "fields": [{"name": name, **each} for name, each in fields.items()]}


_LONG, _STRING = {"type": "long"}, {"type": "string"}
_MILLIS = {"type": {"type": "long", "logicalType": "timestamp-millis"}}
_MICROS = {"type": {"type": "long", "logicalType": "timestamp-micros"}}


@pytest.mark.parametrize(
    ("writer", "is_plain"),
    [
        (_record(a=_LONG), True),
        (_record(a=_LONG, gone=_STRING), True),
        (_record(a=_LONG, b={"type": "string"}), True),
        (_record(b=_STRING), False),
        (_record(a={"type": "int"}), False),
        ({**_record(a=_LONG), "name": "Other"}, False),
        ({**_record(a=_LONG), "namespace": "org"}, False),
        ("long", False),
    ],
)
def test_a_writer_with_the_readers_types_is_plain(writer, is_plain):
    reader = _record(a=_LONG, b={**_STRING, "default": ""})
    assert plain_writers({1: writer}, reader) == ({1: writer} if is_plain else {})


@pytest.fixture
def served():
    with schema_registry() as found:
        yield found


@pytest.mark.spark
def test_the_jvm_and_the_workers_make_the_same(spark, interpreted, served):
    if not is_fetched("avro"):
        pytest.skip("no JAR of Spark's Avro; type: python -m sparklog.local.jars avro (with a network)")
    registry, settings = SchemaRegistry(schema_registry_url=served[0]), {"schema.registry.url": served[0]}
    served[1].levels["t-value"] = "NONE"
    time = datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    old, new = (
        _record(n={"type": ["null", "long"]}, t=_MILLIS),
        _record(
            n={"type": ["null", "long"]},
            t=_MICROS,
            e={"type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "default": "B"},
            f={"type": {"type": "fixed", "name": "F", "size": 2}, "default": "xy"},
            d={"type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "default": "\u0001"},
            m={"type": {"type": "map", "values": {"type": "array", "items": ["null", "double"]}}, "default": {}},
            u={"type": {"type": "string", "logicalType": "uuid"}, "default": ""},
            c={"type": {"type": "long", "logicalType": "time-micros"}, "default": 7},
        ),
    )
    more = {
        "e": "A",
        "f": b"ab",
        "d": decimal.Decimal("1.25"),
        "m": {"k": [None, 1.5]},
        "u": "5e5f5e5f-0000-4000-8000-000000000000",
        "c": 45_000_000_001,
    }
    fewer = _record(n={"type": ["null", "long"]}, t=_MICROS)
    values = [
        AvroSerializer(registry, old).serialize("t", {"n": 1, "t": time}),
        AvroSerializer(registry, fewer).serialize("t", {"n": None, "t": time}),
        AvroSerializer(registry, new).serialize("t", {"n": 2, "t": time, **more}),
        None,
        b"plain",
        b"\0\0\0\0\x09\2",
        b"\0\0\0\0\3\2",
    ]
    rows = spark.createDataFrame([(number, each) for number, each in enumerate(values)], "i int, value binary")
    found = [
        registry_values(rows, settings, "t-value", schema=json.dumps(new), in_jvm=in_jvm).orderBy("i").collect()
        for in_jvm in (False, True)
    ]
    assert found[0] == found[1]
    assert [row._error is None for row in found[1]] == [True] * 4 + [False] * 3
    assert found[1][0].data.t.replace(tzinfo=datetime.UTC) == time


@pytest.mark.spark
def test_it_is_said_what_it_needs(spark, served, monkeypatch):
    settings = {"schema.registry.url": served[0]}
    schema = json.dumps(_record(a=_LONG))
    SchemaRegistry(settings).register("t-value", Schema(schema))
    rows = spark.createDataFrame([], "value binary")
    with pytest.raises(DataSourceError, match=r"SPARKLOG_INVALID_OPTION.*the subject"):
        registry_values(rows, settings, schema=schema, in_jvm=True)

    def missing(*_):
        raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr("pyspark.sql.avro.functions.from_avro", missing)
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNSUPPORTED_OPTION.*spark-avro"):
        registry_values(rows, settings, "t-value", in_jvm=True)
