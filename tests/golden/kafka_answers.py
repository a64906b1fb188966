"""What a real Kafka broker answers about a partition: records to consumers, aborted transactions, ends of epochs."""

import socket
import struct

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from sparklog.record.records import iter_batches

_FETCH, _EPOCH_ENDS = (1, 4), (23, 2)
READ_COMMITTED = 1
FETCH_SIZES = (1, 400, 1 << 20)
UNKNOWN_EPOCHS = 3


def read_topic(bootstrap, topic, isolation):
    """[offset, timestamp, key, value] of every record that a consumer is given; nulls are nulls."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation, "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    records = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(20)
            assert message is not None, f"no record and no end of {topic} within 20 s"
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                return records
            assert message.error() is None, message.error()
            records.append([message.offset(), message.timestamp()[1], *map(_text, (message.key(), message.value()))])
    finally:
        consumer.close()


def _text(data):
    return None if data is None else data.decode()


def fetch_answers(broker, topic):
    """What read-committed fetches were told, from every offset, in three sizes.

    Each: offset asked for, size asked for, last offset given (-1 for none), last stable offset, [producer id, first
    offset] of each aborted transaction.
    """
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "bounds", "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20, cached=False)
    consumer.close()
    answers = []
    for offset in range(start, end):
        for size in FETCH_SIZES:
            stable, aborted, data = _fetch(broker, topic, offset, size)
            last = max((batch.last_offset for batch in iter_batches(data)), default=-1)
            answers.append([offset, size, last, stable, aborted])
    return answers


def _fetch(broker, topic, offset, size):
    """Last stable offset, aborted transactions, batches."""
    body = struct.pack(">iiiib", -1, 0, 0, 1 << 24, READ_COMMITTED)
    body += struct.pack(">i", 1) + _string(topic) + struct.pack(">iiqi", 1, 0, offset, size)
    answer = _exchange(broker, _FETCH, body)
    at = 4 + 4 + 2 + len(topic) + 4 + 4
    error, _, stable, count = struct.unpack_from(">hqqi", answer, at)
    assert error == 0, f"Fetch was answered with error code {error}"
    at += 22
    aborted = [list(struct.unpack_from(">qq", answer, at + 16 * each)) for each in range(max(count, 0))]
    at += 16 * max(count, 0)
    size = struct.unpack_from(">i", answer, at)[0]
    return stable, aborted, answer[at + 4 : at + 4 + size]


def epoch_ends(broker, topic):
    """[epoch asked for, error code, epoch answered, end offset], from -1 to some epochs that have not been."""
    ends, beyond, epoch = [], 0, -1
    while beyond < UNKNOWN_EPOCHS:
        body = struct.pack(">i", 1) + _string(topic) + struct.pack(">iiii", 1, 0, -1, epoch)
        answer = _exchange(broker, _EPOCH_ENDS, body)
        error, _, found, end = struct.unpack_from(">hiiq", answer, 4 + 4 + 2 + len(topic) + 4)
        ends.append([epoch, error, found, end])
        beyond += epoch >= 0 and end < 0
        epoch += 1
    return ends


def _exchange(broker, api, body):
    """The body of the answer to one request."""
    message = struct.pack(">hhi", *api, 1) + _string("golden") + body
    with (
        socket.create_connection((broker.host, broker.port), timeout=20) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.sendall(struct.pack(">i", len(message)) + message)
        size = struct.unpack(">i", answers.read(4))[0]
        return answers.read(size)[4:]


def _string(text):
    return struct.pack(">h", len(text)) + text.encode()
