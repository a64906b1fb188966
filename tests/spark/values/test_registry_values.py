"""Values with ids of a schema registry as columns, and back."""

import json

import pytest
from pyspark.errors import PySparkException

from sparklog.errors import DataSourceError
from sparklog.registry import AvroDeserializer, AvroSerializer, JsonSerializer, SchemaRegistry
from sparklog.spark import registry_values, to_registry_values
from sparklog.testing.registry import Refusal, schema_registry

pytestmark = pytest.mark.spark
pytest.importorskip("fastavro")

_ONE = {"type": "record", "name": "Trip", "fields": [{"name": "id", "type": "long"}]}
_TWO = {**_ONE, "fields": [*_ONE["fields"], {"name": "place", "type": "string", "default": "?"}]}


@pytest.fixture
def served():
    with schema_registry() as found:
        yield found


@pytest.fixture
def registry(served):
    return SchemaRegistry(schema_registry_url=served[0])


@pytest.fixture
def settings(served):
    return {
        "schema.registry.url": served[0],
        "schema.registry.max.retries": 0,
        "schema.registry.basic.auth.user.info": "ann:secret",
    }


def _rows(spark, values):
    return spark.createDataFrame([(number, each) for number, each in enumerate(values)], "n int, value binary")


def test_each_value_is_read_by_its_own_schema(spark, interpreted, settings, registry, served, capsys):
    values = [
        AvroSerializer(registry, _ONE).serialize("t", {"id": 1}),
        AvroSerializer(registry, _TWO).serialize("t", {"id": 2, "place": "Zug"}),
        None,
        b"plain",
        b"\0\0\0\0\7\2",
        b"\0\0\0\0\1\2\2",
    ]
    found = registry_values(_rows(spark, values), settings, "t-value")
    rows = {row.n: row for row in found.collect()}
    assert [rows[n].data and tuple(rows[n].data) for n in range(6)] == [(1, "?"), (2, "Zug"), None, None, None, None]
    assert [rows[n]._error for n in range(3)] == [None] * 3
    assert rows[3]._error.startswith("it begins with byte 112")
    assert rows[4]._error == "its schema has id 7, which the registry does not have"
    assert rows[5]._error == "1 bytes follow the record"
    assert all(n <= 2 for path, n in served[1].requests.items() if path.startswith("GET /schemas"))
    found.explain(True)
    assert "secret" not in capsys.readouterr().out


def test_a_registry_that_is_away_fails_the_query_and_not_the_values(spark, interpreted, settings, registry, served):
    AvroSerializer(registry, _ONE).prepare("t")
    found = registry_values(_rows(spark, [b"\0\0\0\0\1\2"]), settings, schema=_ONE)
    served[1].broken = lambda: Refusal(503, 50301, "electing")
    with pytest.raises(PySparkException, match="SPARKLOG_REGISTRY_UNAVAILABLE"):
        found.collect()
    served[1].broken = lambda: None
    assert found.collect()[0].data.id == 1


def test_rows_are_written_with_the_id_of_their_schema(spark, interpreted, settings, registry):
    rows = spark.createDataFrame([(1, "Zug")], "id long, place string")
    with pytest.raises(DataSourceError, match=r"SPARKLOG_REGISTRY_REFUSED.*not registered under t-value"):
        to_registry_values(rows, settings, "t-value", schema=_TWO)
    made = to_registry_values(rows, settings, "t-value", schema=_TWO, auto_register_schemas=True, key="id")
    newest = to_registry_values(rows, settings, "t-value")
    written = [bytes(row.value) for row in made.unionByName(newest, allowMissingColumns=True).collect()]
    assert list(map(AvroDeserializer(registry), written)) == [{"id": 1, "place": "Zug"}] * 2
    assert registry.versions("t-value") == [1]


def test_json_is_read_as_a_struct(spark, interpreted, settings, registry):
    written = JsonSerializer(registry, {"type": "object"}).serialize("j", {"id": 1})
    found = registry_values(_rows(spark, [written, None, b'{"id": 2}', written[:-1]]), settings, schema="id bigint")
    rows = {row.n: (row.data and row.data.id, row._error) for row in found.collect()}
    assert rows == {
        0: (1, None),
        1: (None, None),
        2: (None, "it does not begin with a zero byte and a schema's id"),
        3: (None, "it is not JSON"),
    }
    assert "value behind its id" not in found.columns


@pytest.mark.parametrize(
    ("kind", "arguments", "complaint"),
    [
        ("{}", {"subject": "t-value"}, "JSON Schema, which says no types of Spark"),
        ("{}", {"subject": "none"}, "SPARKLOG_REGISTRY_REFUSED.*'none' not found"),
        ("{}", {}, "SPARKLOG_INVALID_OPTION"),
    ],
)
def test_what_cannot_be_read_is_refused_at_once(spark, settings, registry, kind, arguments, complaint):
    JsonSerializer(registry, json.loads(kind)).prepare("t")
    with pytest.raises(DataSourceError, match=complaint):
        registry_values(_rows(spark, []), settings, **arguments)
