"""A drill of three brokers that have replicas of everything, and of all that may happen to them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from histories.clients import CONFLUENT, OWN
from histories.drill import (
    _AWAY,
    COPIERS,
    END_S,
    PARTITIONS,
    READERS,
    SETTINGS,
    SOURCE,
    TARGET,
    Drill,
    Slot,
    Workload,
)
from histories.faulty_cluster import FaultyBroker, FaultyCluster
from histories.history import Recorder, now
from histories.network import HOST
from histories.replicas import replicas
from histories.schedule import Harm, draw, told
from integration import wire

from sparklog.errors import CoordinationError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ElectLeadersRequest, ListOffsetsRequest
from sparklog.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import PartitionState

BROKERS = 3
HASTY = "hasty"
"""The topic, the group of its reader, and the first word of its writer's name: what is acknowledged by one replica."""
REPLICATED = {
    **SETTINGS,
    "default.replication.factor": BROKERS,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": BROKERS,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.replication.factor": BROKERS,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 2,
    "replica.lag.time.max.ms": 3000,
    "replica.high.watermark.checkpoint.interval.ms": 1000,
    "log.flush.offset.checkpoint.interval.ms": 2000,
    "log.segment.bytes": 40_000,
    "log.index.size.max.bytes": 8192,
}
INTERNAL = [TopicPartition(topic, number) for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) for number in range(2)]
TRANSACTION_TIMEOUT_MS = 20_000
RESTS_S = 0.1
States = Mapping[TopicPartition, PartitionState]
_LOOK_S = 0.2
_LATEST = -1


