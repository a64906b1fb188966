"""A drill on three brokers that have replicas of everything, and are watched in ZooKeeper and on their disks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from histories.drill import COPIERS, END_S, PARTITIONS, READERS, SETTINGS, SOURCE, TARGET, Drill, Slot, Workload
from histories.history import now
from histories.replicas import compacted_replicas, end_of, replicas
from histories.watcher import LOOK_S, Place, Places, Watcher, open_zookeeper

from sparklog.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient

BROKERS = 3
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


class ReplicatedDrill(Drill):
    """What it is run on, and what is done to that, is its subclasses' part."""

    replication = BROKERS
    look_s = LOOK_S
    transaction_timeout_ms: ClassVar[int] = TRANSACTION_TIMEOUT_MS
    watcher: Watcher

    @property
    def zookeeper(self) -> str:
        """Its connect string."""
        raise NotImplementedError

    def open_zookeeper(self) -> ZkClient:
        """A client of it."""
        return open_zookeeper(self.zookeeper)

    @property
    def places(self) -> list[Place]:
        """Where an observer asks each broker."""
        raise NotImplementedError

    @property
    def watched(self) -> list[TopicPartition]:
        """All partitions that there are, when a group and a transaction are."""
        return [*self.partitions, *INTERNAL]

    @property
    def compared(self) -> list[TopicPartition]:
        """Those whose replicas are the same in the end."""
        return self.watched

    def _homes(self, tp: TopicPartition) -> list[tuple[int, Path | None]]:
        """The brokers that are to have the partition, and its directory on each; None where it has none."""
        raise NotImplementedError

    def _mend_brokers(self) -> None:
        """Start those again that have ended by themselves."""

    def _stop_brokers(self) -> None:
        """In order."""
        raise NotImplementedError

    def _roles(self, workload: Workload, common: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        committed = {"isolation": "read_committed"}
        for number, kind in enumerate(workload.kinds):
            mine = {**common, "client": kind}
            yield f"writer-{number}", {**mine, "role": "writer", "rests": RESTS_S, **to(SOURCE)}
            slot = f"copier-{number}"
            named = {"transactional id": slot, "transaction timeout ms": self.transaction_timeout_ms}
            member = {"group": COPIERS, "source": SOURCE, "assignor": workload.copiers, **committed}
            yield slot, {**mine, "role": "copier", "aborts": 0.25, **named, **member, **to(TARGET)}
            group = list(READERS)[number]
            member = {"group": group, "source": TARGET, "assignor": READERS[group], **committed}
            yield f"{group}-0", {**mine, "role": "reader", **member}

    def run(self, seconds: float = 0.0, first: Sequence[str] = ()) -> None:
        places = Places(self.open_zookeeper, lambda: self.places, self.connect)
        with Watcher(self.history, places, self.watched) as self.watcher:
            super().run(seconds, first)

    def _await_whole(self) -> None:
        """Return when all live and have their log directories, nothing moves, and all replicas are in sync."""
        since = now()

        def whole() -> bool:
            self._mend_brokers()
            return self.watcher.is_whole(since)

        eventually(whole, END_S, "all replicas to be in sync")

    def _heal(self) -> None:
        self._await_whole()
        for slot in self.slots:
            if (
                not slot.is_own
            ):  # it may wait forever for a group's coordinator that was replaced (``confluent_client``)
                slot.kill()
        super()._heal()

    def _await_life(self, slots: Sequence[Slot], *, restarted: bool = True) -> None:
        super()._await_life([slot for slot in slots if slot.is_own], restarted=restarted)

    def _is_compacted(self, topic: str) -> bool:
        """Whether replicas of it may have been cleaned: they need not have the same bytes then."""
        return False

    def _close(self) -> None:
        super()._close()
        self._await_whole()
        eventually(self._is_copied, END_S, "the replicas to be equally long")
        self.watcher.stop()
        self._stop_brokers()
        for tp in self.compared:
            homes = {broker_id: home for broker_id, home in self._homes(tp) if home is not None}
            found = (compacted_replicas if self._is_compacted(tp.topic) else replicas)(list(homes.values()))
            for broker_id, fields in zip(homes, found, strict=True):
                promised = self._promised(fields)
                self._record("replica", topic=tp.topic, partition=tp.partition, broker=broker_id, **promised)

    def _promised(self, replica: dict[str, Any]) -> dict[str, Any]:
        """What of a replica must be the same on every broker."""
        return replica

    def _is_copied(self) -> bool:
        def size(home: Path) -> int:
            return sum(path.stat().st_size for path in home.glob("*.log"))

        def length(tp: TopicPartition, home: Path | None) -> int:
            return -1 if home is None else end_of(home) if self._is_compacted(tp.topic) else size(home)

        return all(len({length(tp, home) for _, home in self._homes(tp)}) == 1 for tp in self.compared)


def to(topic: str, partitions: int = 0) -> dict[str, Any]:
    """What a role says of the topic that it writes."""
    return {"target": topic, "target partitions": partitions or PARTITIONS[topic]}
