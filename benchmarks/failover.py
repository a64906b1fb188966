"""``python -m benchmarks.failover [--partitions N,...]``: three brokers of ours lose one, and what is done until all
partitions take records again, step by step.

Every partition has its three replicas on the three brokers, and ``min.insync.replicas=2``, so each of them is without
``acks=all`` from the death on: a third for want of a leader, the others for want of a smaller ISR. A client of this
process asks the brokers that are left who leads, over and over, and has a record acknowledged in each partition, by raw
requests of ``A_REQUEST`` partitions. Times are seconds from the signal. Processor time is of the whole interval from
the signal to the last acknowledgement. Beside it runs what asks each broker for ApiVersions every 5 ms: the longest it
waited is how long the broker was busy with something else, or the machine with another process.

A broker that is stopped in order serves on for a while. Then every partition is written to over and over, and what is
told is the longest time between two acknowledgements of one partition.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.replication import BROKERS, Cluster
from benchmarks.traced_broker import Event, events
from sparklog.errors import ErrorCode, SparklogError
from sparklog.local.broker import BrokerProcess, BrokerSpec
from sparklog.local.ports import free_port
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.net.async_connection import AsyncConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce
from sparklog.protocol.messages import MetadataRequest
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import Chunk, Endpoint, TopicPartition
from sparklog.testing.broker import settings_arguments
from sparklog.testing.eventually import eventually

A_TOPIC = 100
A_REQUEST = 50
_VERSION = 9
_LOOK_EVERY_S = 0.02
_GIVE_UP_S = 120
_TICKS = os.sysconf("SC_CLK_TCK")
_TRACED = (sys.executable, "-m", "benchmarks.traced_broker")


class Writer:
    """Has records acknowledged by all in sync, in each of the partitions; asks anew who leads before each attempt."""

    def __init__(self, brokers: dict[int, int], partitions: list[TopicPartition]) -> None:
        """``brokers``: their ports on this machine."""
        builder = RecordBatchBuilder()
        builder.append(0, None, b"x" * 100)
        self._batch: list[Chunk] = [builder.build()]
        self._brokers = {id_: Endpoint("127.0.0.1", port) for id_, port in brokers.items()}
        self._connections: dict[int, AsyncConnection] = {}
        self._topics = sorted({tp.topic for tp in partitions})
        self.left = set(partitions)
        self._asked: set[TopicPartition] = set()
        self.acknowledged: dict[TopicPartition, list[float]] = {tp: [] for tp in partitions}

    async def once(self) -> None:
        """Until each partition has acknowledged a record."""
        until = time.time() + _GIVE_UP_S
        while self.left:
            if time.time() > until:
                raise RuntimeError(f"{len(self.left)} partitions take no records, {min(self.left)} for one")
            await self._look()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def over_and_over(self, stop: asyncio.Event) -> None:
        """Until ``stop``, and then once more."""
        while True:
            is_last = stop.is_set()
            await self.once()
            if is_last:
                return
            self.left = set(self.acknowledged)

    async def _look(self) -> None:
        for id_ in self._brokers:
            try:
                leaders = await self._leaders(id_)
            except SparklogError:
                self._connections.pop(id_, None)
                continue
            for leader in self._brokers:
                mine = [tp for tp in self.left - self._asked if leaders.get(tp) == leader]
                for start in range(0, len(mine), A_REQUEST):
                    await self._write(leader, mine[start : start + A_REQUEST])
            return

    async def _connection(self, id_: int) -> AsyncConnection:
        found = self._connections.get(id_)
        if found is None or found.closed:
            found = self._connections[id_] = await AsyncConnection.open(self._brokers[id_], client_id="failover")
        return found

    async def _leaders(self, id_: int) -> dict[TopicPartition, int]:
        asked = [MetadataRequest.MetadataRequestTopic(name=each) for each in self._topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = await (await self._connection(id_)).request(ApiKey.METADATA, lambda _: request, ceiling=9)
        return {
            TopicPartition(topic.name or "", each.partition_index): each.leader_id
            for topic in answer.topics
            for each in topic.partitions
        }

    async def _write(self, leader: int, partitions: list[TopicPartition]) -> None:
        body = produce.encode_request(-1, 30_000, dict.fromkeys(partitions, self._batch), _VERSION)
        try:
            connection = await self._connection(leader)
        except SparklogError:
            return
        self._asked.update(partitions)
        answer = connection.submit(ApiKey.PRODUCE, _VERSION, body)
        answer.add_done_callback(lambda answer: self._hear(partitions, answer))

    def _hear(self, partitions: list[TopicPartition], answer: asyncio.Future[memoryview]) -> None:
        self._asked.difference_update(partitions)
        if answer.cancelled() or answer.exception() is not None:
            return
        now = time.time()
        for tp, result in produce.decode_response(answer.result(), _VERSION).items():
            if result.error is ErrorCode.NONE:
                self.left.discard(tp)
                self.acknowledged[tp].append(now)


def _ports(cluster: Cluster) -> dict[int, int]:
    return {id_: int(each.address.rpartition(":")[2]) for id_, each in _brokers(cluster).items()}


def _brokers(cluster: Cluster) -> dict[int, BrokerProcess]:
    return {id_: each for id_, each in cluster.brokers.items() if isinstance(each, BrokerProcess)}


def _cpu(pid: int) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def _pinged(ports: dict[int, int], found: dict[int, float]) -> Iterator[None]:
    """Ask the brokers all the while; the longest wait for each, in ms, is in ``found`` at the end."""
    command = [sys.executable, "-m", "benchmarks.pinger", "127.0.0.1"]
    with ExitStack() as stack:
        pingers = {}
        for id_, port in ports.items():
            pinger = subprocess.Popen([*command, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(pinger.wait, 30)
            pingers[id_] = pinger
            assert pinger.stdout is not None
            pinger.stdout.readline()
        yield
        for id_, pinger in pingers.items():
            found[id_] = json.loads(pinger.communicate("\n", timeout=30)[0])["longest"]


def measure(cluster: Cluster, partitions: list[TopicPartition], victim: int, number: signal.Signals) -> list[str]:
    """The lines that tell what followed the signal; the victim has ended then."""
    asyncio.run(Writer(_ports(cluster), partitions).once())
    brokers = _brokers(cluster)
    survivors = {id_: port for id_, port in _ports(cluster).items() if id_ != victim}
    waits: dict[int, float] = {}
    with _pinged(survivors, waits):
        spent = {id_: -_cpu(brokers[id_].pid) for id_ in survivors}
        began = time.time()
        if number is signal.SIGKILL:
            os.kill(brokers[victim].pid, number)
            writer = Writer(survivors, partitions)
            asyncio.run(writer.once())
            times = [each[0] - began for each in writer.acknowledged.values()]
            lines = [f"first partition writable {min(times):.3f}, last {max(times):.3f}"]
        else:
            lines = asyncio.run(_while_it_stops(Writer(_ports(cluster), partitions), brokers[victim], began))
        for id_ in spent:
            spent[id_] += _cpu(brokers[id_].pid)
    cpu = ", ".join(f"broker {id_} {seconds:.2f} s" for id_, seconds in spent.items())
    longest = ", ".join(f"broker {id_} {wait:.0f} ms" for id_, wait in waits.items())
    return [*_timeline(brokers, began), *lines, f"processor time: {cpu}", f"longest wait for ApiVersions: {longest}"]


async def _while_it_stops(writer: Writer, victim: BrokerProcess, began: float) -> list[str]:
    over = asyncio.Event()
    writing = asyncio.ensure_future(writer.over_and_over(over))
    await asyncio.sleep(1)
    os.kill(victim.pid, signal.SIGTERM)
    told = time.time()
    while victim.alive:
        await asyncio.sleep(_LOOK_EVERY_S)
    ended = time.time()
    over.set()
    await writing
    gaps = [
        (after - before, before)
        for times in writer.acknowledged.values()
        for before, after in zip([began, *times], times, strict=False)
    ]
    before = max(gap for gap, since in gaps if since + gap < told)
    longest = max(gap for gap, since in gaps if since + gap >= told)
    return [
        f"the process ended {ended - told:.3f} after it was told",
        f"longest time between two acknowledgements of a partition {longest:.3f}, before that {before:.3f}",
    ]


def _timeline(brokers: dict[int, BrokerProcess], began: float) -> list[str]:
    """By what the brokers have traced since then."""
    found = [each for id_ in brokers for each in events(brokers[id_].output()) if each.began >= began]
    lines = []
    for each in sorted(found, key=lambda each: each.at):
        lines.append(f"{each.began - began:.3f} - {each.at - began:.3f}  {_said(each)}")
    return lines


def _said(event: Event) -> str:
    if event.what == "detected":
        return "the broker is taken for gone"
    if event.what == "written":
        return f"{event.partitions} states written to ZooKeeper in {event.transactions} transactions"
    return f"{event.what} of {event.partitions} partitions, answered by broker {event.broker}"


def _create(cluster: Cluster, partitions: int) -> list[TopicPartition]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    names = [f"failing-{partitions}-{number}" for number in range((partitions + A_TOPIC - 1) // A_TOPIC)]
    wanted = {name: min(A_TOPIC, partitions - A_TOPIC * number) for number, name in enumerate(names)}
    for name, count in wanted.items():
        new = NewTopic(name, count, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[name].result(60)
    for name in names:
        cluster.wait_until_whole(name)
    return [TopicPartition(name, number) for name, count in wanted.items() for number in range(count)]


@contextmanager
def cluster_of_three(directory: Path) -> Iterator[Cluster]:
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper, ExitStack() as stack:
        brokers: dict[int, BrokerProcess] = {}
        for number in BROKERS:
            settings = settings_arguments({"zookeeper.session.timeout.ms": 18_000})
            spec = BrokerSpec(
                number,
                zookeeper.connect_string,
                directory / f"data-{number}",
                free_port(),
                arguments=settings,
                program=_TRACED,
            )
            brokers[number] = BrokerProcess(spec, directory / f"broker-{number}.log")
            brokers[number].start()
            stack.callback(brokers[number].stop)
        yield Cluster("sparklog", dict(brokers), zookeeper.connect_string)


def _cases(cluster: Cluster) -> Iterator[tuple[str, int, signal.Signals]]:
    controller = cluster.controller
    yield "SIGKILL of a leader", next(id_ for id_ in BROKERS if id_ != controller), signal.SIGKILL
    yield "SIGKILL of the controller", cluster.controller, signal.SIGKILL
    controller = cluster.controller
    yield "controlled shutdown", next(id_ for id_ in BROKERS if id_ != controller), signal.SIGTERM


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="10,1000,3000", help="sizes of the cluster, a fresh one each")
    for size in (int(each) for each in parser.parse_args().partitions.split(",")):
        with TemporaryDirectory(prefix="sparklog-bench-") as scratch, cluster_of_three(Path(scratch)) as cluster:
            partitions = _create(cluster, size)
            for what, victim, number in _cases(cluster):
                sys.stdout.write(f"\n{what}, {size:,} partitions: broker {victim}\n")
                for line in measure(cluster, partitions, victim, number):
                    sys.stdout.write(f"  {line}\n")
                sys.stdout.flush()
                _bring_back(cluster, victim, {tp.topic for tp in partitions})


def _bring_back(cluster: Cluster, victim: int, topics: set[str]) -> None:
    cluster.brokers[victim].stop()
    cluster.brokers[victim].start()
    for topic in topics:
        cluster.wait_until_whole(topic)
    for topic in topics:
        cluster.lead_again(topic)
    eventually(lambda: cluster.controller in BROKERS, 60, "a controller")


if __name__ == "__main__":
    main()
