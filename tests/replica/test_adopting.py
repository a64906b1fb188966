"""A leader adopts segments: seen when their transaction commits, on every replica, and once however often asked for."""

import asyncio
import gc
import os
import shutil
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from log.samples import in_a_row

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.admin.adoption import OfferedSegments
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.consumer.consumer import Consumer
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, DiskFull, ErrorCode
from sparklog.log.adoption import ADOPTION, Offer, offer_path
from sparklog.log.directories.directory import LogDir
from sparklog.log.directories.manager import LogManager
from sparklog.quota.entity import Entity
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.replica.adopting import LEFT_ALONE_S, Adopted, Mode, SegmentAdopter, Wish, remove_forgotten
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.zk.znodes import PartitionState

integration = pytest.mark.integration
RECORDS = 4


def batch(transaction, sequence, text):
    builder = RecordBatchBuilder(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    for number in range(RECORDS):
        builder.append(1000 + number, b"k%d" % number, text)
    return memoryview(bytearray(builder.build()))


class Loading:
    """One topic of a cluster, and what is written beside its logs."""

    def __init__(self, admin, cluster, topic, replicas=1):
        self.admin, self.cluster = admin, cluster
        self.tp = TopicPartition(topic, 0)
        admin.create_topics([NewTopic(topic, 1, replicas)])
        (info,) = admin.describe_topics([topic]).values()
        self.leader = info.partitions[0].leader
        self.transaction = None

    @property
    def directory(self):
        replica = Replica(self.tp, self.leader)
        return Path(self.admin.describe_replica_log_dirs([replica])[replica].path) / str(self.tp)

    def begin(self):
        self.transaction = self.admin.init_prepared(f"load-{self.tp.topic}", 60_000)
        self.admin.add_to_prepared(self.transaction, [self.tp])

    def offer(self, tag, segments):
        bases, end = [], 0
        for batches in segments:
            placed = in_a_row(batches, end)
            bases.append(end)
            offer_path(self.directory, end, tag).write_bytes(b"".join(placed))
            end += RECORDS * len(batches)
        return OfferedSegments(self.tp, self.leader, tag, tuple(bases), end)

    def adopt(self, offered):
        return self.admin.adopt(offered, self.transaction.transactional_id)

    def end(self, *, commit=True):
        assert self.admin.end_prepared([self.transaction], commit=commit) == [True]

    def values(self, isolation="read_committed"):
        settings = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
        with Consumer(settings) as consumer:
            consumer.assign([self.tp])
            ends = consumer.end_offsets([self.tp])[self.tp]
            found = []
            while consumer.position(self.tp) < ends:
                found += [(each.offset, each.value) for each in consumer.poll(1.0)]
            return found


@pytest.fixture
def loading(cluster, topic):
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        yield Loading(admin, cluster, topic)


def three(transaction):
    return [batch(transaction, RECORDS * number, b"loaded") for number in range(3)]


@integration
def test_a_load_is_seen_when_its_transaction_commits(loading):
    loading.begin()
    first, second, third = three(loading.transaction)
    adopted = loading.adopt(loading.offer("one", [[first, second], [third]]))
    assert adopted == (0, 3 * RECORDS - 1, 0)
    assert loading.values() == []
    assert len(loading.values("read_uncommitted")) == 3 * RECORDS
    loading.end()
    eventually(lambda: [offset for offset, _ in loading.values()] == list(range(3 * RECORDS)))
    assert not list(loading.directory.glob("*.tmp"))
    assert len(list(loading.directory.glob("*.log"))) == 3


@integration
def test_an_aborted_load_is_never_seen(loading):
    loading.begin()
    loading.adopt(loading.offer("one", [three(loading.transaction)]))
    loading.end(commit=False)
    loading.begin()
    loading.adopt(loading.offer("two", [three(loading.transaction)]))
    loading.end()
    eventually(lambda: [offset for offset, _ in loading.values()] == list(range(3 * RECORDS + 1, 6 * RECORDS + 1)))


@integration
def test_what_is_asked_for_twice_is_done_once(loading):
    loading.begin()
    offered = loading.offer("one", [three(loading.transaction)])
    assert loading.adopt(offered) == loading.adopt(offered)
    loading.end()
    eventually(lambda: len(loading.values()) == 3 * RECORDS)


@integration
def test_it_counts_as_produced_and_once(loading, topic):
    """The answer tells how long to wait; the segments are in the log by then."""
    loading.begin()
    offered = loading.offer("one", [three(loading.transaction)])
    client = Entity(client_id=f"loader of {topic}")
    loading.admin.alter_client_quotas({client: {"producer_byte_rate": 1}})
    waits = []
    for _ in range(2):
        with Admin({"bootstrap.servers": loading.cluster.bootstrap_servers, "client.id": client.client_id}) as loader:
            assert loader.adopt(offered, loading.transaction.transactional_id).last_offset == 3 * RECORDS - 1
            waits.append(loader.metrics()["throttle-time-max"])
    size = sum(path.stat().st_size for path in loading.directory.glob("*.log"))
    assert size * 500 < waits[0] <= size * 1000, "at a byte a second"
    assert waits[1] <= waits[0]
    loading.admin.alter_client_quotas({client: {"producer_byte_rate": None}})
    loading.end()


@integration
def test_several_adoptions_of_one_transaction(loading):
    loading.begin()
    for number, data in enumerate(three(loading.transaction)):
        assert loading.adopt(loading.offer(f"part{number}", [[data]])).first_offset == number * RECORDS
    loading.end()
    eventually(lambda: len(loading.values()) == 3 * RECORDS)


@integration
def test_a_fenced_job_adds_nothing(loading):
    """Another run under the same id has begun since: what the first one has written is refused, and removed."""
    loading.begin()
    late = loading.offer("late", [three(loading.transaction)])
    loading.end(commit=False)
    loading.begin()
    loading.adopt(loading.offer("mine", [three(loading.transaction)]))
    with pytest.raises(ApiError) as refused:
        loading.adopt(late)
    assert refused.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    assert not list(loading.directory.glob("*.tmp"))
    loading.end()
    eventually(lambda: len(loading.values()) == 3 * RECORDS)


@integration
def test_a_partition_that_the_transaction_does_not_have(loading):
    loading.transaction = loading.admin.init_prepared(f"load-{loading.tp.topic}", 60_000)
    with pytest.raises(ApiError, match="not part of a transaction"):
        loading.adopt(loading.offer("one", [three(loading.transaction)]))
    assert loading.values("read_uncommitted") == []


@integration
def test_files_that_are_not_there(loading):
    loading.begin()
    with pytest.raises(ApiError, match="No such file"):
        loading.adopt(OfferedSegments(loading.tp, loading.leader, "nothing", (0,), 4))
    loading.end(commit=False)


@integration
def test_a_damaged_file_is_named(loading):
    loading.begin()
    offered = loading.offer("one", [three(loading.transaction)])
    path = offer_path(loading.directory, 0, "one")
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    with pytest.raises(ApiError, match=f"{path.name} at position"):
        loading.adopt(offered)
    assert not list(loading.directory.glob("*.tmp"))
    loading.end(commit=False)
    assert loading.values("read_uncommitted") == []


@integration
@pytest.mark.parametrize("topic_name", ["__consumer_offsets", "__transaction_state"])
def test_the_brokers_own_topics(loading, topic_name):
    with pytest.raises(ApiError) as refused:
        loading.admin.adopt(OfferedSegments(TopicPartition(topic_name, 0), loading.leader, "t", (0,), 1), "id")
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@integration
def test_restoring(loading, topic):
    """Offsets, markers and what was aborted are those of the source."""
    for tag, commit in (("one", False), ("two", True)):
        loading.begin()
        loading.adopt(loading.offer(tag, [three(loading.transaction)]))
        loading.end(commit=commit)
    eventually(lambda: len(loading.values()) == 3 * RECORDS)
    copy = Loading(loading.admin, loading.cluster, f"{topic}-restored")
    bases = []
    for path in sorted(loading.directory.glob("*.log")):
        if path.stat().st_size:
            bases.append(int(path.stem))
            offer_path(copy.directory, bases[-1], "restored").write_bytes(path.read_bytes())
    end = 2 * (3 * RECORDS + 1)
    offered = OfferedSegments(copy.tp, copy.leader, "restored", tuple(bases), end)
    assert copy.admin.restore(offered, log_start_offset=2) == (0, end - 1, 2)
    assert copy.values() == loading.values()
    assert len(copy.values("read_uncommitted")) == 6 * RECORDS - 2
    with pytest.raises(ApiError, match="restore into a partition without records"):
        copy.admin.restore(offered._replace(tag="again"))


@integration
def test_a_log_never_ends_earlier_than_it_did(loading):
    """Its followers may have the offsets yet, though all records are deleted."""
    loading.begin()
    loading.adopt(loading.offer("one", [three(loading.transaction)]))
    loading.end()
    eventually(lambda: len(loading.values()) == 3 * RECORDS)
    loading.admin.delete_records({loading.tp: 3 * RECORDS + 1})
    placed = in_a_row(three(PreparedTransaction("elsewhere", 900_000, 0)), 1)
    offer_path(loading.directory, 1, "early").write_bytes(b"".join(placed))
    with pytest.raises(ApiError, match="restore into a new topic"):
        loading.admin.restore(OfferedSegments(loading.tp, loading.leader, "early", (1,), 1 + 3 * RECORDS))


@integration
def test_followers_have_it_too(tmp_path):
    """Also where the log begins at another offset than theirs."""
    with (
        ClusterHarness(tmp_path, brokers=2) as cluster,
        Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
    ):
        loading = Loading(admin, cluster, "t", replicas=2)
        placed = in_a_row(three(PreparedTransaction("elsewhere", 900_000, 0)), 1000)
        offer_path(loading.directory, 1000, "restored").write_bytes(b"".join(placed))
        restored = admin.restore(OfferedSegments(loading.tp, loading.leader, "restored", (1000,), 1012))
        assert restored == (1000, 1011, 1000)
        (other,) = {0, 1} - {loading.leader}
        loading.begin()
        assert loading.adopt(loading.offer("more", [three(loading.transaction)])).first_offset == 1012
        loading.end(commit=False)
        cluster.kill_broker(loading.leader)
        loading.leader = other
        eventually(lambda: len(loading.values("read_uncommitted")) == 6 * RECORDS, timeout=60)


@integration
def test_a_follower_of_a_restored_partition_is_in_sync_though_its_leader_had_begun_another_epoch(tmp_path):
    with (
        ClusterHarness(tmp_path, brokers=2) as cluster,
        Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
    ):
        loading = Loading(admin, cluster, "t", replicas=2)
        (other,) = {0, 1} - {loading.leader}

        def partition():
            return admin.describe_topics(["t"])["t"].partitions[0]

        cluster.kill_broker(other)
        eventually(lambda: partition().isr == (loading.leader,), timeout=60)
        placed = in_a_row(three(PreparedTransaction("elsewhere", 900_000, 0)))
        for number, batch in enumerate(placed):
            bears = RecordBatch(bytearray(batch))
            bears.assign(number * RECORDS, 0)
            placed[number] = bytes(bears.buffer)
        assert partition().leader_epoch > 0
        offer_path(loading.directory, 0, "restored").write_bytes(b"".join(placed))
        admin.restore(OfferedSegments(loading.tp, loading.leader, "restored", (0,), 3 * RECORDS))
        cluster.start_broker(other)
        eventually(lambda: sorted(partition().isr) == [0, 1], timeout=60)
        cluster.kill_broker(loading.leader)
        eventually(lambda: len(loading.values("read_uncommitted")) == 3 * RECORDS, timeout=60)


def test_a_full_disk_that_has_nothing_of_the_partition_refuses_no_restore(tmp_path, monkeypatch):
    tp, homes = TopicPartition("t", 0), [tmp_path / "first", tmp_path / "second"]
    write = LogDir.checkpoint

    async def ask(_):
        return None  # there is no transaction

    async def restore(logs):
        loop = asyncio.get_running_loop()
        replicas = ReplicaManager(1, logs, loop)
        assert replicas.apply(tp, PartitionState(1, 0, (1,), 1), TopicConfig(), UUID(int=1)) is ErrorCode.NONE
        directory = replicas.partition(tp).log.directory

        def checkpoint(log_dir, choose):
            if log_dir.path != directory.parent:
                raise DiskFull(f"{log_dir.path} is full")
            write(log_dir, choose)

        monkeypatch.setattr(LogDir, "checkpoint", checkpoint)
        placed = in_a_row(three(PreparedTransaction("elsewhere", 900_000, 0)))
        offer_path(directory, 0, "restored").write_bytes(b"".join(placed))
        adopter = SegmentAdopter(replicas, logs, loop, ManualClock())
        try:
            wish = Wish(tp, Mode.RESTORE, Offer("restored", (0,), 3 * RECORDS), -1, log_start_offset=2)
            return await adopter.adopt(wish, ask)
        finally:
            await adopter.close()

    with ThreadPoolExecutor(1) as disk:
        logs = LogManager(homes, TopicConfig(), ManualClock(), disk)
        found = asyncio.run(restore(logs))
        monkeypatch.undo()
        logs.close()
    assert found == Adopted(0, 3 * RECORDS - 1, 2, 0, found.nbytes)


def test_what_was_refused_is_remembered_without_what_was_asked_for(tmp_path):
    """A request names thousands of segments, and a thousand outcomes are remembered."""
    tp = TopicPartition("t", 0)

    async def refused(logs):
        loop = asyncio.get_running_loop()
        replicas = ReplicaManager(1, logs, loop)
        assert replicas.apply(tp, PartitionState(1, 0, (1,), 1), TopicConfig(), UUID(int=1)) is ErrorCode.NONE
        adopter = SegmentAdopter(replicas, logs, loop, ManualClock())
        wish = Wish(tp, Mode.APPEND, Offer("refused", (5,), 9), -1)

        async def ask(_):
            return None

        kept, said = weakref.ref(ask), []
        for asking in (ask, None):
            with pytest.raises(ApiError) as error:
                await adopter.adopt(wish, asking)
            said.append((error.value.code, error.value.reason))
        assert said[0] == said[1] == (ErrorCode.INVALID_REQUEST, "what is to be given offsets counts from 0")
        del ask, asking, error
        gc.collect()
        assert kept() is None
        assert adopter.bytes_to_count(wish) == 0
        await adopter.close()

    with ThreadPoolExecutor(1) as disk:
        logs = LogManager([tmp_path], TopicConfig(), ManualClock(), disk)
        asyncio.run(refused(logs))
        logs.close()


def test_a_hole_between_restored_segments_is_no_lost_end_after_a_crash(tmp_path):
    """They come from a compacted topic; the policy may be ``delete`` at the next start."""
    tp, clock, home = TopicPartition("t", 0), ManualClock(), tmp_path / "log"
    config = parse(TopicConfig, {"cleanup.policy": "compact"})

    async def ask(_):
        return None  # there is no transaction

    async def restore(logs):
        replicas = ReplicaManager(1, logs, asyncio.get_running_loop(), clock=clock)
        assert replicas.apply(tp, PartitionState(1, 0, (1,), 1), config, UUID(int=1)) is ErrorCode.NONE
        directory = replicas.partition(tp).log.directory
        for base in (0, 100):
            first, *_ = in_a_row(three(PreparedTransaction("elsewhere", 900_000, 0)), base)
            offer_path(directory, base, "restored").write_bytes(first)
        adopter = SegmentAdopter(replicas, logs, asyncio.get_running_loop(), clock)
        await adopter.adopt(Wish(tp, Mode.RESTORE, Offer("restored", (0, 100), 100 + RECORDS), -1), ask)
        await adopter.close()

    with ThreadPoolExecutor(1) as disk:
        logs = LogManager([home], TopicConfig(), clock, disk)
        asyncio.run(restore(logs))
        crashed = shutil.copytree(home, tmp_path / "crashed")
        again = LogManager([crashed], TopicConfig(), clock, disk)
        again.load({"t": TopicConfig()})
        assert again.logs[tp].log_end_offset == logs.logs[tp].log_end_offset == 100 + RECORDS
        for each in (again, logs):
            each.close()


def test_nothing_is_written_to_a_log_that_is_about_to_begin_where_what_is_restored_does(tmp_path):
    """The disk thread may be busy, and what was written meanwhile would be dropped though a client was told of it."""
    tp, clock, gate = TopicPartition("t", 0), ManualClock(), threading.Event()

    async def restore(logs, disk):
        loop = asyncio.get_running_loop()
        replicas = ReplicaManager(1, logs, loop, clock=clock)
        assert replicas.apply(tp, PartitionState(1, 0, (1,), 1), TopicConfig(), UUID(int=1)) is ErrorCode.NONE
        is_about_to = asyncio.Event()

        async def ask(_):
            disk.submit(gate.wait, 60)
            loop.call_soon(is_about_to.set)

        placed = in_a_row(three(PreparedTransaction("elsewhere", 900_000, 0)), 100)
        offer_path(replicas.partition(tp).log.directory, 100, "restored").write_bytes(b"".join(placed))
        adopter = SegmentAdopter(replicas, logs, loop, clock)
        wish = Wish(tp, Mode.RESTORE, Offer("restored", (100,), 100 + 3 * RECORDS), -1)
        adopting = asyncio.ensure_future(adopter.adopt(wish, ask))
        try:
            await is_about_to.wait()
            await asyncio.sleep(0)
            assert not adopting.done()
            builder = RecordBatchBuilder()
            builder.append(1, None, b"v")
            with pytest.raises(ApiError) as refused:
                replicas.append(tp, memoryview(bytearray(builder.build())), -1)
            assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
            assert [*replicas.apply_retention()] == []
        finally:
            gate.set()
            await asyncio.wait((adopting,))
            await adopter.close()
        return adopting.result()

    with ThreadPoolExecutor(1) as disk:
        logs = LogManager([tmp_path], TopicConfig(), clock, disk)
        found = asyncio.run(restore(logs, disk))
        logs.close()
    assert found == Adopted(100, 100 + 3 * RECORDS - 1, 100, 0, found.nbytes)


def test_what_nobody_asks_for_is_removed(tmp_path):
    late, mine, first = (offer_path(tmp_path, 0, tag) for tag in ("late", "mine", "long"))
    last = offer_path(tmp_path, 9, "long")
    for path in (late, mine, first, last):
        path.touch()
    for path in (late, first):
        os.utime(path, (1000, 1000))
    certain = tmp_path / ADOPTION
    certain.touch()
    remove_forgotten(tmp_path, 1000 + LEFT_ALONE_S)
    assert late.exists()
    certain.unlink()
    remove_forgotten(tmp_path, 1000 + LEFT_ALONE_S)
    assert set(tmp_path.iterdir()) == {mine, first, last}
