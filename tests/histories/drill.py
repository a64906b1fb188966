"""A cluster, the actors on it, what is done to both, and what is in the log in the end: one history from one seed."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

from histories.history import Recorder, load, now
from integration import wire

from sparklog.clock import SystemClock
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, RemoteProtocolError
from sparklog.local.process import ChildProcess
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeTransactionsRequest, OffsetFetchRequest
from sparklog.record.control import ControlType, read_marker
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

SOURCE, TARGET = "source", "target"
PARTITIONS = {SOURCE: 3, TARGET: 2}
COPIERS = "copiers"
READERS = {"eager": "range", "cooperative": "cooperative-sticky"}
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
ACTORS = ("kill_actor", "kill_actor", "pause_actor", "let_actors_go_on", "let_actors_go_on")
HARMS = (*ACTORS, "kill_broker", "pause_broker", "restart_broker", "lose_session")
END_S = 90.0
REAP_S = 40.0
"""An actor that does not end by then is killed like many before it: its client may wait for longer than makes sense."""
_OFTEN_S = 0.05
_AWAY = (ConnectionFailed, RemoteProtocolError, ApiError)
TESTS = Path(__file__).parents[1]


def roles(seed: int, bootstrap: str, history: Path, client: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every actor's slot and role."""
    common = {"seed": seed, "bootstrap": bootstrap, "history": str(history), "client": client}
    target = {"target": TARGET, "target partitions": PARTITIONS[TARGET]}
    for number in range(2):
        written = {"target": SOURCE, "target partitions": PARTITIONS[SOURCE]}
        yield f"writer-{number}", {**common, "role": "writer", **written}
    for number in range(2):
        slot = f"copier-{number}"
        member = {"group": COPIERS, "source": SOURCE, "isolation": "read_committed", "assignor": "range"}
        yield slot, {**common, "role": "copier", "transactional id": slot, "aborts": 0.25, **member, **target}
    for group, assignor in READERS.items():
        for number in range(2):
            slot = f"{group}-{number}"
            member = {"group": group, "source": TARGET, "isolation": "read_committed", "assignor": assignor}
            member["instance"] = slot if number == 0 else None
            yield slot, {**common, "role": "reader", **member}


class Slot:
    """A place for one actor after another."""

    def __init__(self, name: str, role: dict[str, Any], logs: Path) -> None:
        self.name = name
        self._role = role
        paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._child = ChildProcess(name, logs / f"{name}.log", environ={"PYTHONPATH": paths})
        self._lives = 0
        self.paused = False

    def start(self) -> None:
        self._lives += 1
        role = {**self._role, "who": f"{self.name}.{self._lives}"}
        self._child.spawn([sys.executable, "-m", "histories.actor", json.dumps(role)])

    def revive(self) -> None:
        if not self._child.alive:
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

    def reap(self) -> None:
        self._child.reap(REAP_S)


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
        while not self._stopping.wait(_OFTEN_S):
            for address in self._drill.addresses:
                with suppress(*_AWAY), wire.connect(address, timeout=5.0) as connection:
                    self._observe(connection)

    def _observe(self, connection: BlockingConnection) -> None:
        for tp in self._drill.partitions:
            asked = now()
            found = wire.fetch(connection, tp, 0, partition_max_bytes=1)
            if found.error is ErrorCode.NONE:
                marks = {"high": found.high_watermark, "stable": found.last_stable_offset}
                self._record("observed", asked=asked, topic=tp.topic, partition=tp.partition, **marks)


