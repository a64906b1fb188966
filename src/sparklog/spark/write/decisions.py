"""Which transactions make up a batch of a scope: decided once, recorded in the topic ``__spark_decisions``.

A record there has the scope as its key and a Decision in JSON as its value; the last one of a scope counts. The decider
writes it in a transaction of the id ``spark-decisions.<scope>``. In the same transaction the group of that name commits
the record's offset, with the batch as its metadata, so two requests find the last decision. The group's offset may
expire; then the partition is searched (``decision_index``).

The decisions of a scope are in one of at most eight partitions: those that its key has while the topic has 1, 2, … 8
partitions. The partition does not depend on how many there are now: the next decisions follow the earlier ones. The
group is asked for all of these partitions, even those that are not known to exist; a search without the group reads all
that exist. A scope without a decision begins in the partition of the present count. So the topic may be created with
any number of partitions and grow at any time. If two of the partitions have decisions, those of the larger count are
later.

Nothing found is not the same as nothing decided: the topic may have been deleted and created again. No transaction of a
scope is committed before the decision that names it. So a resumable scope has lost its decisions, which is an error, if
none is found and the coordinators know a committed transaction of it. Coordinators remember transactions for
``transactional.id.expiration.ms``, seven days.

The reader trusts the group. If the group knows a record, and the record is missing or unreadable, that is an error,
never "nothing was decided". No setting of the client changes what is read, not even its isolation level: a decision
that the group knows is committed, so it is read whatever else is open before it. CRCs are always checked.

When all transactions of a decision have ended, a second record says so (its key is ``\\0finished:<scope>``). It needs
no transaction: it states a fact, which stays true whichever process writes it and whenever it arrives. When brokers
have forgotten the transactional ids, this record proves that the rows are visible.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.admin.transactions import ONGOING
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import earliest_offsets
from sparklog.client.cluster.retry import retrying
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.errors import ApiError, CorruptRecord, DataSourceError, ErrorCode
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.partitioning import partition_for
from sparklog.spark.write.attempt_names import AttemptName, ids_prefix
from sparklog.spark.write.decision_index import DecisionIndex
from sparklog.spark.write.transactions_encoding import decode_transactions, encode_transactions
from sparklog.structs import DECIDER_PREFIX, DECISIONS_TOPIC, TopicPartition

PARTITIONS = 8
_MOST_REPLICAS, _DEFAULT_REPLICAS = 3, -1
_DECIDING, _DECIDED = (ONGOING, "PrepareCommit"), "CompleteCommit"
"""States of a decider's transactional id: during its transaction, and after it."""

_TOPIC_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(100 << 20)}
"""Only whole segments are compacted, and the active one never is."""
NO_BATCH = -1


class Scope(NamedTuple):
    """The sequence of batches that one sink writes.

    ``is_resumable``: a later run may continue it. Otherwise only its driver decides, or a process that finishes it for
    a dead driver.
    """

    name: str
    is_resumable: bool = True

    @property
    def decider_id(self) -> str:
        """The transactional id of the decider, and the group that has the offset of the last decision."""
        return f"{DECIDER_PREFIX}{quote(self.name, safe='')}"

    @property
    def key(self) -> bytes:
        """The key of the records that have its decisions."""
        return self.name.encode()

    @property
    def finished_key(self) -> bytes:
        """The key of the records that say a decision is finished."""
        return b"\0finished:" + self.key


class Decision(NamedTuple):
    """Exactly these transactions make up ``batch``; NO_BATCH means that nothing is decided yet.

    A decider that replays the batch aborts ``aborted``, or has aborted them: no later batch may name them. ``rows`` is
    the number of rows in the batch; None if it is not known, as in a decision that a person has declared.
    """

    batch: int = NO_BATCH
    transactions: tuple[PreparedTransaction, ...] = ()
    aborted: tuple[PreparedTransaction, ...] = ()
    rows: int | None = None
    target: str | None = None
    """The topic of all rows, or BY_COLUMN (``spark/write/options.py``); None if it is not known."""
    topic_id: UUID | None = None
    """The id of ``target`` when it was written to; None if it was not, or rows choose their topics."""

    @property
    def runs(self) -> set[str]:
        """The runs whose tasks wrote the batch."""
        names = (AttemptName.parse(each.transactional_id) for each in self.transactions)
        return {name.run for name in names if name is not None}

    def encode(self) -> bytes:
        return _json(
            version=_VERSION,
            batch=self.batch,
            transactions=encode_transactions(self.transactions),
            aborted=encode_transactions(self.aborted),
            rows=self.rows,
            target=self.target,
            topic_id=None if self.topic_id is None else self.topic_id.hex,
        )

    def encode_finished(self) -> bytes:
        """The value of the record that says its transactions have ended. The first one identifies the decision: no
        other decision has that pair."""
        return _json(version=_VERSION, batch=self.batch, first=list(self.transactions[0]))

    @classmethod
    def decode(cls, value: bytes) -> Decision:
        """The decision in a record. Raises DataSourceError for a record of a later version, or of another program."""
        try:
            fields = json.loads(value)
            decode, rows = _DECODERS[fields["version"]], fields.get("rows")
            named, aborted = (tuple(sorted(decode(fields[name]))) for name in ("transactions", "aborted"))
            topic_id = None if (found := fields.get("topic_id")) is None else UUID(found)
            return cls(int(fields["batch"]), named, aborted, rows, fields.get("target"), topic_id)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise DataSourceError(
            "SPARKLOG_UNKNOWN_DECISION",
            f"topic {DECISIONS_TOPIC} holds a decision that this version cannot read; nothing was committed or aborted:"
            " run the job with the version of sparklog that wrote last, or a later one",
        )


