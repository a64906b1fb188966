"""A drill of three brokers that have replicas of everything, and of all that may happen to them."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from histories.checker import check
from histories.clients import CONFLUENT, OWN
from histories.compacting_jobs import CompactingJobs
from histories.direct_reader import DirectReader
from histories.drill import (
    _AWAY,
    COPIED,
    COPIERS,
    END_S,
    PARTITIONS,
    READERS,
    SOURCE,
    TARGET,
    ByPassword,
    Workload,
    final_log,
)
from histories.faulty_cluster import FaultyBroker, FaultyCluster
from histories.history import load
from histories.offloading_jobs import OffloadingJobs
from histories.replicated import BROKERS, REPLICATED, RESTS_S, ReplicatedDrill, to
from histories.schedule import Harm, Rounds, draw, told
from histories.watcher import Place, open_zookeeper
from integration import wire

from sparklog.client.admin.admin import Admin, Replica
from sparklog.errors import ErrorCode, SparklogError
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ElectLeadersRequest
from sparklog.spark.lake.places.file_place import PARQUET, SEGMENTS
from sparklog.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient

TABLE = "table"
"""The compacted topic, and the first word of the names of those who write it and follow it."""
_TABLE_RETENTION_MS = 2000
_COMPACTING = {
    "log.cleaner.backoff.ms": 1000,
    "log.cleaner.dedupe.buffer.size": 1 << 21,
    "log.cleaner.min.cleanable.ratio": 0.1,
    "log.cleaner.delete.retention.ms": _TABLE_RETENTION_MS,
    "offsets.topic.segment.bytes": 4000,
    "transaction.state.log.segment.bytes": 4000,
}
_TABLE_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(_TABLE_RETENTION_MS),
}
COMPACTED = (TABLE, OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
_CLEANED = re.compile(r"Log cleaner thread \d+ cleaned log (\S+)-\d+ ")
_MISSED = re.compile(r"broker (\d+)(?:, the controller,)? is gone: its address, \S+ refuses connections")
HASTY = "hasty"
"""The topic, the group of its reader, and the first word of its writer's name: what is acknowledged by one replica."""
DRAINED = "drained"
"""The topic, and the first word of its writer's name: what is offloaded is deleted, and nothing else is."""
_DRAINING = {"log.retention.check.interval.ms": 500}
_DRAINED_CONFIGS = {
    "segment.bytes": "4000",
    "retention.ms": "1000",
    "sparklog.offload.required": "true",
    "sparklog.offload.max.bytes": "1000000000",
}
_EARLIEST = -2
_THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_SOON_MS = 3000
"""How long an operator tries, in milliseconds."""


