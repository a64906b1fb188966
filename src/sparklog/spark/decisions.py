"""Which transactions make up a batch of a scope: decided once, remembered in the topic ``__spark_decisions``.

A record there has the scope for its key and a Decision in JSON for its value; the last one of a scope counts. It is
written in a transaction of the id ``spark-decisions.<scope>``, and in the same transaction the group of that name
commits the record's offset, with the batch for its metadata: so the last decision is found with two questions. The
group's offset may expire; then the partition is read from its beginning.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

from sparklog.client.admin import Admin, NewTopic
from sparklog.client.fetcher import fetch_range
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.offsets import earliest_offsets, latest_offsets
from sparklog.client.prepared_admin import PreparedTransaction
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.record.batch import RecordBatch
from sparklog.record.partitioning import partition_for
from sparklog.record.records import Record, iter_records
from sparklog.spark.attempt_names import AttemptName
from sparklog.structs import IsolationLevel, TopicPartition

_log = logging.getLogger(__name__)

DECISIONS_TOPIC = "__spark_decisions"
PARTITIONS = 8
_MOST_REPLICAS = 3
_VERSION = 1

NO_BATCH = -1


class Scope(NamedTuple):
    """One sink. ``lasts``: somebody may come back to it; one that does not is looked for by its group alone."""

    name: str
    lasts: bool = True

    @property
    def decider_id(self) -> str:
        """The transactional id of whoever decides, and the group that knows where the last decision is."""
        return f"spark-decisions.{quote(self.name, safe='')}"


class Decision(NamedTuple):
    """The transactions that make up ``batch``, and no others; NO_BATCH where nothing was decided yet.

    ``aborted`` are those that somebody who replays the batch aborts, or has aborted: no later batch may name them.
    """

    batch: int = NO_BATCH
    transactions: tuple[PreparedTransaction, ...] = ()
    aborted: tuple[PreparedTransaction, ...] = ()

    @property
    def runs(self) -> set[str]:
        """The runs whose tasks wrote the batch."""
        names = (AttemptName.parse(each.transactional_id) for each in self.transactions)
        return {name.run for name in names if name is not None}

    def encode(self) -> bytes:
        return json.dumps({"version": _VERSION, **self._asdict()}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Decision:
        """Raises DataSourceError for a record of a later version, or of somebody else."""
        try:
            fields = json.loads(value)
            if fields["version"] == _VERSION:
                named = (fields["transactions"], fields["aborted"])
                return cls(
                    int(fields["batch"]), *(tuple(PreparedTransaction(*each) for each in those) for those in named)
                )
        except (ValueError, KeyError, TypeError):
            pass
        raise DataSourceError(
            "SPARKLOG_UNKNOWN_DECISION", f"topic {DECISIONS_TOPIC} holds a decision that this version cannot read"
        )


class DecisionLog:
    """Reads decisions; changes nothing but that it creates the topic."""

    def __init__(self, cluster: ClusterMetadata, admin: Admin) -> None:
        self._cluster = cluster
        self._admin = admin
        self._partitions: int | None = None

    def place(self, scope: Scope) -> TopicPartition:
        """The partition with the scope's decisions; partitions that somebody has added since have none."""
        if self._partitions is None:
            if DECISIONS_TOPIC in self._cluster.fetch([DECISIONS_TOPIC]).errors:
                self._create_topic()
            self._partitions = min(len(self._cluster.topic(DECISIONS_TOPIC).partitions), PARTITIONS)
        return TopicPartition(DECISIONS_TOPIC, partition_for(scope.name.encode(), self._partitions))

    def _create_topic(self) -> None:
        replicas = min(len(self._admin.describe_cluster().brokers), _MOST_REPLICAS)
        topic = NewTopic(DECISIONS_TOPIC, PARTITIONS, replicas, {"cleanup.policy": "compact"})
        try:
            self._admin.create_topics([topic])
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def last_batch(self, scope: Scope) -> int:
        """The last batch that was decided, as far as the group knows; quick."""
        return self._known_to_group(scope)[1]

    def last(self, scope: Scope) -> Decision:
        """The last decision; whoever needs it to stay the last has fenced all others first."""
        place = self.place(scope)
        offset, batch = self._known_to_group(scope)
        found = self._at(scope, place, offset) if offset >= 0 else None
        if found is None and scope.lasts:
            found = self._scanned(scope, place)
        if scope.lasts and batch != NO_BATCH and (found is None or found.batch < batch):
            _log.error(
                "the record of batch %d of scope %s is gone from %s, which must be compacted, without a retention; what"
                " the batch wrote is visible if its driver came to an end, and aborted now if it is open",
                batch,
                scope.name,
                place,
            )
        return Decision(batch) if found is None or found.batch < batch else found

    def _known_to_group(self, scope: Scope) -> tuple[int, int]:
        place = self.place(scope)
        stored = self._admin.group_offsets(scope.decider_id, [place], require_stable=True).get(place)
        if stored is None or stored.offset < 0:
            return -1, NO_BATCH
        with suppress(ValueError):
            return stored.offset, int(stored.metadata)
        return stored.offset, NO_BATCH

    def _at(self, scope: Scope, place: TopicPartition, offset: int) -> Decision | None:
        """The scope's decision at an offset: committed, since the group knows it, so nobody else is waited for."""
        first = earliest_offsets(self._cluster, [place])[place]
        last = latest_offsets(self._cluster, [place])[place]
        if not first <= offset < last:
            return None
        batches = fetch_range(self._cluster, place, offset, offset + 1, isolation=IsolationLevel.READ_UNCOMMITTED)
        return self._of_scope(scope, (each for each in _records(batches) if each.offset == offset))

    def _scanned(self, scope: Scope, place: TopicPartition) -> Decision | None:
        """The scope's last decision in the whole partition; waits until those that others write now are written."""
        first = earliest_offsets(self._cluster, [place])[place]
        last = latest_offsets(self._cluster, [place])[place]
        batches = fetch_range(self._cluster, place, first, last, isolation=IsolationLevel.READ_COMMITTED)
        return self._of_scope(scope, _records(batches))

    def _of_scope(self, scope: Scope, records: Iterable[Record]) -> Decision | None:
        last, key = None, scope.name.encode()
        for record in records:
            if record.key is not None and bytes(record.key) == key:
                last = record.value
        return None if last is None else Decision.decode(bytes(last))


def _records(batches: Iterable[RecordBatch]) -> Iterator[Record]:
    return (record for batch in batches for record in iter_records(batch))