def _decode_first(encoded: Iterable[Any]) -> Iterator[PreparedTransaction]:
    return (PreparedTransaction(*each) for each in encoded)


_VERSION = 2
_DECODERS = {1: _decode_first, _VERSION: decode_transactions}


def _json(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def decisions_config(config: ClientConfig) -> ClientConfig:
    """Only the client's settings for reaching the cluster: its other settings must not affect decisions."""
    return ClientConfig(
        bootstrap_servers=config.bootstrap_servers,
        client_id=config.client_id,
        security_protocol=config.security_protocol,
        security=config.security,
        request_timeout_ms=config.request_timeout_ms,
        connect_timeout_ms=config.connect_timeout_ms,
        api_timeout_ms=config.api_timeout_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
    )


class DecisionLog:
    """Reads decisions, and records which are finished. Creates the topic."""

    def __init__(self, cluster: ClusterMetadata, admin: Admin) -> None:
        self._cluster = cluster
        self._admin = admin
        self._partition_count: int | None = None
        self._partition_by_scope: dict[Scope, TopicPartition] = {}

    def partition_of(self, scope: Scope) -> TopicPartition:
        """The partition of the scope's decisions; for a scope without one, the partition of the first."""
        if scope not in self._partition_by_scope:
            self._committed_by_group(scope)
        if scope not in self._partition_by_scope:
            self._search(scope)
        return self._partition_by_scope[scope]

    def settle_partition(self, scope: Scope) -> None:
        """Choose the partition of the scope without a search, so that the next record there is the last decision.

        It is for a scope whose earlier decisions cannot be read.
        """
        self._committed_by_group(scope)
        self._partition_by_scope.setdefault(scope, self._candidates(scope)[0])

    def _candidates(self, scope: Scope) -> list[TopicPartition]:
        """The topic's partitions that may have decisions of the scope, the latest first."""
        if self._partition_count is None:
            if DECISIONS_TOPIC in self._cluster.fetch([DECISIONS_TOPIC]).errors:
                self._create_topic()
            self._partition_count = min(len(self._cluster.topic(DECISIONS_TOPIC).partitions), PARTITIONS)
        return _possible_partitions(scope, self._partition_count)

    def _search(self, scope: Scope) -> bytes | None:
        """The scope's last decision, found without its group. Also finds its partition."""
        candidates = self._candidates(scope)
        for tp in candidates:
            with _unreadable_is_lost(scope, NO_BATCH):
                value = DecisionIndex(self._cluster, self._admin, tp).last_value(scope.key)
            if value is not None:
                self._partition_by_scope[scope] = tp
                return value
        self._partition_by_scope[scope] = candidates[0]
        return None

    def _create_topic(self) -> None:
        """Create the topic with three replicas or one on each broker; with the cluster's default if it refuses that."""
        wanted = min(len(self._admin.describe_cluster().brokers), _MOST_REPLICAS)
        try:
            self._create_with(wanted)
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
                raise
            self._create_with(_DEFAULT_REPLICAS)

    def _create_with(self, replicas: int) -> None:
        topic = NewTopic(DECISIONS_TOPIC, PARTITIONS, replicas, _TOPIC_SETTINGS)
        try:
            self._admin.create_topics([topic])
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def last_batch(self, scope: Scope) -> int:
        """The last batch that was decided, as the group knows it. It never searches a partition."""
        return self._committed_by_group(scope)[1]

    def last(self, scope: Scope, *, is_own: bool = False) -> Decision:
        """The last decision. It stays the last only if the caller has fenced all other deciders before.

        ``is_own``: the caller has invented the scope, so a decision that the group does not know does not exist. Raises
        DataSourceError if there was a decision that can no longer be read.
        """
        offset, batch = self._committed_by_group(scope)
        if offset >= 0:
            return self._decision_at(scope, offset, batch)
        if is_own:
            self._partition_by_scope[scope] = self._candidates(scope)[0]
            return Decision()
        value = self._search(scope)
        if value is None:
            self._check_nothing_is_committed(scope)
            return Decision()
        return Decision.decode(value)

    def is_over(self, scope: Scope) -> bool:
        """Whether a scope that is not resumable has been decided. Waits while a decider is at work.

        The state of the decider's transactional id tells it, which outlives the scope's record and its group.
        """

        def ask() -> bool:
            found = self._admin.open_transactions([scope.decider_id], also_ended=True).get(scope.decider_id)
            if found is not None and found.state in _DECIDING:
                raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"somebody decides about {scope.name!r}")
            return found is not None and found.state == _DECIDED

        return retrying(self._cluster.backoff(), ask)

    def knows(self, scope: Scope) -> bool:
        """Whether the scope has any record, even one that says that it has no batch."""
        return self._committed_by_group(scope)[0] >= 0 or self._search(scope) is not None

    def has_lost_records(self, scope: Scope) -> bool:
        """Whether a retention has removed records, maybe a decision, from a partition of the scope."""
        earliest = earliest_offsets(self._cluster, self._candidates(scope))
        return any(offset > 0 for offset in earliest.values())

    def _check_nothing_is_committed(self, scope: Scope) -> None:
        """Raises DataSourceError if the scope must have had a decision although none is found.

        The record of a scope that is not resumable is deleted when it is over, so there this proves nothing.
        """
        committed = self._admin.committed_under(ids_prefix(scope.name)) if scope.is_resumable else []
        if committed:
            reason = f"{committed[0]} is committed, and no record says what was decided"
            raise _decision_lost(scope, NO_BATCH, f"{reason}; the topic may have been deleted and made again")

    def _committed_by_group(self, scope: Scope) -> tuple[int, int]:
        """The offset of the last decision and its batch; -1 if the group knows none. Also finds its partition.

        The group is also asked for partitions that the topic is not known to have.
        """
        self._candidates(scope)
        possible = _possible_partitions(scope, PARTITIONS)
        known = self._admin.group_offsets(scope.decider_id, possible, require_stable=True)
        tp = next((each for each in possible if each in known and known[each].offset >= 0), None)
        if tp is None:
            return -1, NO_BATCH
        self._partition_by_scope[scope], stored = tp, known[tp]
        with suppress(ValueError):
            return stored.offset, int(stored.metadata)
        return stored.offset, NO_BATCH

    def _decision_at(self, scope: Scope, offset: int, batch: int) -> Decision:
        """The scope's decision at an offset. The group knows it, so it is committed, whatever is open before it."""
        with _unreadable_is_lost(scope, batch):
            value = self.index(scope).value_at(offset, scope.key)
        if value is None:
            raise _decision_lost(scope, batch, f"{self.partition_of(scope)} has no record of it at offset {offset}")
        decision = Decision.decode(value)
        if decision.batch != batch:
            raise _decision_lost(
                scope, batch, f"{self.partition_of(scope)} has batch {decision.batch} at offset {offset}"
            )
        return decision

    def index(self, scope: Scope) -> DecisionIndex:
        """The index of the scope's partition."""
        return DecisionIndex(self._cluster, self._admin, self.partition_of(scope))

    def note_finished(self, scope: Scope, decision: Decision) -> None:
        """Record that all transactions of a decision have ended. The record is acknowledged on return."""
        builder = RecordBatchBuilder()
        builder.append(self._cluster.clock.now_ms(), scope.finished_key, decision.encode_finished())
        with BatchProducer(self._cluster) as producer:
            producer.send(self.partition_of(scope), bytearray(builder.build()))

    def is_finished(self, scope: Scope, decision: Decision) -> bool:
        """Whether there is a record that all transactions of the decision have ended."""
        with _unreadable_is_lost(scope, decision.batch):
            return self.index(scope).last_value(scope.finished_key) == decision.encode_finished()


