"""Partition directories that a real Kafka 3.9.1 wrote, for tests that need no Java.

Run as a script it captures them anew: ``python tests/golden/kafka.py`` from the repository's root. Producers send
uncompressed batches, and the broker compresses them as each topic says, so that the codecs are Java's.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

HERE = Path(__file__).parent / "kafka-3.9"
RECORDS = 40
BATCH = 8
INDEX_INTERVAL = 200
SETTINGS = {"segment.bytes": "600", "index.interval.bytes": str(INDEX_INTERVAL)}


def _capture():
    from samples import COMPRESSIONS

    with TemporaryDirectory() as scratch, EmbeddedZooKeeper(Path(scratch) / "zookeeper") as zookeeper:
        broker = KafkaBroker(Path(scratch) / "kafka", zookeeper.connect_string)
        with broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            eventually(lambda: admin.list_topics(timeout=10).controller_id == 0, 60)
            for compression in COMPRESSIONS:
                _write(admin, broker.bootstrap_servers, compression)
        shutil.rmtree(HERE, ignore_errors=True)
        for compression in COMPRESSIONS:
            shutil.copytree(broker.log_dir / f"{compression}-0", HERE / f"{compression}-0")
    sizes = [path.stat().st_size for path in HERE.rglob("*") if path.is_file()]
    sys.stdout.write(f"{len(sizes)} files, {sum(sizes)} bytes\n")


def _write(admin, bootstrap, compression):
    from samples import golden_records

    kind = "uncompressed" if compression == "none" else compression
    topic = NewTopic(compression, 1, 1, config={**SETTINGS, "compression.type": kind})
    admin.create_topics([topic])[compression].result(30)
    settings = {"linger.ms": 500, "batch.num.messages": BATCH, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for record in golden_records()[:RECORDS]:
        headers = list(record.headers) or None
        producer.produce(compression, record.value, record.key, 0, timestamp=record.timestamp, headers=headers)
    assert producer.flush(30) == 0


if __name__ == "__main__":
    _capture()
