"""Readers of a broker beside a swap of segments, which is held at each of its steps: what they read of the old ones and
then of the new ones is the log's table, at every offset, by every way of reading.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

import confluent_kafka
import pytest
from integration import wire
from pyspark.sql.types import StructType

from sparklog.broker.server import Broker
from sparklog.client import Consumer
from sparklog.client.cluster.leases import lease_ranges
from sparklog.config.broker import parse_broker_config
from sparklog.errors import ErrorCode
from sparklog.local.ports import free_port
from sparklog.log import swap
from sparklog.log.replacement import Replacement
from sparklog.record.records import iter_batches, iter_records
from sparklog.record.visibility import Visibility
from sparklog.spark.read import direct
from sparklog.spark.read.batch_reader import SparklogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.broker import QUICK_SETTINGS

pytestmark = pytest.mark.integration

TOPIC = "table"
TP = TopicPartition(TOPIC, 0)
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "1500", "min.cleanable.dirty.ratio": "1.0"}
"""Nothing is cleaned unless somebody asks for it."""
STEPS = ("before", "old files renamed", "new files named")
"""Where the swap of a group is held: its files are as in the name, and the log's list of segments is the old one."""
PATIENCE_S = 60
PIECE = 400
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
SCHEMA: StructType = source_schema(include_headers=False)


class Read(NamedTuple):
    """A record as a reader was given it."""

    offset: int
    key: bytes
    value: bytes | None


class Held:
    """Lets a swap go on from step to step."""

    def __init__(self):
        self._reached = threading.Semaphore(0)
        self._open = threading.Semaphore(0)
        self._step = ""
        self._is_over = False

    def stop(self, step):
        """Called on the disk thread or on the loop's, which stands still then."""
        if not self._is_over:
            self._step = step
            self._reached.release()
            assert self._open.acquire(timeout=PATIENCE_S)

    def steps(self, done):
        """The steps of all swaps, one after the other, until ``done`` is."""
        while not done.done():
            if self._reached.acquire(timeout=0.05):
                yield self._step
                self._open.release()

    def let_go(self):
        self._is_over = True
        self._open.release()


class OnThread:
    """A broker in this process, on a thread."""

    def __init__(self, config):
        self._config = config
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()))

    async def _live(self):
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._broker = Broker(self._config)
        await self._broker.start()
        self._is_ready.set()
        await self._stopping.wait()
        await self._broker.stop()

    def __enter__(self):
        self._thread.start()
        assert self._is_ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    @property
    def address(self):
        return f"127.0.0.1:{self._config.port}"

    @property
    def log(self):
        return self._broker._logs.logs[TP]

    def clean(self):
        """A future of the numbers of a cleaning."""
        return asyncio.run_coroutine_threadsafe(self._broker._context.cleaner.clean(TP), self._loop)


@pytest.fixture
def held(monkeypatch):
    """Holds every swap at ``STEPS``."""
    gate = Held()
    perform, finish = Replacement.perform, swap.finish

    def performed(self):
        gate.stop("before")
        perform(self)
        gate.stop("new files named")

    def finished(directory, bases):
        gate.stop("old files renamed")
        finish(directory, bases)

    monkeypatch.setattr(Replacement, "perform", performed)
    monkeypatch.setattr(swap, "finish", finished)
    yield gate
    gate.let_go()


@pytest.fixture
def broker(tmp_path, chroot, held):
    settings = {
        **QUICK_SETTINGS,
        "broker.id": "0",
        "zookeeper.connect": chroot,
        "log.dirs": str(tmp_path),
        "host.name": "127.0.0.1",
        "port": str(free_port()),
        "log.cleaner.dedupe.buffer.size": str(1 << 21),
    }
    with OnThread(parse_broker_config(settings)) as running:
        with wire.connect(running.address) as connection:
            assert wire.create_topic(connection, TOPIC, configs=CONFIGS)[0] is ErrorCode.NONE
        write(running.address)
        yield running
        held.let_go()


