"""One process of the workload: python -m histories.actor ROLE_JSON.

It writes all it does to its history, and ends at SIGTERM with its work done, at an error at once: whoever started it
starts another, under another name.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from histories.clients import AConsumer, AProducer, ClientFailed, Received, Tp, client
from histories.history import Recorder, now
from histories.rows import row

from sparklog.config.properties import load_properties

T = TypeVar("T")

COMMIT_EVERY_S = 0.3
STEP_S = 0.1
AT_ONCE = 200
ROWS_AT_ONCE = 20
"""As a batch they fit a segment of the table. librdkafka gives up what is refused for its size, and sends what follows
again under a new epoch, so that it may be there twice.
"""
PATIENCE_S = 30.0
KEYS = 20
"""Those of a table that are written again and again."""
LONE = 0.1
"""The share of a table's records whose key nobody writes again."""
TOMBSTONES = 0.2


class Stop:
    """True once SIGTERM has come."""

    def __init__(self) -> None:
        self._told = False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, *_: object) -> None:
        self._told = True

    def __bool__(self) -> bool:
        return self._told


class Actor:
    """What all have: a role, chance, a history."""

    def __init__(self, role: dict[str, Any]) -> None:
        self.role = role
        self.record = Recorder(Path(role["history"]), role["who"])
        self.chance = random.Random(f"{role['seed']} {role['who']}")
        self.stop = Stop()
        self.make_producer, self.make_consumer = client(role["client"])
        self.cluster: dict[str, str] = {"bootstrap.servers": role["bootstrap"]}
        if "client settings" in role:  # a file, so that no password is an argument
            self.cluster = load_properties(Path(role["client settings"])) | self.cluster
        self.acks: str = role.get("acks", "all")
        self.plain: bool = role.get("plain", False)

    def run(self) -> None:
        raise NotImplementedError

    def send(self, producer: AProducer, tp: Tp, value: str, txn: str | None) -> bool:
        topic, partition = tp

        def told(offset: int) -> None:
            self.record("sent", topic=topic, partition=partition, value=value, offset=offset, acks=self.acks)

        how = {"txn": txn, "acks": self.acks, "plain": self.plain}
        self.record("send", topic=topic, partition=partition, value=value, **how)
        return producer.produce(tp, value, told)


class Writer(Actor):
    """Plain records, a few at a time, to partitions drawn by lot; idempotent, unless one replica is to be enough."""

    def run(self) -> None:
        producer: AProducer = self.make_producer(self.cluster, None, 0, self.acks)
        number = 0
        while not self.stop:
            for _ in range(self.chance.randint(1, 4)):
                tp = (self.role["target"], self.chance.randrange(self.role["target partitions"]))
                self.send(producer, tp, f"{self.role['who']}:{number}", None)
                number += 1
            producer.poll(self.role.get("rests", 0.02))
            time.sleep(self.role.get("pauses", 0.0))
            while not self.stop and producer.flush(0) > AT_ONCE:
                producer.poll(STEP_S)
        producer.flush(60)


class Rows(Actor):
    """Draws rows of a table: most of a few keys, some keys a tombstone, some of a key that nobody writes again."""

    def __init__(self, role: dict[str, Any]) -> None:
        super().__init__(role)
        self.number = 0

    def send_row(self, producer: AProducer, txn: str | None) -> None:
        self.number += 1
        name = f"{self.role['who']}:{self.number}"
        place = min(self.chance.randrange(KEYS), self.chance.randrange(KEYS))
        is_lone = self.chance.random() < LONE
        key = f"k{self.role['who']}:{self.number}" if is_lone else f"k{place}"
        tp = (self.role["target"], place % self.role["target partitions"])
        self.send(producer, tp, row(key, name, is_tombstone=self.chance.random() < TOMBSTONES), txn)

    def rest(self, producer: AProducer) -> None:
        producer.poll(self.role.get("rests", 0.02))
        while not self.stop and producer.flush(0) > ROWS_AT_ONCE:
            producer.poll(STEP_S)


class Keeper(Rows):
    """Keeps a table outside transactions."""

    def run(self) -> None:
        producer: AProducer = self.make_producer(self.cluster, None, 0, self.acks, plain=self.plain)
        while not self.stop:
            for _ in range(self.chance.randint(1, 4)):
                self.send_row(producer, None)
            self.rest(producer)
        producer.flush(60)


class Member(Actor):
    """A consumer in a group, and where it stands in each partition; itself the client's listener."""

    def __init__(self, role: dict[str, Any]) -> None:
        super().__init__(role)
        self.positions: dict[Tp, int] = {}
        self.consumer: AConsumer = self.make_consumer(self.cluster, role["source"], role["group"], self, role)
        self.commits = 0

    def assigned(self, partitions: list[Tp]) -> dict[Tp, int]:
        where = self.resume(partitions)
        self.owns()
        return where

    def revoked(self, partitions: list[Tp]) -> None:
        self.leave(partitions)
        self.lost(partitions)

    def leave(self, partitions: list[Tp]) -> None:
        """What a member does while it still owns what it will not own any more."""

    def lost(self, partitions: list[Tp]) -> None:
        for tp in partitions:
            self.positions.pop(tp, None)
        self.owns()

    def owns(self) -> None:
        member, generation = self.consumer.identity()
        partitions = [_name(tp) for tp in self.positions]
        self.record("owns", group=self.role["group"], member=member, generation=generation, partitions=partitions)

    def resume(self, partitions: list[Tp]) -> dict[Tp, int]:
        """Go on where the group has committed."""
        asked = now()
        found = self.consumer.committed(partitions)
        for (topic, partition), offset in found.items():
            place = {"topic": topic, "partition": partition, "offset": offset}
            self.record("resumed", group=self.role["group"], asked=asked, **place)
        self.positions |= found
        return found

    def receive(self) -> list[Received]:
        received = [each for each in self.consumer.receive(STEP_S) if each.tp in self.positions]
        by_partition: dict[Tp, list[list[Any]]] = {}
        for each in received:
            by_partition.setdefault(each.tp, []).append([each.offset, each.value])
        for (topic, partition), records in by_partition.items():
            first, following = self.positions[topic, partition], records[-1][0] + 1
            self.positions[topic, partition] = following
            place = {"topic": topic, "partition": partition, "isolation": self.role["isolation"]}
            self.record("read", first=first, next=following, records=records, **place)
        return received


