"""Kafka Streams on our broker counts words exactly once, whoever dies; its state comes back from compacted logs."""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from sparklog.client import Admin, Consumer, NewTopic, Producer
from sparklog.errors import ConfigError
from sparklog.local.jars import jar_set
from sparklog.local.process import ChildProcess
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import kafka_command

pytestmark = [pytest.mark.peer, pytest.mark.slow]
PROGRAM = Path(__file__).parent / "Streams.java"
JARS = "kafka-streams"
PARTITIONS = 2
SETTINGS = {"log.cleaner.backoff.ms": 100, "log.cleaner.dedupe.buffer.size": 2_000_000}
KEPT = "words-counts-changelog"
HANDED_ON = "words-words-repartition"
WAIT_S = 300.0


@pytest.fixture
def broker(tmp_path, chroot):
    if shutil.which("javac") is None:
        pytest.skip("a Java without a compiler cannot run a source file")
    try:
        jar_set(JARS)
    except ConfigError as error:
        pytest.skip(str(error))
    with BrokerHarness(tmp_path, chroot, settings=SETTINGS) as running:
        with Admin(bootstrap_servers=running.address) as admin:
            admin.create_topics([NewTopic("lines", PARTITIONS, 1), NewTopic("counts", PARTITIONS, 1)])
        yield running


@pytest.fixture
def counting(broker, tmp_path):
    """The program that counts; its state is in ``tmp_path / "state"``."""
    process = ChildProcess("Kafka Streams", tmp_path / "streams.log")
    yield process
    process.kill()


def start(counting, broker, tmp_path):
    options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    counting.spawn(kafka_command(str(PROGRAM), broker.address, str(tmp_path / "state"), options=options, jars=JARS))


def write(broker, numbers):
    """Two words a line; how often each word has been written."""
    words = Counter()
    with Producer(bootstrap_servers=broker.address) as producer:
        for number in numbers:
            line = [f"a{number % 5}", f"b{number % 7}"]
            words.update(line)
            producer.send("lines", " ".join(line).encode(), key=b"%d" % number)
    return words


def reading(broker, topic):
    """A reader of the whole topic, and its partitions."""
    reader = Consumer(
        {"bootstrap.servers": broker.address, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    )
    partitions = [TopicPartition(topic, each) for each in range(PARTITIONS)]
    reader.assign(partitions)
    return reader, partitions


def told(broker):
    """Of each word the counts that were told, in their order."""
    counts = {}
    reader, partitions = reading(broker, "counts")
    with reader:
        ends = reader.end_offsets(partitions)
        while any(reader.position(each) < ends[each] for each in partitions):
            for record in reader.poll():
                counts.setdefault(record.key.decode(), []).append(int(record.value))
    return counts


def all_told(broker, written):
    return {word: counts[-1] for word, counts in told(broker).items()} == written


def starts_and_ends(broker, topic):
    """The sums of the first and of the last offsets of all partitions."""
    reader, partitions = reading(broker, topic)
    with reader:
        return [sum(found.values()) for found in (reader.beginning_offsets(partitions), reader.end_offsets(partitions))]


def test_each_word_is_counted_once_whoever_dies(broker, counting, tmp_path):
    start(counting, broker, tmp_path)
    written = write(broker, range(600))
    eventually(lambda: all_told(broker, written), WAIT_S)
    written += write(broker, range(600, 1200))
    counting.kill()
    shutil.rmtree(tmp_path / "state")
    start(counting, broker, tmp_path)
    written += write(broker, range(1200, 1400))
    broker.kill()
    broker.start()
    written += write(broker, range(1400, 1500))
    eventually(lambda: all_told(broker, written), WAIT_S)
    for word, counts in told(broker).items():
        assert counts == list(range(1, written[word] + 1)), f"{word} is not counted in ones"
    restored = sum(int(each) for each in re.findall(r"^restored (\d+)$", counting.output(), re.MULTILINE))
    _, updates = starts_and_ends(broker, KEPT)
    assert 0 < restored < updates // 2, "the state did not come from a log that was compacted"
    eventually(lambda: starts_and_ends(broker, HANDED_ON)[0] > 0, WAIT_S, "what was counted is deleted")
