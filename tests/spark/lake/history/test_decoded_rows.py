"""One read over a decoded table and the log behind it: the same rows, wherever a record is."""

import json
import random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType
from spark.lake.history.delta_log import DeltaLog
from spark.lake.history.delta_log import rows as raw_rows

from sparklog.client import NewTopic, Producer
from sparklog.errors import DataSourceError
from sparklog.registry.wire import framed
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.delta.decoded_table import DecodedTable
from sparklog.spark.lake.history.snapshot import Snapshot
from sparklog.spark.values.formats import ValueFormat
from sparklog.structs import TopicPartition
from sparklog.testing.registry import schema_registry

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]
CLICK = "n BIGINT NOT NULL, kind STRING, at STRUCT<x: INT, t: TIMESTAMP>, tags ARRAY<STRING>, day_of DATE"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Click",
        "fields": [{"name": "n", "type": "long"}, {"name": "kind", "type": ["null", "string"], "default": None}],
    }
)


@pytest.fixture(autouse=True)
def _few_rows(interpreted, delta_jars):
    """The queries here are of a few rows, and need Delta."""


@pytest.fixture
def name(admin, topic):
    admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "-1"})])
    return topic


@pytest.fixture
def send(cluster, name):
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:

        def sent(*values):
            for number, value in enumerate(values):
                producer.send(name, value, key=b"key %d" % number, partition=number % 2, timestamp=1_000_000 + number)
            producer.flush()

        yield sent


@pytest.fixture
def offload(spark, cluster, name, tmp_path):
    def done(values=None, **settings):
        settings = {"dead_letters": str(tmp_path / "dead"), "partition_by": ()} | settings
        target = DecodedTable(str(tmp_path / "table"), values or ValueFormat("json", CLICK), **settings)
        return run(spark, OffloadOptions(cluster.bootstrap_servers, (name,), target))

    return done


@pytest.fixture
def read(spark, cluster, name, tmp_path):
    """A DataFrame of both."""

    def found(schema=None, **options):
        reader = spark.read.format("sparklog").options(**options).option("subscribe", name)
        reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        reader = reader if schema is None else reader.schema(schema)
        return reader.option("history", str(tmp_path / "table")).load()

    return found


def click(n, **more):
    value = {"n": n, "kind": f"k{n % 3}", "at": {"x": n, "t": "2026-01-31T12:00:00Z"}, "tags": ["a"]}
    return json.dumps(value | {"day_of": "2026-01-31"} | more).encode()


def in_order(frame):
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


def test_rows_are_the_same_on_both_sides(spark, tmp_path, admin, name, send, offload, read):
    """Partitioned by a field, which is not in the files; files written anew by Delta; the log's front deleted."""
    send(*(click(n) for n in range(6)), None, b"no json", b"{}")
    offload(partition_by=("kind",), key_format="string", extra=("headers",))
    before = in_order(read())
    table = spark.read.format("delta").load(str(tmp_path / "table"))
    assert before == in_order(table.select(read().columns))
    assert [row.n for row in before if row.partition == 0] == [0, 2, 4, None]
    spark.sql(f"OPTIMIZE delta.`{tmp_path}/table`")
    send(click(10), click(11), b"", click(12, kind=None))
    admin.delete_records({TopicPartition(name, 0): 3, TopicPartition(name, 1): 2})
    frame = read()
    assert frame.columns[:3] == ["key", "n", "kind"]
    assert [row.n for row in in_order(frame)] == [0, 2, 4, None, 10, 1, 3, 5, 11, 12]
    assert frame.where("n = 12").first().kind is None
    assert frame.where("n = 4").first().kind == frame.where("n = 10").first().kind == "k1"
    assert frame.where("n = 11").first()["at"] == frame.where("n = 5").first()["at"].__class__(11, before[0]["at"].t)
    assert frame.where("n = 11").select(f.to_json("tags")).first()[0] == '["a"]'
    later = in_order(frame)
    offload(key_format="string")
    assert in_order(read()) == later


def test_a_stream_goes_from_the_table_to_the_log(spark, tmp_path, cluster, name, send, offload):
    send(*(click(n) for n in range(4)))
    offload()
    send(click(4), b"no json", click(6))
    stream = spark.readStream.format("sparklog").option("subscribe", name).option("startingOffsets", "earliest")
    stream = stream.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    frame = stream.option("history", str(tmp_path / "table")).option("maxOffsetsPerTrigger", 3).load()

    def go_on():
        query = frame.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start(str(tmp_path / "copy")).awaitTermination()
        return sorted(row.n for row in spark.read.format("delta").load(str(tmp_path / "copy")).collect())

    assert go_on() == [0, 1, 2, 3, 4, 6]
    offload()
    send(click(7))
    assert go_on() == [0, 1, 2, 3, 4, 6, 7]


def test_a_schema_that_evolves(send, offload, read, tmp_path):
    send(click(0), click(1))
    offload()
    wider = CLICK.replace("x: INT", "x: INT, y: STRING") + ", more STRING"
    send(click(2, more="m", at={"x": 2, "y": "why"}), click(3))
    assert [row.n for row in in_order(read())] == [0, 2, 1, 3]
    offload(ValueFormat("json", wider), evolve=True)
    send(click(4, more="n", at={"y": "z"}))
    rows = {row.n: row for row in in_order(read())}
    assert [rows[n].more for n in range(5)] == [None, None, "m", None, "n"]
    assert [rows[n]["at"].y for n in range(5)] == [None, None, "why", None, "z"]
    chosen = StructType([StructField("more", StringType()), StructField("n", LongType())])
    assert sorted(read(chosen).collect(), key=lambda row: row.n)[4] == ("n", 4)
    assert [row.n for row in in_order(read(historyAsOf="1"))] == [0, 1]
    assert Snapshot.open(str(tmp_path / "table"), 1).values.values.schema.count("more") == 0