def _possible_partitions(scope: Scope, partitions: int) -> list[TopicPartition]:
    """Where a scope may have begun while the topic grew to this many partitions, the latest first."""
    numbers = dict.fromkeys(partition_for(scope.key, count) for count in range(partitions, 0, -1))
    return [TopicPartition(DECISIONS_TOPIC, number) for number in numbers]


@contextmanager
def _unreadable_is_lost(scope: Scope, batch: int) -> Iterator[None]:
    """Turn the error for a missing or damaged record into the one that tells the user what to do."""
    try:
        yield
    except (ApiError, CorruptRecord) as error:
        if isinstance(error, ApiError) and error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        raise _decision_lost(scope, batch, str(error)) from error


def declaration(scope: Scope, batch: int | str) -> str:
    """The command by which a user makes ``batch`` the last one of the scope."""
    return f"sparklog writes declare {shlex.quote(scope.name)} --last-batch {batch}"


def recovery_steps(scope: Scope, batch: int) -> str:
    """The steps by which a user recovers a scope whose last decision is lost. ``batch``: its number, if it is known."""
    known = "BATCH" if batch == NO_BATCH else str(batch)
    return (
        "nothing was committed or aborted. Find out which of the transactions that 'sparklog writes list' shows belong"
        " to a batch that was written, commit those (sparklog txn commit ID), and then declare the last batch:"
        f" {declaration(scope, known)}"
    )


def _decision_lost(scope: Scope, batch: int, reason: str) -> DataSourceError:
    what = "the last decision" if batch == NO_BATCH else f"the decision of batch {batch}"
    return DataSourceError(
        "SPARKLOG_DECISION_LOST",
        f"{what} of scope {scope.name!r} cannot be read: {reason}. Topic {DECISIONS_TOPIC} must be compacted, without a"
        f" retention; {recovery_steps(scope, batch)}",
    )
