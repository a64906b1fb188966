"""A cluster, the actors on it, what is done to both, and what is in the log in the end: one history from one seed."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any, ClassVar, NamedTuple

from histories.checker import check
from histories.clients import CLIENTS, OWN
from histories.history import Progress, Recorder, load, now
from histories.replicas import kind_of
from histories.rows import from_wire
from integration import wire

from sparklog.client.cluster.config import ClientConfig
from sparklog.clock import SystemClock
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, RemoteProtocolError
from sparklog.local.process import ChildProcess
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeTransactionsRequest, OffsetFetchRequest
from sparklog.record.records import iter_batches, iter_records
from sparklog.security.connecting import ConnectionSecurity
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness, SecureClusterHarness
from sparklog.testing.eventually import eventually

SOURCE, TARGET = "source", "target"
PARTITIONS = {SOURCE: 3, TARGET: 2}
COPIERS = "copiers"
COPIED = {COPIERS: (SOURCE, TARGET)}
READERS = {"eager": "range", "cooperative": "cooperative-sticky"}
TRANSACTION_TIMEOUT_MS = 6000
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
ACTORS = ("kill_actor", "kill_actor", "pause_actor", "let_actors_go_on", "let_actors_go_on")
HARMS = (*ACTORS, "kill_broker", "pause_broker", "restart_broker", "lose_session")
END_S = 150.0
REAP_S = 40.0
"""An actor that does not end by then is killed like many before it: its client may wait for longer than makes sense."""
_SIGNS = {
    "writer": "sent",
    "keeper": "sent",
    "transactional keeper": "committed",
    "copier": "committed",
    "reader": "kept",
    "follower": "read",
}
_OFTEN_S = 0.05
_AWAY = (ConnectionFailed, RemoteProtocolError, ApiError)
TESTS = Path(__file__).parents[1]


class Workload(NamedTuple):
    """Who takes part: the actors of each sort take turns in the ``kinds`` of clients."""

    kinds: Sequence[str] = tuple(CLIENTS)
    copiers: str = READERS["eager"]
    """The copiers' strategy of assignment."""
    own_transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS


def roles(workload: Workload, common: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every actor's slot and role."""
    for number in range(2):
        mine = {**common, "client": workload.kinds[number % len(workload.kinds)]}
        written = {"target": SOURCE, "target partitions": PARTITIONS[SOURCE]}
        yield f"writer-{number}", {**mine, "role": "writer", **written}
        slot = f"copier-{number}"
        mine |= {"isolation": "read_committed"}
        member = {"group": COPIERS, "source": SOURCE, "assignor": workload.copiers}
        target = {"target": TARGET, "target partitions": PARTITIONS[TARGET]}
        timeout = workload.own_transaction_timeout_ms if mine["client"] == OWN else TRANSACTION_TIMEOUT_MS
        named = {"transactional id": slot, "transaction timeout ms": timeout}
        yield slot, {**mine, "role": "copier", "aborts": 0.25, **named, **member, **target}
        for group, assignor in READERS.items():
            slot = f"{group}-{number}"
            member = {"group": group, "source": TARGET, "assignor": assignor}
            member["instance"] = slot if number == 0 else None
            yield slot, {**mine, "role": "reader", **member}


class Slot:
    """A place for one actor after another."""

    def __init__(self, name: str, role: dict[str, Any], logs: Path) -> None:
        self.name = name
        self._role = role
        paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._child = ChildProcess(name, logs / f"{name}.log", environ={"PYTHONPATH": paths})
        self._lives = 0
        self.paused = False
        self.held = False
        """Kept from starting again."""

    @property
    def who(self) -> str:
        """The name of the actor that is there now."""
        return f"{self.name}.{self._lives}"

    @property
    def is_own(self) -> bool:
        return str(self._role["client"]) == OWN

    @property
    def is_copier(self) -> bool:
        return str(self._role["role"]) == "copier"

    @property
    def sign_of_life(self) -> str:
        """What it tells of again and again as long as it does its work."""
        return _SIGNS[self._role["role"]]

    def start(self) -> None:
        self._lives += 1
        role = {**self._role, "who": self.who}
        self._child.spawn([sys.executable, "-m", "histories.actor", json.dumps(role)])

    def revive(self) -> None:
        if not self._child.alive and not self.held:
            self.start()

    def kill(self) -> None:
        self._child.kill()

    def pause(self) -> None:
        self.paused = True
        _signal(self._child.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            _signal(self._child.pid, signal.SIGCONT)

    def stop(self) -> None:
        self._child.terminate()

    def reap(self) -> bool:
        """Whether it ended by itself."""
        self._child.reap(REAP_S)
        return "SIGKILL" not in self._child.fate


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Observer:
    """Asks every partition for its watermarks, again and again, from whoever leads it."""

    def __init__(self, drill: Drill) -> None:
        self._drill = drill
        self._record = Recorder(drill.history, "observer")
        self._stopping = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._drill.look_s):
            for address in self._drill.observed:
                with suppress(*_AWAY), self._drill.connect(address, 5.0) as connection:
                    self._observe(connection, address)

    def _observe(self, connection: BlockingConnection, address: str) -> None:
        for tp in self._drill.partitions:
            asked, term = now(), self._drill.term(address, tp)
            found = wire.fetch(connection, tp, 0, partition_max_bytes=1)
            if found.error is ErrorCode.NONE and self._drill.term(address, tp) == term:
                marks = {"high": found.high_watermark, "stable": found.last_stable_offset, "term": term}
                marks["first life"] = self._drill.is_in_first_life(address)
                self._record("observed", asked=asked, topic=tp.topic, partition=tp.partition, **marks)


class Drill:
    """``home`` keeps everything: the cluster, ``logs`` of the actors, ``history``."""

    topics: Mapping[str, int] = PARTITIONS
    """How many partitions each has."""
    replication: ClassVar[int] = 1
    look_s: ClassVar[float] = _OFTEN_S
    """How long an observer rests."""
    groups: ClassVar[Sequence[str]] = (COPIERS, *READERS)
    transactional_ids: Sequence[str] = ("copier-0", "copier-1")

    def __init__(self, home: Path, seed: int, brokers: int, workload: Workload) -> None:
        self.history = home / "history"
        self.history.mkdir(parents=True)
        self._chance = Random(seed)
        self._record = Recorder(self.history, "drill")
        self._progress = Progress(self.history)
        self._clock = SystemClock()
        self.cluster = self._make_cluster(home / "cluster", brokers)
        self.partitions = [TopicPartition(topic, each) for topic, count in self.topics.items() for each in range(count)]
        bootstrap = self.cluster.bootstrap_servers
        named = self._roles(workload, {"seed": seed, "bootstrap": bootstrap, "history": str(self.history)})
        self._logs = home / "logs"
        self.slots = [Slot(name, role, self._logs) for name, role in named]
        self._hung: list[str] = []

    def _make_cluster(self, home: Path, brokers: int) -> Any:
        return ClusterHarness(home, brokers, SETTINGS)

    @property
    def administrator(self) -> Mapping[str, str]:
        """The settings of a client that may do everything, but for the brokers' addresses."""
        return {}

    def connect(self, address: str, timeout: float = 60.0) -> BlockingConnection:
        """As this client."""
        return wire.connect(address, timeout)

    def _roles(self, workload: Workload, common: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        return roles(workload, common)

    @property
    def observed(self) -> list[str]:
        """Whom to ask for watermarks."""
        return self.addresses

    def is_in_first_life(self, address: str) -> bool:
        """Whether the broker knows of all transactions, as ``checker`` says in 10; with one broker it always does."""
        return True

    def term(self, address: str, tp: TopicPartition) -> str | None:
        """Within what none of the watermarks moves back that it tells of the partition: None for the whole history."""
        return None

    @property
    def addresses(self) -> list[str]:
        return [broker.address for broker in self.cluster.brokers]

    def run(self, seconds: float, first: Sequence[str] = ()) -> None:
        """Start all, do harm (``first`` what is named, then for so long what chance names), heal, let all end, and
        write down what there is."""
        with self.cluster:
            eventually(self._made_topics, 60, "the topics")
            for slot in self.slots:
                slot.start()
            try:
                with Observer(self):
                    self._harm(seconds, first)
                    self._heal()
                    self._end()
                    self._close()
            finally:
                for slot in self.slots:
                    slot.resume()
                    slot.kill()

    def crashes(self) -> list[str]:
        """The actors that ended in a way that no harm explains, and those of ours that did not end."""
        return [
            *(path.name for path in sorted(self._logs.glob("*.log")) if "Traceback" in path.read_text()),
            *(f"{who} hung" for who in self._hung),
        ]

    def _made_topics(self) -> bool:
        for address in self.addresses:
            with suppress(*_AWAY), self.connect(address) as connection:
                answers = {
                    wire.create_topic(connection, name, count, self._configs(name), self.replication)[0]
                    for name, count in self.topics.items()
                }
                if answers <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    return True
        return False

    def _configs(self, topic: str) -> Mapping[str, str]:
        return {}

    def _harm(self, seconds: float, first: Sequence[str]) -> None:
        eventually(lambda: self._works(0), END_S, "something to harm")
        for name in first:
            self._do(name)
        deadline = self._clock.monotonic() + seconds
        while self._clock.monotonic() < deadline:
            self._do(self._chance.choice(HARMS))
            self._clock.sleep(self._chance.uniform(0.3, 1.5))

    def _do(self, name: str) -> None:
        for slot in self.slots:
            slot.revive()
        self._record("fault", text=f"{name} begins")
        getattr(self, f"_{name}")()
        self._record("fault", text=f"{name} ends")

    def _kill_actor(self) -> None:
        slot = self._chance.choice(self.slots)
        slot.resume()
        slot.kill()
        slot.start()

    def _kill_broker_under_own_copiers(self) -> None:
        """They go on with their work: none has to be started again. librdkafka's are kept out of this, because one may
        wait forever for a group's coordinator that was replaced while it waited (``confluent_client``)."""
        copiers = [slot for slot in self.slots if slot.is_copier]
        for slot in copiers:
            slot.resume()
            slot.held = not slot.is_own
            if slot.held:  # it may end its transaction: ours would wait for its offsets
                slot.stop()
                slot.reap()
        own = [slot for slot in copiers if slot.is_own]
        self._await_life(own)
        self._kill_broker()
        self._await_life(own, restarted=False)
        for slot in copiers:
            slot.held = False

    def _await_life(self, slots: Sequence[Slot], *, restarted: bool = True) -> None:
        """Return when each of them does its work, from now on; with ``restarted`` what ends is started again."""
        since = now()

        def live() -> bool:
            if restarted:
                for slot in slots:
                    slot.revive()
            signs = self._progress.since(since)
            return all((slot.who, slot.sign_of_life) in signs for slot in slots)

        eventually(live, END_S, f"{[slot.who for slot in slots]} to work")

    def _pause_actor(self) -> None:
        self._chance.choice(self.slots).pause()

    def _let_actors_go_on(self) -> None:
        for slot in self.slots:
            slot.resume()

    def _kill_broker(self) -> None:
        broker = self._chance.choice(self.cluster.brokers)
        broker.kill()
        self._clock.sleep(self._chance.choice([0.0, 1.0]))
        broker.start()

    def _restart_broker(self) -> None:
        broker = self._chance.choice(self.cluster.brokers)
        broker.stop()
        broker.start()

    def _pause_broker(self, seconds: float = 1.0) -> None:
        broker = self._chance.choice(self.cluster.brokers)
        _signal(broker.pid, signal.SIGSTOP)
        self._clock.sleep(seconds)
        _signal(broker.pid, signal.SIGCONT)

    def _lose_session(self) -> None:
        """ZooKeeper's session timeout is 3 s: its broker is given up, its members and transactions too."""
        self._pause_broker(5.0)

    def _heal(self) -> None:
        for slot in self.slots:
            slot.resume()
        self._record("fault", text="healed")
        healed = now()
        eventually(lambda: self._works(healed), END_S, "all to work again")
        self._await_life([slot for slot in self.slots if slot.is_own or slot.is_copier])

    def _works(self, since: int) -> bool:
        """Whether records were written and copied and offsets committed since then; what ended is started again."""
        for slot in self.slots:
            slot.revive()
        self._clock.sleep(_OFTEN_S)
        done = {what for _, what in self._progress.since(since)}
        return {"sent", "committed", "aborted", "kept"} <= done

    def _end(self) -> None:
        for slot in self.slots:
            slot.stop()
        for slot in self.slots:
            if not slot.reap() and slot.is_own:
                self._hung.append(slot.who)

    def _close(self) -> None:
        """When no transaction is open any more: the logs, and what the groups have committed."""
        self._settle()
        for tp in self.partitions:
            eventually(lambda tp=tp: self._dumped(tp), END_S, f"all of {tp}")
        for group in self.groups:
            eventually(lambda group=group: self._fetched(group), END_S, f"the offsets of {group}")

    def _settle(self) -> None:
        eventually(lambda: all(map(self._settled, self.transactional_ids)), END_S, "the transactions to end")

    def _settled(self, transactional_id: str) -> bool:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        for address in self.addresses:
            with suppress(*_AWAY), self.connect(address) as connection:
                (state,) = connection.request(ApiKey.DESCRIBE_TRANSACTIONS, lambda _: request).transaction_states
                if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    return True
                if state.error_code == 0:
                    return str(state.transaction_state) in ("Empty", "CompleteCommit", "CompleteAbort")
        return False

    def _dumped(self, tp: TopicPartition) -> bool:
        for address in self.addresses:
            with suppress(*_AWAY), self.connect(address) as connection:
                found = self._final_log(connection, tp)
                if found is not None:
                    self._record("final log", **found)
                    return True
        return False

    def _final_log(self, connection: BlockingConnection, tp: TopicPartition) -> dict[str, Any] | None:
        return final_log(connection, tp)

    def _fetched(self, group: str) -> bool:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None, member_epoch=-1)
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        for address in self.addresses:
            with suppress(*_AWAY), self.connect(address) as connection:
                (found,) = connection.request(ApiKey.OFFSET_FETCH, lambda _: request, ceiling=8).groups
                parts = [(topic.name, part) for topic in found.topics for part in topic.partitions]
                if found.error_code or any(part.error_code for _, part in parts):
                    continue
                offsets = {f"{name}/{part.partition_index}": part.committed_offset for name, part in parts}
                self._record("final offsets", group=group, offsets=offsets)
                return True
        return False


def drill(run: Drill, seed: int, seconds: float, first: Sequence[str] = ()) -> Counter[str]:
    """Run, check, and say where the history is if it is a bad one. Returns how many events of each kind there are."""
    try:
        run.run(seconds, first)
        assert not run.crashes()
        events = load(run.history)
        breaches = check(events, COPIED)
        assert not breaches, "\n".join(map(str, [f"{len(breaches)} breaches", *breaches[:20]]))
    except BaseException as error:
        error.add_note(f"seed {seed}; HISTORY_SEEDS={seed} repeats it; its history is in {run.history}")
        raise
    return Counter(event["what"] for event in events)


class ByPassword(Drill):
    """On a cluster that lets nobody in without a password. The actors are spark; the drill itself is admin."""

    @property
    def administrator(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.cluster.client("admin")
        return found

    def _roles(self, workload: Workload, common: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        return super()._roles(workload, {**common, "client settings": str(self.cluster.client_file("spark"))})

    def connect(self, address: str, timeout: float = 60.0) -> BlockingConnection:
        return wire.connect(address, timeout, self._security)

    @cached_property
    def _security(self) -> ConnectionSecurity:
        return ClientConfig.from_properties(self.administrator).connection_security(self._clock)


class SecureDrill(ByPassword):
    """On the cluster of ``sparklog up --secure``."""

    def _make_cluster(self, home: Path, brokers: int) -> SecureClusterHarness:
        return SecureClusterHarness(home, brokers, SETTINGS)


def final_log(connection: BlockingConnection, tp: TopicPartition, start: int = 0) -> dict[str, Any] | None:
    """The fields of a ``final log`` event; None if this broker does not lead the partition now, or it begins later.

    Behind the last batch of a compacted log there may be offsets whose records are gone.
    """
    batches: list[dict[str, Any]] = []
    offset, end, is_more = start, start + 1, True
    while offset < end and is_more:
        found = wire.fetch(connection, tp, offset, version=wire.OF_LEADERS)
        if found.error is not ErrorCode.NONE:
            return None
        more = [described_batch(batch) for chunk in found.records for batch in iter_batches(chunk)]
        batches, is_more = batches + more, bool(more)
        offset, end = batches[-1]["last"] + 1 if batches else start, found.high_watermark
    return {"topic": tp.topic, "partition": tp.partition, "start": start, "end": end, "batches": batches}


def described_batch(batch: Any) -> dict[str, Any]:
    """As a ``final log`` event tells it."""
    records = [] if batch.is_control else list(iter_records(batch))
    return {
        "offset": batch.base_offset,
        "last": batch.last_offset,
        "producer": batch.producer_id,
        "epoch": batch.producer_epoch,
        "leader epoch": batch.partition_leader_epoch,
        "kind": kind_of(batch),
        "values": [from_wire(record.key, record.value, record.headers) for record in records],
        "offsets": [record.offset for record in records],
    }