class Fire(Drill):
    """``harms`` is the schedule. ``hasty``: some records are sent with acks=1."""

    topics: ClassVar[Mapping[str, int]] = {**PARTITIONS, HASTY: 1}
    replication = BROKERS
    look_s = _LOOK_S
    groups = (COPIERS, *READERS, HASTY)
    cluster: FaultyCluster

    def __init__(self, home: Path, seed: int, count: int) -> None:
        chance = Random(f"fire {seed}")
        self.flushes = chance.random() < 0.4
        self.hasty = chance.random() < 0.3
        self.harms = draw(chance, BROKERS, count, flushes=self.flushes)
        kinds = chance.choice([(OWN, CONFLUENT), (CONFLUENT, OWN)])
        self._undone = ExitStack()
        super().__init__(home, seed, BROKERS, Workload(kinds, chance.choice(list(READERS.values()))))

    def told(self) -> str:
        """What is done, a line each."""
        how = f"flushing {'on' if self.flushes else 'off'}, acks=1 {'too' if self.hasty else 'never'}"
        return "\n".join([how, *told(self.harms)])

    def _make_cluster(self, home: Path, brokers: int) -> FaultyCluster:
        flushing = {"log.flush.interval.messages": 1} if self.flushes else {}
        return FaultyCluster(home, brokers, {**REPLICATED, **flushing})

    def _configs(self, topic: str) -> Mapping[str, str]:
        return {"min.insync.replicas": "1"} if topic == HASTY else {}

    def _roles(self, workload: Workload, common: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        committed = {"isolation": "read_committed"}
        for number, kind in enumerate(workload.kinds):
            mine = {**common, "client": kind}
            yield f"writer-{number}", {**mine, "role": "writer", "rests": RESTS_S, **_to(SOURCE)}
            slot = f"copier-{number}"
            named = {"transactional id": slot, "transaction timeout ms": TRANSACTION_TIMEOUT_MS}
            member = {"group": COPIERS, "source": SOURCE, "assignor": workload.copiers, **committed}
            yield slot, {**mine, "role": "copier", "aborts": 0.25, **named, **member, **_to(TARGET)}
            group = list(READERS)[number]
            member = {"group": group, "source": TARGET, "assignor": READERS[group], **committed}
            yield f"{group}-0", {**mine, "role": "reader", **member}
        if self.hasty:
            mine = {**common, "client": workload.kinds[0]}
            yield "hasty-writer", {**mine, "role": "writer", "rests": RESTS_S, "acks": "1", **_to(HASTY, 1)}
            yield (
                "hasty-reader",
                {**mine, "role": "reader", "group": HASTY, "source": HASTY, "assignor": "range", **committed},
            )

    def terms(self) -> list[tuple[str, str | None]]:
        return [(_direct(broker), f"{broker.name}, life {broker.life}") for broker in self.cluster.brokers]

    def run(self, seconds: float = 0.0, first: Sequence[str] = ()) -> None:
        with Watcher(self) as self.watcher:
            super().run(seconds, first)

    # The schedule

    def _harm(self, seconds: float, first: Sequence[str]) -> None:
        self._await_whole()
        eventually(lambda: self._works(0), END_S, "something to harm")
        for harm in self.harms:
            self._suffer(harm)
        self._undone.close()

    def _suffer(self, harm: Harm) -> None:
        for slot in self.slots:
            slot.revive()
        self._record("fault", text=f"{harm} begins")
        before, self._undone = self._undone, ExitStack()
        try:
            getattr(self, f"_{harm.name}")(**harm.how)
            self._clock.sleep(harm.seconds)
        finally:
            before.close()
        if not harm.lingers:
            self._undone.close()
        self._record("fault", text=f"{harm} ends")

    def _later(self, undo: Callable[..., object], *args: Any) -> None:
        self._undone.callback(undo, *args)

    def _await_whole(self) -> None:
        """Return when all live, and all replicas are in sync."""
        since = now()

        def whole() -> bool:
            for broker in self.cluster.brokers:
                self._start_again(broker)  # it may have given up, for its disk, after it was looked at
            return self.watcher.is_whole(since)

        eventually(whole, END_S, "all replicas to be in sync")

    def _live(self, numbers: Sequence[int]) -> list[FaultyBroker]:
        return [self.cluster.brokers[number] for number in numbers if self.cluster.brokers[number].alive]

    def _start_again(self, broker: FaultyBroker) -> None:
        if not broker.alive:
            broker.spawn()

    # What is done

    def _kill(self, brokers: Sequence[int]) -> None:
        for broker in self._live(brokers):
            broker.kill()
            self._later(self._start_again, broker)

    def _kill_leader(self, number: int) -> None:
        tp = self.partitions[number]
        state = self.watcher.states.get(tp)
        if state is not None and state.leader >= 0:
            self._kill([state.leader])

    def _stop(self, broker: int) -> None:
        for each in self._live([broker]):
            each.stop()
            self._later(self._start_again, each)

    def _roll(self, brokers: Sequence[int]) -> None:
        for broker in self._live(brokers):
            broker.stop()
            broker.spawn()
            eventually(lambda broker=broker: broker.is_ready() or not broker.alive, END_S, f"{broker.name} to serve")

    def _freeze(self, brokers: Sequence[int]) -> None:
        for broker in self._live(brokers):
            broker.signal(signal.SIGSTOP)
            self._later(_go_on, broker.pid)

    def _part(self, ways: Sequence[tuple[str, str]], breaks: bool) -> None:
        self.cluster.network.cut(*map(tuple, ways))
        if breaks:
            self._later(self.cluster.network.reset)
        self._later(self.cluster.network.heal)

    def _slow(self, ways: Sequence[tuple[str, str]], delay_s: float) -> None:
        self.cluster.network.slow(delay_s, *map(tuple, ways))
        self._later(self.cluster.network.heal)

    def _reset(self) -> None:
        self.cluster.network.reset()

    def _stop_zookeeper(self) -> None:
        self.cluster.zookeeper.kill()
        self._later(self.cluster.zookeeper.start)

    def _lose_power(self, brokers: Sequence[int], seed: int, page: int, alone: bool = False) -> None:
        if alone:
            self._be_well()
        ready = [broker for broker in self._live(brokers) if broker.is_ready()]
        for broker in ready:
            broker.cut_power(seed + broker.spec.broker_id, page)
            self._later(self._start_again, broker)
        if alone:
            self._later(self._be_well)

    def _be_well(self) -> None:
        """Nothing is wrong any more, and all replicas are in sync."""
        self._undo_all()
        self._await_whole()

    def _break_disk(self, broker: int, error: int, steps: Sequence[str]) -> None:
        for each in self._live([broker]):
            if each.is_ready():
                each.fail_disk(error, steps)
                self._later(self._mend_disk, each)

    def _mend_disk(self, broker: FaultyBroker) -> None:
        _go_on(broker.pid)
        broker.mend_disk()
        self._start_again(broker)

    def _step_clock(self, broker: int, ahead_ms: int) -> None:
        for each in self._live([broker]):
            if each.is_ready():
                each.set_clock(ahead_ms)

    def _move_leaders(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5000)
        for address in self.addresses:
            with suppress(*_AWAY), wire.connect(address, timeout=5.0) as connection:
                connection.request(ApiKey.ELECT_LEADERS, lambda _: request)

    def _harm_actor(self, number: int, kills: bool) -> None:
        slot = self.slots[number % len(self.slots)]
        if kills:
            slot.kill()
        else:
            slot.pause()
            self._later(slot.resume)

    # The end

    def _undo_all(self) -> None:
        self._undone.close()
        self.cluster.network.heal()
        if not self.cluster.zookeeper.alive:
            self.cluster.zookeeper.start()
        for broker in self.cluster.brokers:
            _go_on(broker.pid)
            self._start_again(broker)
        for broker in self.cluster.brokers:
            eventually(lambda broker=broker: self._serves(broker), END_S, f"{broker.name} to serve")

    def _serves(self, broker: FaultyBroker) -> bool:
        self._start_again(broker)  # it may have given up while ZooKeeper was away
        return broker.is_ready()

    def _heal(self) -> None:
        self._undo_all()
        self._await_whole()
        for slot in self.slots:
            if (
                not slot.is_own
            ):  # it may wait forever for a group's coordinator that was replaced (``confluent_client``)
                slot.kill()
        super()._heal()

    def _await_life(self, slots: Sequence[Slot], *, restarted: bool = True) -> None:
        super()._await_life([slot for slot in slots if slot.is_own], restarted=restarted)

    def _close(self) -> None:
        super()._close()
        self._await_whole()
        eventually(self._is_copied, END_S, "the replicas to be equally long")
        self.watcher.stop()
        self.cluster.stop_brokers()
        for tp in [*self.partitions, *INTERNAL]:
            found = replicas([broker.spec.data_dir for broker in self.cluster.brokers], tp)
            for number, fields in enumerate(found):
                self._record("replica", topic=tp.topic, partition=tp.partition, broker=number, **fields)

    def _is_copied(self) -> bool:
        def size(broker: FaultyBroker, tp: TopicPartition) -> int:
            return sum(path.stat().st_size for path in (broker.spec.data_dir / str(tp)).glob("*.log"))

        return all(
            len({size(broker, tp) for broker in self.cluster.brokers}) == 1 for tp in [*self.partitions, *INTERNAL]
        )

    def crashes(self) -> list[str]:
        broken = [each.log_path.name for each in self.cluster.brokers if "Traceback" in each.log_path.read_text()]
        return [*super().crashes(), *broken]


def _to(topic: str, partitions: int = 0) -> dict[str, Any]:
    return {"target": topic, "target partitions": partitions or PARTITIONS[topic]}


def described(states: States) -> dict[str, list[Any]]:
    """The field of a ``states`` event."""
    return {
        f"{tp.topic}/{tp.partition}": [each.leader, each.leader_epoch, list(each.isr), each.version]
        for tp, each in states.items()
    }


def _direct(broker: FaultyBroker) -> str:
    """Where it listens itself: no harm to the network keeps an observer from asking."""
    return f"{HOST}:{broker.spec.port}"


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


class Watcher:
    """Writes down what ZooKeeper has of every partition, and what its leader tells of its end."""

    def __init__(self, drill: Fire) -> None:
        self._drill = drill
        self._record = Recorder(drill.history, "watcher")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.states: States = {}
        self._asked = 0

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(END_S)

    def is_whole(self, since: int) -> bool:
        """Whether all replicas of all partitions were in sync when it looked last, which was after ``since``."""
        known = {*self._drill.partitions, *INTERNAL} <= self.states.keys() or {*self._drill.partitions} == set(
            self.states
        )
        return self._asked > since and known and all(len(each.isr) == BROKERS for each in self.states.values())

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            with suppress(CoordinationError):
                zookeeper = ZkClient(
                    self._drill.cluster.zookeeper.connect_string, session_timeout=10.0, on_session=lambda _: None
                )
                try:
                    self._watch(zookeeper)
                finally:
                    zookeeper.close()

    def _watch(self, zookeeper: ZkClient) -> None:
        """Raises CoordinationError."""
        while not self._stopping.wait(_LOOK_S):
            asked = now()
            found = zookeeper.guarded(zookeeper.partition_states, [*self._drill.partitions, *INTERNAL])
            self._record("states", asked=asked, states=described(found))
            self.states, self._asked = found, asked
            for broker in self._drill.cluster.brokers:
                with suppress(*_AWAY):
                    self._ask_ends(broker, found)

    def _ask_ends(self, broker: FaultyBroker, states: States) -> None:
        led = [tp for tp in self._drill.partitions if tp in states and states[tp].leader == broker.spec.broker_id]
        topic = ListOffsetsRequest.ListOffsetsTopic
        asked_topics = [
            topic(
                name=tp.topic,
                partitions=[
                    topic.ListOffsetsPartition(
                        partition_index=tp.partition, current_leader_epoch=states[tp].leader_epoch, timestamp=_LATEST
                    )
                ],
            )
            for tp in led
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=asked_topics)
        asked = now()
        with wire.connect(_direct(broker), timeout=1.0) as connection:
            answer = connection.request(ApiKey.LIST_OFFSETS, lambda _: request)
        for each in answer.topics:
            for found in each.partitions:
                if not found.error_code:
                    tp = TopicPartition(each.name, found.partition_index)
                    told = {"epoch": states[tp].leader_epoch, "offset": found.offset}
                    self._record("end", asked=asked, topic=tp.topic, partition=tp.partition, **told)
