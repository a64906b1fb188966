"""librdkafka's mock cluster, spoken to with raw Produce and Fetch requests: batches in and out as librdkafka has them.

Run as a script it captures the golden batches: ``python tests/golden/librdkafka.py`` from the repository's root.
"""

import socket
import struct
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from sparklog.record.records import iter_batches

TOPIC = "golden"
_PRODUCE, _FETCH = (0, 3), (1, 4)


class MockCluster:
    """One mock broker, alive as long as this is; ``exchange`` sends it one request."""

    def __init__(self):
        self._admin = AdminClient({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
        broker = next(iter(self._admin.list_topics(timeout=10).brokers.values()))
        self.bootstrap = f"{broker.host}:{broker.port}"

    def produce(self, records, compression):
        """Have librdkafka write ``records`` as one batch."""
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 500, "compression.type": compression}
        producer = Producer({**settings, "message.timeout.ms": 10000, "log_level": 0})
        for record in records:
            headers = list(record.headers) or None
            producer.produce(TOPIC, record.value, record.key, partition=0, timestamp=record.timestamp, headers=headers)
        assert producer.flush(15) == 0

    def consume(self, count):
        """What librdkafka reads back: (offset, timestamp, key, value, headers) of ``count`` records."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "check.crcs": True, "enable.auto.commit": False, "log_level": 0})
        try:
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            messages = []
            while len(messages) < count:
                taken = consumer.consume(count - len(messages), timeout=20)
                assert taken, f"librdkafka gave {len(messages)} of {count} records"
                assert all(message.error() is None for message in taken), [message.error() for message in taken]
                messages += taken
        finally:
            consumer.close()
        return [(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())) for m in messages]

    def append(self, batch):
        """Write ``batch`` as it is; the broker only sets the base offset."""
        self._admin.list_topics(TOPIC, timeout=10)
        body = struct.pack(">hhi", -1, -1, 5000)
        body += struct.pack(">i", 1) + _string(TOPIC) + struct.pack(">iii", 1, 0, len(batch)) + bytes(batch)
        answer = self._exchange(_PRODUCE, body)
        error = struct.unpack_from(">h", answer, 4 + 2 + len(TOPIC) + 8)[0]
        assert error == 0, f"Produce was answered with error code {error}"

    def fetch(self):
        """All of the partition's batches, as bytes."""
        found, offset, end = b"", 0, 1
        while offset < end:
            end, data = self._fetch(offset)
            found += data
            for batch in iter_batches(data):
                offset = batch.next_offset
        return found

    def _fetch(self, offset):
        """The high watermark, and the batches that the broker gives at once: it may be one."""
        body = struct.pack(">iiiib", -1, 1000, 1, 1 << 24, 0)
        body += struct.pack(">i", 1) + _string(TOPIC) + struct.pack(">iiqi", 1, 0, offset, 1 << 24)
        answer = self._exchange(_FETCH, body)
        at = 4 + 4 + 2 + len(TOPIC) + 4 + 4
        error, high_watermark, _, aborted = struct.unpack_from(">hqqi", answer, at)
        assert error == 0, f"Fetch was answered with error code {error}"
        at += 22 + 16 * max(aborted, 0)
        size = struct.unpack_from(">i", answer, at)[0]
        return high_watermark, answer[at + 4 : at + 4 + size]

    def _exchange(self, api, body):
        """The body of the answer to one request."""
        host, port = self.bootstrap.split(":")
        message = struct.pack(">hhi", *api, 1) + _string("golden") + body
        with (
            socket.create_connection((host, int(port)), timeout=10) as connection,
            connection.makefile("rb") as answers,
        ):
            connection.sendall(struct.pack(">i", len(message)) + message)
            size = struct.unpack(">i", answers.read(4))[0]
            return answers.read(size)[4:]


def _string(text):
    return struct.pack(">h", len(text)) + text.encode()


def _capture():
    from samples import COMPRESSIONS, golden_records

    for compression in COMPRESSIONS:
        cluster = MockCluster()
        cluster.produce(golden_records(), compression)
        target = Path(__file__).parent / f"librdkafka-{compression}.batch"
        target.write_bytes(cluster.fetch())
        sys.stdout.write(f"{target.name}: {target.stat().st_size} bytes\n")


if __name__ == "__main__":
    _capture()
