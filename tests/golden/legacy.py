"""Segment files in the formats before the record batch, for tests that need no Java.

Run as a script it captures them anew, from the repository's root: ``python tests/golden/legacy.py [KAFKA_0_7_LIB]``.

Message sets are from Kafka 3.9.1, which still writes them where a topic's ``message.format.version`` and the broker's
protocol version are old: it converts what it appends. The first format is from Kafka 0.7's own classes; their JARs
are in the source tree of Kafka 0.8.0, in ``system_test/migration_tool_testsuite/0.7/lib``: name that directory, or
the file in the first format is left as it is.
"""

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from sparklog.local.jars import JarSet, fetch, jar_set
from sparklog.local.java import find_java
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

HERE = Path(__file__).parent / "kafka-legacy"
COMPRESSIONS = ("none", "gzip", "snappy", "lz4")
VERSIONS = {0: "0.9.0", 1: "0.10.2", 2: "2.8"}
RECORDS = 20
BATCH = 8
UPGRADED = "upgraded"

SCALA = JarSet("kafka-0.7", ("org.scala-lang:scala-library:2.8.0",))
FIRST_FORMAT = (
    (0, b"alone", b""),
    (1, b"gzip 0", b"", b"gzip 2" * 9),
    (2, b"snappy 0" * 9, b"snappy 1"),
    (0, b"\0\xff"),
)
"""The sets of the first format's file: compression code, then payloads."""


def append_time_topic(compression):
    return f"append-time-{compression}"


def _capture_message_sets():
    settings = {"inter.broker.protocol.version": "2.8", "log.message.format.version": "2.8"}
    with TemporaryDirectory() as scratch, EmbeddedZooKeeper(Path(scratch) / "zookeeper") as zookeeper:
        broker = KafkaBroker(Path(scratch) / "kafka", zookeeper.connect_string, extra_props=settings)
        with broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            eventually(lambda: admin.list_topics(timeout=10).controller_id == 0, 60)
            for compression in COMPRESSIONS:
                for magic in (0, 1):
                    topic = _create(admin, f"magic-{magic}-{compression}", magic, compression)
                    _write(broker.bootstrap_servers, topic, 0, RECORDS)
                log_append_time = {"message.timestamp.type": "LogAppendTime"}
                topic = _create(admin, append_time_topic(compression), 1, compression, log_append_time)
                _write(broker.bootstrap_servers, topic, 0, RECORDS)
            _write_upgraded(admin, broker.bootstrap_servers)
        for directory in sorted(broker.log_dir.glob("*-0")):
            if not directory.name.startswith("__"):
                shutil.copy(directory / f"{0:020}.log", HERE / f"{directory.name.removesuffix('-0')}.log")


def _create(admin, name, magic, compression, more=()):
    kind = "uncompressed" if compression == "none" else compression
    config = {"message.format.version": VERSIONS[magic], "compression.type": kind, **dict(more)}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    return name


def _write_upgraded(admin, bootstrap):
    """The same topic under each version in turn: its one segment holds all three."""
    topic = _create(admin, UPGRADED, 0, "gzip")
    for magic, version in VERSIONS.items():
        entry = ConfigEntry("message.format.version", version, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)
        # The answer does not wait for the log: should it have been late, the test finds an old format in the file.
        eventually(lambda wanted=version: _format_version(admin, topic) == wanted, 30)
        _write(bootstrap, topic, magic * BATCH, (magic + 1) * BATCH)


def _format_version(admin, topic):
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return admin.describe_configs([resource])[resource].result(30)["message.format.version"].value


def _write(bootstrap, topic, start, end):
    from samples import golden_records

    # A batch is sent when it is full or flushed, never because it waited: the same batches whenever this is run.
    settings = {"linger.ms": 60_000, "batch.num.messages": BATCH, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    producer.list_topics(topic, timeout=10)
    records = golden_records()
    for first in range(start, end, BATCH):
        for record in records[first : min(first + BATCH, end)]:
            producer.produce(topic, record.value, record.key, 0, timestamp=record.timestamp)
        assert producer.flush(30) == 0


def _capture_first_format(kafka_lib):
    written = struct.pack(">i", len(FIRST_FORMAT))
    for code, *payloads in FIRST_FORMAT:
        written += struct.pack(">ii", code, len(payloads))
        written += b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)
    with TemporaryDirectory() as scratch:
        jars = [*kafka_lib.glob("*.jar"), *fetch(SCALA, Path(scratch)).glob("*.jar"), *jar_set("kafka")]
        segment = Path(scratch) / "first.kafka"
        class_path = ":".join(map(str, jars))
        program = Path(__file__).with_name("FirstFormat.java")
        subprocess.run(
            [find_java().executable, "-cp", class_path, program, segment], input=written, check=True, timeout=120
        )
        shutil.copy(segment, HERE)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    _capture_message_sets()
    for kafka_lib in sys.argv[1:]:
        _capture_first_format(Path(kafka_lib))
    sizes = [path.stat().st_size for path in HERE.iterdir()]
    sys.stdout.write(f"{len(sizes)} files, {sum(sizes)} bytes\n")