class Fire(ReplicatedDrill):
    """``harms`` is the schedule. ``hasty``: some records are sent with acks=1. ``compacts``: segments are so small that
    the internal topics are compacted all the time, and there is a table, which is too; with ``has_jobs`` jobs compact
    that beside the brokers. ``reads_files``: somebody reads from the brokers' files, as tasks of Spark do.
    ``offloads``: jobs offload the topics to files, and what they have of one topic is deleted. ``refuses``: brokers
    that are gone refuse connections, so that nobody waits for their sessions; else they are silent, as where a machine
    is gone.
    """

    topics: Mapping[str, int] = {**PARTITIONS, HASTY: 1}
    groups = (COPIERS, *READERS, HASTY)
    cluster: FaultyCluster
    is_secure: ClassVar[bool] = False
    is_mixed: ClassVar[bool] = False
    """Whether brokers are among them that lend no files, offload nothing, and let no jobs compact."""
    repeated_by: ClassVar[str] = "FIRE_SEEDS"
    """What names the seeds to run, in the environment."""

    def __init__(self, home: Path, seed: int, count: int) -> None:
        self.seed = seed
        chance = Random(f"fire {seed}")
        self.flushes = chance.random() < 0.4
        self.hasty = chance.random() < 0.3
        self.log_dirs = 2 if chance.random() < 0.4 else 1
        self.compacts = Random(f"compaction {seed}").random() < 0.5  # drawn apart: the rest is as it was without
        self.has_jobs = not self.is_mixed and self.compacts and Random(f"jobs {seed}").random() < 0.5
        self.reads_files = not self.is_mixed and Random(f"files {seed}").random() < 0.5
        self.offloads = not self.is_mixed and Random(f"offload {seed}").random() < 0.5
        self.refuses = Random(f"refusals {seed}").random() < 0.7
        if self.compacts:
            self.topics = {TABLE: 2, **self.topics}
            self.transactional_ids = (*self.transactional_ids, TABLE)
        if self.offloads:
            self.topics = {**self.topics, DRAINED: 1}
        self.harms = draw(chance, BROKERS, count, flushes=self.flushes, log_dirs=self.log_dirs)
        kinds = chance.choice([(OWN, CONFLUENT), (CONFLUENT, OWN)])
        self._undone = ExitStack()
        self._undone_before = ExitStack()
        self._throttled: set[int] = set()
        self._jobs = CompactingJobs(TABLE, self._client_now)
        super().__init__(home, seed, BROKERS, Workload(kinds, chance.choice(list(READERS.values()))))
        read = (SOURCE, TARGET, *([TABLE] if self.compacts else []))
        self._direct_reader = DirectReader(self.history, read, self._client_now)
        offloaded = {PARQUET: read, SEGMENTS: (*read, DRAINED)}
        self._offloading = OffloadingJobs(home / "places", self._logs, seed, offloaded, self._client_now)

    def told(self) -> str:
        """What is done, a line each."""
        how = f"flushing {'on' if self.flushes else 'off'}, acks=1 {'too' if self.hasty else 'never'}"
        how += f", log directories: {self.log_dirs}, compaction {'on' if self.compacts else 'off'}"
        how += f"{' by jobs too' if self.has_jobs else ''}{', files are read' if self.reads_files else ''}"
        how += ", jobs offload" if self.offloads else ""
        how += f", what is gone {'refuses connections' if self.refuses else 'is silent'}"
        return "\n".join([how, *told(self.harms)])

    def _make_cluster(self, home: Path, brokers: int) -> FaultyCluster:
        flushing = {"log.flush.interval.messages": 1} if self.flushes else {}
        compacting = _COMPACTING if self.compacts else {}
        settings = {**REPLICATED, **flushing, **compacting, **(_DRAINING if self.offloads else {})}
        return self._cluster_with(home, settings)

    def _cluster_with(self, home: Path, settings: Mapping[str, object]) -> FaultyCluster:
        return FaultyCluster(home, BROKERS, settings, self.log_dirs, secure=self.is_secure, refuses=self.refuses)

    def _configs(self, topic: str) -> Mapping[str, str]:
        own = {HASTY: {"min.insync.replicas": "1"}, TABLE: _TABLE_CONFIGS, DRAINED: _DRAINED_CONFIGS}
        return dict.fromkeys(_THROTTLED, "*") | own.get(topic, {})

    def _is_compacted(self, topic: str) -> bool:
        return self.compacts and topic in COMPACTED

    @property
    def watched(self) -> list[TopicPartition]:
        """The compacted ones first, where there are: a harm draws one of the first ten."""
        return sorted(super().watched, key=lambda tp: not self._is_compacted(tp.topic))

    def _roles(self, workload: Workload, common: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        yield from super()._roles(workload, common)
        if self.hasty:
            mine = {**common, "client": workload.kinds[0]}
            yield "hasty-writer", {**mine, "role": "writer", "rests": RESTS_S, "acks": "1", **to(HASTY, 1)}
            yield (
                "hasty-reader",
                {
                    **mine,
                    "role": "reader",
                    "group": HASTY,
                    "source": HASTY,
                    "assignor": "range",
                    "isolation": "read_committed",
                },
            )

        if self.offloads:
            mine = {**common, "client": workload.kinds[0]}
            yield "drained-writer", {**mine, "role": "writer", "rests": RESTS_S, **to(DRAINED, 1)}
        if self.compacts:
            yield from self._table_roles(workload.kinds, common)

    def _table_roles(self, kinds: Sequence[str], common: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, (kind, isolation) in enumerate(zip(kinds, ("read_committed", "read_uncommitted"), strict=True)):
            mine = {**common, "client": kind}
            keeper = {**mine, "role": "keeper", "rests": RESTS_S, **to(TABLE, self.topics[TABLE])}
            yield f"{TABLE}-keeper-{number}", {**keeper, "plain": number == 1}
            slot = f"{TABLE}-follower-{number}"
            member = {"group": slot, "source": TABLE, "assignor": "range", "isolation": isolation}
            yield slot, {**mine, "role": "follower", **member}
        named = {"transactional id": TABLE, "transaction timeout ms": self.transaction_timeout_ms, "aborts": 0.25}
        yield f"{TABLE}-transactions", {**keeper, "client": kinds[0], "role": "transactional keeper", **named}

    @property
    def observed(self) -> list[str]:
        return [broker.own_address for broker in self.cluster.brokers]

    def _at(self, address: str) -> Any:
        return next(each for each in self.cluster.brokers if each.own_address == address)

    def is_in_first_life(self, address: str) -> bool:
        life: int = self._at(address).life
        return life == 1

    def term(self, address: str, tp: TopicPartition) -> str | None:
        """A life of the broker, as long as it has this replica: one that is taken away and comes back begins anew."""
        broker = self._at(address)
        return f"{broker.name}, life {broker.life}, replica {broker.replica_made_at(tp)}"

    @property
    def zookeeper(self) -> str:
        return self.cluster.zookeeper.connect_string

    def open_zookeeper(self) -> ZkClient:
        return open_zookeeper(self.zookeeper, self.cluster.zookeeper_security)

    @property
    def places(self) -> list[Place]:
        return [Place(broker.broker_id, broker.life, broker.own_address) for broker in self.cluster.brokers]

    # The schedule

    def run(self, seconds: float = 0.0, first: Sequence[str] = ()) -> None:
        try:
            super().run(seconds, first)
        finally:
            self._jobs.stop()
            self._direct_reader.stop()
            self._offloading.stop()

    def _harm(self, seconds: float, first: Sequence[str]) -> None:
        if self.compacts:
            self._record("compacted", topic=TABLE, **{"retention ms": _TABLE_RETENTION_MS})
        self._await_whole()
        eventually(lambda: self._works(0), END_S, "something to harm")
        if self.has_jobs:
            self._jobs.start()
        if self.reads_files:
            self._direct_reader.start()
        if self.offloads:
            self._offloading.start()
        for harm in self.harms:
            self._suffer(harm)
        self._undone.close()

    def _suffer(self, harm: Harm) -> None:
        for slot in self.slots:
            slot.revive()
        self._record("fault", text=f"{harm} begins")
        self._undone_before, self._undone = self._undone, ExitStack()
        try:
            getattr(self, f"_{harm.name}")(**harm.how)
            self._clock.sleep(harm.seconds)
        finally:
            self._undone_before.close()
        if not harm.lingers:
            self._undone.close()
        self._record("fault", text=f"{harm} ends")

    def _later(self, undo: Callable[..., object], *args: Any) -> None:
        self._undone.callback(undo, *args)

    def _mend_brokers(self) -> None:
        for broker in self.cluster.brokers:
            self._start_again(broker)  # it may have given up, for its disk, after it was looked at
            if self.watcher.is_crippled(broker.broker_id, broker.life):
                broker.stop()
        self._let_replicas_hurry()

    def _stop_brokers(self) -> None:
        self.cluster.stop_brokers()

    def _live(self, numbers: Sequence[int]) -> list[Any]:
        return [self.cluster.brokers[number] for number in numbers if self.cluster.brokers[number].alive]

    def _faulty(self, numbers: Sequence[int]) -> list[FaultyBroker]:
        """Those whose disk, power and clock are governed, where they serve."""
        return [each for each in self._live(numbers) if isinstance(each, FaultyBroker) and each.is_ready()]

    def _start_again(self, broker: Any) -> None:
        if not broker.alive:
            broker.spawn()

    # What is done

    def _kill(self, brokers: Sequence[int]) -> None:
        for broker in self._live(brokers):
            broker.kill()
            self._later(self._start_again, broker)

    def _kill_leader(self, number: int, is_missed: bool = False) -> None:
        """With ``is_missed`` until others have seen that it is gone."""
        tp = self.partitions[number]
        state = self.watcher.states.get(tp)
        if state is not None and state.leader >= 0:
            self._kill([state.leader])
            if is_missed:
                eventually(lambda: self.missed()[state.leader], END_S, f"somebody to miss broker {state.leader}")

    def _stop(self, broker: int) -> None:
        for each in self._live([broker]):
            each.stop()
            self._later(self._start_again, each)

    def _roll(self, brokers: Sequence[int]) -> None:
        for broker in self._live(brokers):
            broker.stop_with_little_patience()
            broker.spawn()
            with suppress(AssertionError):  # it is kept from it for as long as another harm lasts, which this one ends
                eventually(lambda broker=broker: broker.is_ready() or not broker.alive, broker.starts_within_s)

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
        for broker in self._faulty(brokers):
            broker.cut_power(seed + broker.broker_id, page)
            self._later(self._start_again, broker)
        if alone:
            self._later(self._be_well)

    def _be_well(self) -> None:
        """Nothing is wrong any more, and all replicas are in sync."""
        self._undo_all()
        self._await_whole()

    def _break_disk(self, broker: int, error: int, steps: Sequence[str]) -> None:
        for each in self._faulty([broker]):
            each.fail_disk(error, steps)
            self._later(self._mend_disk, each)

    def _mend_disk(self, broker: FaultyBroker) -> None:
        _go_on(broker.pid)
        broker.mend_disk()
        self._start_again(broker)

    def _step_clock(self, broker: int, ahead_ms: int) -> None:
        for each in self._faulty([broker]):
            self._record("clock stepped", broker=broker)
            each.set_clock(ahead_ms)

    def _move_leaders(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5000)
        for address in self.addresses:
            with suppress(*_AWAY), self.connect(address, timeout=5.0) as connection:
                connection.request(ApiKey.ELECT_LEADERS, lambda _: request)

    def _reassign(self, rounds: Rounds, rate: int | None, cancels: bool) -> None:
        if rate is not None:
            self._hold_replicas_back(rate)
        for wishes in rounds:
            self._move({self._one_of_all(number): target for number, target in wishes})
        if cancels:
            self._later(self._move, dict.fromkeys(self._one_of_all(number) for number, _ in rounds[-1]))

    def _one_of_all(self, number: int) -> TopicPartition:
        return self.watched[number % len(self.watched)]

    def _move(self, wishes: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        with suppress(SparklogError), self._admin() as admin:
            admin.alter_partition_reassignments(wishes)

    def _admin(self) -> Admin:
        return Admin(self._client_now())

    def _client_now(self) -> dict[str, str]:
        """The settings of a client that does not wait long."""
        servers = ",".join(broker.address for broker in self._live(range(BROKERS))) or self.addresses[0]
        times = dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), str(_SOON_MS))
        return {**self.administrator, "bootstrap.servers": servers, **times}

    def _hold_replicas_back(self, rate: int) -> None:
        """What is not in sync, by so many bytes a second."""
        self._throttled = set(range(BROKERS))
        with suppress(SparklogError), self._admin() as admin:
            for number in range(BROKERS):
                admin.alter_broker_configs(number, dict.fromkeys(_RATES, str(rate)))
        self._later(self._let_replicas_hurry)

    def _let_replicas_hurry(self) -> None:
        if not self._throttled:
            return
        with suppress(SparklogError), self._admin() as admin:
            for number in sorted(self._throttled):
                admin.alter_broker_configs(number, dict.fromkeys(_RATES))
                self._throttled.remove(number)

    def _change_log_dirs(self, broker: int, moves: Sequence[tuple[int, int]]) -> None:
        log_dirs = self.cluster.brokers[broker].log_dirs
        wishes = {Replica(self._one_of_all(number), broker): str(log_dirs[each]) for number, each in moves}
        with suppress(SparklogError), self._admin() as admin:
            admin.alter_replica_log_dirs(wishes)

    def _harm_actor(self, number: int, kills: bool) -> None:
        slot = self.slots[number % len(self.slots)]
        if kills:
            slot.kill()
        else:
            slot.pause()
            self._later(slot.resume)

    # The end

    def _undo_all(self) -> None:
        """Also what lingers from the harm before, under which the present one has begun."""
        self._undone.close()
        self._undone_before.close()
        self.cluster.network.heal()
        if not self.cluster.zookeeper.alive:
            self.cluster.zookeeper.start()
        for broker in self.cluster.brokers:
            _go_on(broker.pid)
            self._start_again(broker)
        for broker in self.cluster.brokers:
            eventually(lambda broker=broker: self._serves(broker), END_S, f"{broker.name} to serve")

    def _serves(self, broker: Any) -> bool:
        self._start_again(broker)  # it may have given up while ZooKeeper was away
        ready: bool = broker.is_ready()
        return ready

    def _heal(self) -> None:
        self._undo_all()
        super()._heal()
        if self.compacts:  # whatever the harms left time for: the clients go on until it is seen
            eventually(lambda: self.cleanings().keys() >= set(COMPACTED), END_S, "a cleaning of each compacted topic")
        if self.has_jobs:
            eventually(lambda: self._jobs.cleaned > 0, END_S, "a cleaning by a job")
            self._jobs.stop()
        if self.reads_files:
            eventually(lambda: self._direct_reader.from_files > 0, END_S, "a read of files")
            self._direct_reader.stop()
        if self.offloads:
            for broker in self._faulty(range(BROKERS)):  # one whose clock is behind deletes nothing
                broker.set_clock(0)
            eventually(lambda: self._offloading.commits() > 1, END_S, "commits to each place")
            eventually(lambda: self._offloading.killed > 0, END_S, "a job to be killed")
            eventually(self._has_drained, END_S, "records to be deleted once they are offloaded")
            self._offloading.stop()

    def _has_drained(self) -> bool:
        with suppress(SparklogError), self._admin() as admin:
            tp = TopicPartition(DRAINED, 0)
            return admin.list_offsets({tp: _EARLIEST})[tp].offset > 0
        return False

    def _settle(self) -> None:
        super()._settle()
        if self.offloads:
            eventually(self._offloading.finish, END_S, "all to be offloaded")

    def _final_log(self, connection: BlockingConnection, tp: TopicPartition) -> dict[str, Any] | None:
        """What was deleted of a topic is told as its place has it."""
        if tp.topic != DRAINED:
            return super()._final_log(connection, tp)
        code, start, _ = wire.list_offset(connection, tp, _EARLIEST)
        found = final_log(connection, tp, start) if code is ErrorCode.NONE else None
        if found is None:
            return None
        deleted = [each for each in self._offloading.batches(tp) if each["offset"] < start]
        return {**found, "start": 0, "batches": [*deleted, *found["batches"]]}

    def _close(self) -> None:
        super()._close()
        if self.offloads:
            logs = [event for event in load(self.history) if event["what"] == "final log"]
            self._offloading.record_reads(self.history, logs)

    @property
    def compared(self) -> list[TopicPartition]:
        """Each replica deletes what is old at its own time."""
        return [tp for tp in super().compared if tp.topic != DRAINED]

    def _homes(self, tp: TopicPartition) -> list[tuple[int, Path | None]]:
        brokers = [self.cluster.brokers[number] for number in sorted(self.watcher.replicas[tp].replicas)]
        return [(broker.broker_id, broker.replica_dir(tp)) for broker in brokers]

    def _is_copied(self) -> bool:
        return super()._is_copied() and not any(broker.future_dirs() for broker in self.cluster.brokers)

    def cleanings(self) -> Counter[str]:
        """How many cleanings were finished, by topic."""
        return Counter(_CLEANED.findall("".join(each.log_path.read_text() for each in self.cluster.brokers)))

    def missed(self) -> Counter[int]:
        """How often others took each broker for gone without waiting for the end of its session."""
        logs = "".join(each.log_path.read_text() for each in self.cluster.brokers)
        return Counter(int(broker) for broker in _MISSED.findall(logs))

    def crashes(self) -> list[str]:
        broken = [each.log_path.name for each in self.cluster.brokers if "Traceback" in each.log_path.read_text()]
        return [*super().crashes(), *broken]


class SecureFire(ByPassword, Fire):
    """On a cluster that lets nobody in without a password or a certificate."""

    is_secure = True
    repeated_by = "SECURE_FIRE_SEEDS"

    @property
    def places(self) -> list[Place]:
        """None before there are passwords to ask with."""
        return super().places if self.cluster.client_file("admin").exists() else []


def burn(run: Fire) -> None:
    """Run, check, and say where the history is if it is a bad one."""
    try:
        run.run()
        assert not run.crashes()
        breaches = check(load(run.history), COPIED)
        told = "\n".join(str(each)[:1000] for each in breaches[:20])
        assert not breaches, f"{len(breaches)} breaches\n{told}"
    except BaseException as error:
        error.add_note(f"{run.repeated_by}={run.seed} repeats it; its history is in {run.history}")
        error.add_note(run.told())
        raise


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