def write(address):
    """Values of a few keys, over and over, tombstones, and transactions of which every second is aborted."""
    with wire.connect(address) as connection:
        for number in range(24):
            value = None if number % 7 == 6 else b"plain %d" % number + bytes(60)
            batch = wire.batch_of(value, b"more %d" % number, key=b"k%d" % (number % 5))
            assert wire.produce(connection, TP, batch)[0] is ErrorCode.NONE
    settings = {"bootstrap.servers": address, "transactional.id": "t", "linger.ms": 0, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(PATIENCE_S)
    for number in range(12):
        producer.begin_transaction()
        for each in range(3):
            producer.produce(TOPIC, b"txn %d.%d" % (number, each) + bytes(60), b"k%d" % ((number + each) % 7), 0)
            producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(PATIENCE_S)


def table(records):
    found = {}
    for each in records:
        found[each.key] = each
    return {key: each for key, each in found.items() if each.value is not None}


class Chain:
    """One Fetch after another, from an offset on."""

    def __init__(self, offset, isolation):
        self.first = self.position = offset
        self.isolation = isolation
        self.records: list[Read] = []

    def go_on(self, connection):
        """Read one piece; whether there was any."""
        found = wire.fetch(connection, TP, self.position, partition_max_bytes=PIECE, isolation=self.isolation)
        assert found.error is ErrorCode.NONE
        shown = Visibility(found.aborted or (), self.isolation)
        batches = [batch for chunk in found.records for batch in iter_batches(chunk)]
        for batch in batches:
            if shown.shows(batch):
                self.take(Read(each.offset, each.key, each.value) for each in iter_records(batch))
            self.position = batch.last_offset + 1
        return bool(batches)

    def take(self, records):
        self.records += [each for each in records if each.offset >= self.position]


def read_whole(connection, isolation, offset=0):
    chain = Chain(offset, isolation)
    while chain.go_on(connection):
        pass
    return chain


def committed(broker):
    with wire.connect(broker.address) as connection:
        return read_whole(connection, COMMITTED).records


def by_spark(address, path, isolation=COMMITTED):
    """What the source reads, in pieces, by ``path``, the value of ``directRead``."""
    how = {"kafka.bootstrap.servers": address, "subscribe": TOPIC, "directRead": path}
    how["kafka.isolation.level"] = isolation.name.lower()
    reader = SparklogReader(ReadOptions.for_batch(how), SCHEMA)
    for each in reader.partitions():
        for batch in reader.read(each):
            for row in batch.to_pylist():
                yield Read(row["offset"], row["key"], row["value"])


@contextmanager
def consumer(address, offset, isolation):
    settings = {
        "bootstrap.servers": address,
        "isolation.level": isolation.name.lower(),
        "max.poll.records": 2,
        "max.partition.fetch.bytes": PIECE,
    }
    with closing(Consumer(settings)) as reader:
        reader.assign([TP])
        reader.seek(TP, offset)
        yield reader


def polled(reader):
    return [Read(each.offset, each.key, each.value) for each in reader.poll(PATIENCE_S)]


def live(committed):
    """What no cleaning takes: the last record of each key. Deletions too, which are younger than
    ``delete.retention.ms``.
    """
    return {each.key: each for each in committed}.values()


def checked(records, before, first=0, committed=None):
    """That these are a reader's who would have been given ``before`` without the cleaning. One who is shown what was
    aborted has all live records among the others: those of the log that ``committed`` are.
    """
    offsets = [each.offset for each in records]
    assert offsets == sorted(set(offsets))
    due = [each for each in before if each.offset >= first]
    assert set(records) <= set(due)
    if committed is None:
        assert table(records) == table(due)
    lasting = live(before if committed is None else committed)
    assert {each for each in lasting if each.offset >= first} <= set(records)


def test_a_fetch_at_any_offset_goes_on_over_a_swap(broker, held):
    with wire.connect(broker.address) as connection:
        before = {each: read_whole(connection, each).records for each in (COMMITTED, UNCOMMITTED)}
        chains, seen = [], []
        done = broker.clean()
        for step in held.steps(done):
            seen.append(step)
            begun = [Chain(offset, each) for each in before for offset in range(broker.log.log_end_offset)]
            for chain in begun if len(seen) <= 2 * len(STEPS) else ():
                chain.go_on(connection)
                chains.append(chain)
            for chain in chains[:: 1 + len(seen) % 7]:
                chain.go_on(connection)
        assert len(set(seen)) == len(STEPS) < len(seen)
        assert done.result(PATIENCE_S).messages_written < done.result().messages_read / 2
        for chain in chains:
            while chain.go_on(connection):
                pass
            shown = before[COMMITTED] if chain.isolation is UNCOMMITTED else None
            checked(chain.records, before[chain.isolation], chain.first, shown)


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_a_consumer_goes_on_over_a_swap(broker, held, isolation):
    with wire.connect(broker.address) as connection, ExitStack() as opened:
        before, shown = read_whole(connection, isolation).records, committed(broker)
        end = max(each.offset for each in table(shown).values())
        readers = {
            first: opened.enter_context(consumer(broker.address, first, isolation)) for first in range(0, end, end // 5)
        }
        read = {first: polled(reader) for first, reader in readers.items()}
        done = broker.clean()
        for _ in held.steps(done):
            for first, reader in readers.items():
                if read[first][-1].offset < end - 20:
                    read[first] += polled(reader)
        done.result(PATIENCE_S)
        for first, reader in readers.items():
            while read[first][-1].offset < end:
                read[first] += polled(reader)
            checked(read[first], before, first, shown if isolation is UNCOMMITTED else None)


@pytest.mark.parametrize("path", ["never", "auto"])
def test_sparks_source_reads_at_any_step_of_a_swap(broker, held, path):
    """Both who begins at that step, and who has begun before, and has the files open."""
    before = committed(broker)
    done = broker.clean()
    begun = []
    for number, _ in enumerate(held.steps(done)):
        if number < 3 * len(STEPS):
            under_way = by_spark(broker.address, path)
            begun.append(([next(under_way)], under_way))
            checked(list(by_spark(broker.address, path)), before)
    done.result(PATIENCE_S)
    for first, rest in begun:
        checked([*first, *rest], before)
    checked(list(by_spark(broker.address, "always")), before)


@pytest.fixture
def asked(monkeypatch):
    """Is set when a reader has been answered what it may read directly."""
    answered = threading.Event()

    def lease(*args, **how):
        try:
            return lease_ranges(*args, **how)
        finally:
            answered.set()

    monkeypatch.setattr(direct, "lease_ranges", lease)
    return answered


def test_no_file_is_leased_that_is_about_to_go(broker, held, asked):
    """Who may read the files alone, and asks in the middle of a swap, is given those that come."""
    before = committed(broker)
    done = broker.clean()
    with ThreadPoolExecutor(len(STEPS)) as readers:
        reads = []
        for number, _ in enumerate(held.steps(done)):
            if number < len(STEPS):
                asked.clear()
                reads.append(readers.submit(lambda: list(by_spark(broker.address, "always"))))
                assert asked.wait(PATIENCE_S)
        done.result(PATIENCE_S)
        for each in reads:
            checked(each.result(PATIENCE_S), before)