class Drill:
    """``home`` keeps everything: the cluster, ``logs`` of the actors, ``history``."""

    def __init__(self, home: Path, seed: int, brokers: int = 1, client: str = "confluent") -> None:
        self.history = home / "history"
        self.history.mkdir(parents=True)
        self._chance = Random(seed)
        self._record = Recorder(self.history, "drill")
        self._clock = SystemClock()
        self.cluster = ClusterHarness(home / "cluster", brokers, SETTINGS)
        self.partitions = [TopicPartition(topic, each) for topic, count in PARTITIONS.items() for each in range(count)]
        named = roles(seed, self.cluster.bootstrap_servers, self.history, client)
        self._logs = home / "logs"
        self.slots = [Slot(name, role, self._logs) for name, role in named]

    @property
    def addresses(self) -> list[str]:
        return [broker.address for broker in self.cluster.brokers]

    def run(self, seconds: float, first: Sequence[str] = ()) -> None:
        """Start all, do harm (``first`` what is named, then for so long what chance names), heal, let all end, and
        write down what there is."""
        with self.cluster:
            eventually(self._made_topics, 30, "the topics")
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
        """The actors that ended in a way that no harm explains."""
        return [path.name for path in sorted(self._logs.glob("*.log")) if "Traceback" in path.read_text()]

    def _made_topics(self) -> bool:
        for address in self.addresses:
            with suppress(*_AWAY), wire.connect(address) as connection:
                answers = {wire.create_topic(connection, name, count)[0] for name, count in PARTITIONS.items()}
                if answers <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    return True
        return False

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

    def _kill_copiers(self) -> None:
        """librdkafka may wait forever for a group's coordinator that was replaced while it waited (``actor``)."""
        for slot in self.slots:
            if slot.name.startswith("copier"):
                slot.resume()
                slot.kill()
                slot.start()

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

    def _works(self, since: int) -> bool:
        """Whether records were written and copied and offsets committed since then; what ended is started again."""
        for slot in self.slots:
            slot.revive()
        self._clock.sleep(_OFTEN_S)
        done = {event["what"] for event in load(self.history) if event["at"] > since}
        return {"sent", "committed", "aborted", "kept"} <= done

    def _end(self) -> None:
        for slot in self.slots:
            slot.stop()
        for slot in self.slots:
            slot.reap()

    def _close(self) -> None:
        """When no transaction is open any more: the logs, and what the groups have committed."""
        eventually(lambda: all(map(self._settled, ("copier-0", "copier-1"))), END_S, "the transactions to end")
        for tp in self.partitions:
            eventually(lambda tp=tp: self._dumped(tp), END_S, f"all of {tp}")
        for group in (COPIERS, *READERS):
            eventually(lambda group=group: self._fetched(group), END_S, f"the offsets of {group}")

    def _settled(self, transactional_id: str) -> bool:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        for address in self.addresses:
            with suppress(*_AWAY), wire.connect(address) as connection:
                (state,) = connection.request(ApiKey.DESCRIBE_TRANSACTIONS, lambda _: request).transaction_states
                if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    return True
                if state.error_code == 0:
                    return str(state.transaction_state) in ("Empty", "CompleteCommit", "CompleteAbort")
        return False

    def _dumped(self, tp: TopicPartition) -> bool:
        for address in self.addresses:
            with suppress(*_AWAY), wire.connect(address) as connection:
                batches: list[dict[str, Any]] = []
                offset, end = 0, 1
                while offset < end:
                    found = wire.fetch(connection, tp, offset)
                    if found.error is not ErrorCode.NONE:
                        break
                    batches += [_described(batch) for chunk in found.records for batch in iter_batches(chunk)]
                    offset, end = batches[-1]["last"] + 1 if batches else 0, found.high_watermark
                else:
                    place = {"topic": tp.topic, "partition": tp.partition}
                    self._record("final log", start=0, end=end, batches=batches, **place)
                    return True
        return False

    def _fetched(self, group: str) -> bool:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None, member_epoch=-1)
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        for address in self.addresses:
            with suppress(*_AWAY), wire.connect(address) as connection:
                (found,) = connection.request(ApiKey.OFFSET_FETCH, lambda _: request, ceiling=8).groups
                parts = [(topic.name, part) for topic in found.topics for part in topic.partitions]
                if found.error_code or any(part.error_code for _, part in parts):
                    continue
                offsets = {f"{name}/{part.partition_index}": part.committed_offset for name, part in parts}
                self._record("final offsets", group=group, offsets=offsets)
                return True
        return False


def _described(batch: Any) -> dict[str, Any]:
    kind = "transactional" if batch.is_transactional else "plain"
    values = []
    if batch.is_control:
        kind = "commit" if read_marker(batch).type is ControlType.COMMIT else "abort"
    else:
        values = [bytes(record.value).decode() for record in iter_records(batch)]
    return {
        "offset": batch.base_offset,
        "last": batch.last_offset,
        "producer": batch.producer_id,
        "epoch": batch.producer_epoch,
        "kind": kind,
        "values": values,
    }