class Reader(Member):
    """Reads and commits, now and then and when it loses a partition."""

    def run(self) -> None:
        due = time.monotonic() + COMMIT_EVERY_S
        while not self.stop:
            self.receive()
            if time.monotonic() > due:
                self.keep(list(self.positions))
                due = time.monotonic() + COMMIT_EVERY_S
        self.consumer.close()

    def leave(self, partitions: list[Tp]) -> None:
        self.keep(partitions)

    def keep(self, partitions: list[Tp]) -> None:
        offsets = {tp: self.positions[tp] for tp in partitions if tp in self.positions}
        if not offsets:
            return
        self.commits += 1
        name, (member, generation) = f"{self.role['who']} {self.commits}", self.consumer.identity()
        listed = {_name(tp): offset for tp, offset in offsets.items()}
        who = {"group": self.role["group"], "member": member, "generation": generation}
        self.record("keep", id=name, offsets=listed, **who)
        try:
            self.consumer.commit(offsets)
        except ClientFailed as failure:
            self.record("note", text=f"commit {name}: {failure}")
        else:
            self.record("kept", id=name)


class Follower(Member):
    """Reads a table from its start, and its changes. It commits nothing: who is given it anew begins anew."""

    def resume(self, partitions: list[Tp]) -> dict[Tp, int]:
        begun = dict.fromkeys(partitions, 0)
        self.positions |= begun
        return begun

    def run(self) -> None:
        while not self.stop:
            self.receive()
        self.consumer.close()


class Transactions(Actor):
    """Ends transactions."""

    def commit(self, producer: AProducer, txn: str) -> bool:
        self.record("commit", txn=txn)
        self.again(producer.commit)
        self.record("committed", txn=txn)
        return True

    def abort(self, producer: AProducer, txn: str) -> bool:
        self.record("abort", txn=txn)
        self.again(producer.abort)
        self.record("aborted", txn=txn)
        return False

    def again(self, call: Callable[[], T]) -> T:
        """Try as long as the client says that it makes sense, and there is time."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call()
            except ClientFailed as failure:
                self.record("note", text=f"{failure}")
                if not failure.retriable or self.stop or time.monotonic() > deadline:
                    raise
                time.sleep(STEP_S)


class TransactionalKeeper(Rows, Transactions):
    """Keeps a table in transactions, some of which it aborts."""

    def run(self) -> None:
        named = self.role["transactional id"], self.role["transaction timeout ms"]
        producer: AProducer = self.make_producer(self.cluster, *named)
        transactions = 0
        while not self.stop:
            transactions += 1
            self.transact(producer, f"{self.role['who']}#{transactions}")
            self.rest(producer)

    def transact(self, producer: AProducer, txn: str) -> None:
        producer.begin()
        try:
            for _ in range(self.chance.randint(1, 6)):
                self.send_row(producer, txn)
            if self.chance.random() < self.role["aborts"]:
                self.abort(producer, txn)
            else:
                self.commit(producer, txn)
        except ClientFailed as failure:
            self.record("note", text=f"{txn}: {failure}")
            if not failure.abortable:
                raise
            self.abort(producer, txn)


class Copier(Member, Transactions):
    """Consume, copy, produce, in transactions, some of which it aborts."""

    def __init__(self, role: dict[str, Any]) -> None:
        super().__init__(role)
        named = role["transactional id"], role["transaction timeout ms"]
        self.producer: AProducer = self.make_producer(self.cluster, *named)
        self.transactions = 0

    def run(self) -> None:
        while not self.stop:
            received = self.receive()
            if received and not self.copy(received):
                self.consumer.seek(self.resume(list(self.positions)))
        self.consumer.close()

    def copy(self, received: list[Received]) -> bool:
        """One transaction; False if it was aborted, so that all has to be read again."""
        self.transactions += 1
        txn = f"{self.role['who']}#{self.transactions}"
        self.producer.begin()
        try:
            for each in received:
                tp = (self.role["target"], self.chance.randrange(self.role["target partitions"]))
                self.send(self.producer, tp, f"{each.value}@{txn}", txn)
            self.producer.poll(0)
            offsets = {each.tp: self.positions[each.tp] for each in received}
            self.again(lambda: self.producer.send_offsets(offsets, self.consumer))
            if self.chance.random() < self.role["aborts"]:
                return self.abort(self.producer, txn)
            return self.commit(self.producer, txn)
        except ClientFailed as failure:
            self.record("note", text=f"{txn}: {failure}")
            if not failure.abortable:
                raise
            return self.abort(self.producer, txn)


def _name(tp: Tp) -> str:
    return f"{tp[0]}/{tp[1]}"


ROLES = {
    "writer": Writer,
    "reader": Reader,
    "copier": Copier,
    "keeper": Keeper,
    "transactional keeper": TransactionalKeeper,
    "follower": Follower,
}


def main() -> None:
    role = json.loads(sys.argv[1])
    try:
        ROLES[role["role"]](role).run()
    except ClientFailed as failure:
        Recorder(Path(role["history"]), role["who"])("note", text=f"ends: {failure}")
        sys.exit(3)


if __name__ == "__main__":
    main()