def test_a_table_without_dead_letters(name, send, offload, read):
    send(click(0), click(1))
    offload(dead_letters=None)
    send(click(2), b"{}")
    with pytest.raises(PySparkException, match=r"SPARKLOG_UNPARSED_VALUE.*partition 1, offset 1: it has no n"):
        read().collect()
    assert [row.n for row in in_order(read(endingOffsets=json.dumps({name: {"0": 1, "1": 0}})))] == [0]


def test_avro_into_a_struct(send, offload, read):
    from io import BytesIO

    from fastavro import schemaless_writer

    def value(n):
        out = BytesIO()
        schemaless_writer(out, json.loads(AVRO), {"n": n, "kind": None if n % 2 else "even"})
        return out.getvalue()

    send(*(value(n) for n in range(4)))
    offload(ValueFormat("avro", AVRO), into="click", partition_by=("partition",))
    send(value(4), None, b"", value(7))
    found = [row.click and tuple(row.click) for row in in_order(read())]
    assert found == [(0, "even"), (2, "even"), (4, "even"), (1, None), (3, None), None, (7, None)]


def test_values_by_the_schemas_of_a_registry(send, offload, read):
    """The newest of the three is of a schema that nobody has read before. One has an id that the registry lacks."""
    newer = AVRO.replace('"Click"', '"Click", "doc": "by a newer program"')
    with schema_registry() as (url, found):
        old, new = (found.answer("POST", "/subjects/s/versions", {"schema": each})["id"] for each in (AVRO, newer))
        settings = {"schema.registry.url": url, "schema.registry.max.retries": "0"}
        settings["basic.auth.user.info"] = "ann:secret"
        send(*(framed(old) + b"%c\0" % (2 * n) for n in range(4)))
        offload(ValueFormat.of_registry("avro", settings, subject="s"))
        send(framed(old) + b"\x08\0", framed(new) + b"\x0a\0", framed(99) + b"\x0a\0")
        assert [row.n for row in in_order(read(**settings))] == [0, 2, 4, 1, 3, 5]
        assert [row.n for row in in_order(read(historyAsOf="1", **settings))] == [0, 2, 1, 3]
        with pytest.raises(PySparkException, match=r"SPARKLOG_UNSUITABLE_TABLE.*schemas in a registry"):
            read()
        with pytest.raises(PySparkException, match=r"SPARKLOG_INVALID_OPTION.*schema\.registry\.url is not set"):
            read(**{"basic.auth.user.info": "ann:secret"})
        settings["schema.registry.url"] = "http://127.0.0.1:1"
        with pytest.raises(PySparkException, match="SPARKLOG_REGISTRY_UNAVAILABLE"):
            read(**settings).collect()


def test_columns_that_the_table_does_not_have(send, offload, read, tmp_path):
    send(click(0))
    offload()
    for schema, why in (("price DOUBLE", "has no column price"), ("n STRING", "'n' is bigint in table .*, not string")):
        with pytest.raises(PySparkException, match=rf"SPARKLOG_UNSUPPORTED_SCHEMA.*{why}"):
            read(schema).collect()
    other = DeltaLog(tmp_path / "other", configuration={"sparklog.values": "{}"})
    other.append(raw_rows(range(3)))
    with pytest.raises(DataSourceError, match=r"its property sparklog\.values is not as an offload writes it"):
        Snapshot.open(str(other.path))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 12))
def test_any_order_of_events(seed, spark, tmp_path, admin, name, send, offload, read):
    """Records, offloads, Delta's commands and trims, as a seed has them: each row that decodes, once, in order."""
    chance = random.Random(seed)
    sent = []
    offloaded, trimmed = [0, 0], [0, 0]

    def values():
        made = [chance.choice([click(n), click(n), None, b"bad"]) for n in range(chance.randrange(1, 9))]
        send(*made)
        sent.extend((number % 2, value) for number, value in enumerate(made))

    def move():
        offload(partition_by=("kind",))
        for partition in (0, 1):
            offloaded[partition] = sum(each == partition for each, _ in sent)

    def trim():
        for partition in (0, 1):
            trimmed[partition] = chance.randint(trimmed[partition], offloaded[partition])
            admin.delete_records({TopicPartition(name, partition): trimmed[partition]})

    values()
    move()
    for _ in range(5):
        chance.choice([values, move, trim, lambda: spark.sql(f"OPTIMIZE delta.`{tmp_path}/table`")])()
        expected = {
            partition: [
                (offset, None if value is None else json.loads(value)["n"])
                for offset, value in enumerate(value for each, value in sent if each == partition)
                if value != b"bad"
            ]
            for partition in (0, 1)
        }
        rows = read().select("partition", "offset", "n").collect()
        assert {p: [(row.offset, row.n) for row in rows if row.partition == p] for p in (0, 1)} == expected
