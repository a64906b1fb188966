"""Which transactions make up a batch of a scope: decided once, remembered in the topic ``__spark_decisions``.

A record there has the scope for its key and a Decision in JSON for its value; the last one of a scope counts. It is
written in a transaction of the id ``spark-decisions.<scope>``, and in the same transaction the group of that name
commits the record's offset, with the batch for its metadata: so the last decision is found with two questions. The
group's offset may expire; then the partition is searched (``decision_index``).

A scope's place is one of at most eight partitions, the ones that its key has when the topic has 1, 2, … 8 of them, and
it never depends on how many there are now: where a decision stands, the next ones follow. It is looked for by the group
in all of these, be they known to exist or not, and without the group in all that exist. Only a scope of which nothing
is found begins in the partition of the present count. So the topic may be made with any number of partitions and be
given more at any time. Should decisions stand in two of the places, those of the larger count are the later ones.

Nothing found is not the same as nothing decided: the topic may have been deleted and made again. No transaction of a
scope is committed before the decision that names it. So a scope that lasts, of which nothing is found and of which the
coordinators know a committed transaction, has lost its decisions, and that is an error. Coordinators remember for
``transactional.id.expiration.ms``, seven days.

What a reader believes is what stands there. A record that the group knows and that is not there, or cannot be read, is
an error, never "nothing was decided". Neither the isolation level of whoever writes nor any other setting of its client
changes what is read: a decision that the group knows is committed, so it is read whatever else is open before it, and
CRCs are checked always.

When all transactions of a decision have ended, a second record says so (the key is ``\\0finished:<scope>``), outside
any transaction: it states a fact, which stays true whoever writes it and whenever it arrives. It is what proves, when
brokers have forgotten the transactional ids, that the rows are visible.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import quote

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
from sparklog.structs import TopicPartition

DECISIONS_TOPIC = "__spark_decisions"
GROUP_PREFIX = "spark-decisions."
"""How the group, and the transactional id, of a scope begins."""
PARTITIONS = 8
_MOST_REPLICAS, _DEFAULT_REPLICAS = 3, -1
_DECIDING, _DECIDED = (ONGOING, "PrepareCommit"), "CompleteCommit"
"""States of a decider's id, amid its transaction and after it."""

NO_BATCH = -1


class Scope(NamedTuple):
    """One sink. ``lasts``: somebody may come back to it; else only its driver decides, or who finishes it for that."""

    name: str
    lasts: bool = True

    @property
    def decider_id(self) -> str:
        """The transactional id of whoever decides, and the group that knows where the last decision is."""
        return f"{GROUP_PREFIX}{quote(self.name, safe='')}"

    @property
    def key(self) -> bytes:
        """Of the records of its decisions."""
        return self.name.encode()

    @property
    def finished_key(self) -> bytes:
        """Of the records which say that a decision is finished."""
        return b"\0finished:" + self.key


class Decision(NamedTuple):
    """The transactions that make up ``batch``, and no others; NO_BATCH where nothing was decided yet.

    ``aborted`` are those that somebody who replays the batch aborts, or has aborted: no later batch may name them.
    ``rows`` is how many rows the batch has, where that is known.
    """

    batch: int = NO_BATCH
    transactions: tuple[PreparedTransaction, ...] = ()
    aborted: tuple[PreparedTransaction, ...] = ()
    rows: int | None = None

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
        )

    def encode_finished(self) -> bytes:
        """What says that its transactions have ended. The first names it: no other decision has that pair."""
        return _json(version=_VERSION, batch=self.batch, first=list(self.transactions[0]))

    @classmethod
    def decode(cls, value: bytes) -> Decision:
        """Raises DataSourceError for a record of a later version, or of somebody else."""
        try:
            fields = json.loads(value)
            decode, rows = _DECODERS[fields["version"]], fields.get("rows")
            named, aborted = (tuple(sorted(decode(fields[name]))) for name in ("transactions", "aborted"))
            return cls(int(fields["batch"]), named, aborted, rows)
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
    """How the cluster is reached, of the settings of a client; what else it asks for is no matter of decisions."""
    return ClientConfig(
        bootstrap_servers=config.bootstrap_servers,
        client_id=config.client_id,
        security_protocol=config.security_protocol,
        request_timeout_ms=config.request_timeout_ms,
        connect_timeout_ms=config.connect_timeout_ms,
        api_timeout_ms=config.api_timeout_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
    )


class DecisionLog:
    """Reads decisions, and notes which are finished. Creates the topic."""

    def __init__(self, cluster: ClusterMetadata, admin: Admin) -> None:
        self._cluster = cluster
        self._admin = admin
        self._partitions: int | None = None
        self._places: dict[Scope, TopicPartition] = {}

    def place(self, scope: Scope) -> TopicPartition:
        """The partition with the scope's decisions, as far as it is known by now; else where the first one belongs."""
        if scope not in self._places:
            self._known_to_group(scope)
        if scope not in self._places:
            self._search(scope)
        return self._places[scope]

    def settle(self, scope: Scope) -> None:
        """Have what is written next be the last decision, though those before cannot be searched."""
        self._known_to_group(scope)
        self._places.setdefault(scope, self._candidates(scope)[0])

    def _candidates(self, scope: Scope) -> list[TopicPartition]:
        """Where the scope's decisions may stand, the latest first, of the partitions that the topic has."""
        if self._partitions is None:
            if DECISIONS_TOPIC in self._cluster.fetch([DECISIONS_TOPIC]).errors:
                self._create_topic()
            self._partitions = min(len(self._cluster.topic(DECISIONS_TOPIC).partitions), PARTITIONS)
        return _places(scope, self._partitions)

    def _search(self, scope: Scope) -> bytes | None:
        """The scope's last decision, without its group; settles its place."""
        candidates = self._candidates(scope)
        for place in candidates:
            with _readable(scope, NO_BATCH):
                value = DecisionIndex(self._cluster, self._admin, place).last_value(scope.key)
            if value is not None:
                self._places[scope] = place
                return value
        self._places[scope] = candidates[0]
        return None

    def _create_topic(self) -> None:
        """With the replicas that decisions should have, or where the cluster keeps no so many, with its own default."""
        wanted = min(len(self._admin.describe_cluster().brokers), _MOST_REPLICAS)
        try:
            self._create_with(wanted)
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
                raise
            self._create_with(_DEFAULT_REPLICAS)

    def _create_with(self, replicas: int) -> None:
        topic = NewTopic(DECISIONS_TOPIC, PARTITIONS, replicas, {"cleanup.policy": "compact"})
        try:
            self._admin.create_topics([topic])
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def last_batch(self, scope: Scope) -> int:
        """The last batch that was decided, as far as the group knows; quick."""
        return self._known_to_group(scope)[1]

    def last(self, scope: Scope, *, is_own: bool = False) -> Decision:
        """The last decision; whoever needs it to stay the last has fenced all others first.

        ``is_own``: the caller has made up the scope itself, so what the group does not know does not exist. Raises
        DataSourceError where there was a decision that cannot be read any more.
        """
        offset, batch = self._known_to_group(scope)
        if offset >= 0:
            return self._at(scope, offset, batch)
        if is_own:
            self._places[scope] = self._candidates(scope)[0]
            return Decision()
        value = self._search(scope)
        if value is None:
            self._check_nothing_is_committed(scope)
            return Decision()
        return Decision.decode(value)

    def is_over(self, scope: Scope) -> bool:
        """Whether it is decided about a scope that does not last, by its decider's id, which outlives all else of it.

        Waits while somebody decides.
        """

        def ask() -> bool:
            found = self._admin.open_transactions([scope.decider_id], also_ended=True).get(scope.decider_id)
            if found is not None and found.state in _DECIDING:
                raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"somebody decides about {scope.name!r}")
            return found is not None and found.state == _DECIDED

        return retrying(self._cluster.backoff(), ask)

    def knows(self, scope: Scope) -> bool:
        """Whether anything is recorded of the scope, be it that it has no batch."""
        return self._known_to_group(scope)[0] >= 0 or self._search(scope) is not None

    def has_lost_records(self, scope: Scope) -> bool:
        """Whether records have been removed from a place of the scope by their age or number, its decision maybe."""
        earliest = earliest_offsets(self._cluster, self._candidates(scope))
        return any(offset > 0 for offset in earliest.values())

    def _check_nothing_is_committed(self, scope: Scope) -> None:
        """Raises DataSourceError where a decision about the scope must have been made, of which nothing is found.

        A scope that does not last is forgotten when it is over, so there it proves nothing.
        """
        committed = self._admin.committed_under(ids_prefix(scope.name)) if scope.lasts else []
        if committed:
            reason = f"{committed[0]} is committed, and no record says what was decided"
            raise _lost(scope, NO_BATCH, f"{reason}; the topic may have been deleted and made again")

    def _known_to_group(self, scope: Scope) -> tuple[int, int]:
        """The offset of the last decision and its batch; -1 where the group knows none. Settles its place if it does.

        The group is asked for partitions too that the topic is not known to have.
        """
        self._candidates(scope)
        places = _places(scope, PARTITIONS)
        known = self._admin.group_offsets(scope.decider_id, places, require_stable=True)
        place = next((each for each in places if each in known and known[each].offset >= 0), None)
        if place is None:
            return -1, NO_BATCH
        self._places[scope], stored = place, known[place]
        with suppress(ValueError):
            return stored.offset, int(stored.metadata)
        return stored.offset, NO_BATCH

    def _at(self, scope: Scope, offset: int, batch: int) -> Decision:
        """The scope's decision at an offset: committed, since the group knows it, so nobody else is waited for."""
        with _readable(scope, batch):
            value = self.index(scope).value_at(offset, scope.key)
        if value is None:
            raise _lost(scope, batch, f"{self.place(scope)} has no record of it at offset {offset}")
        decision = Decision.decode(value)
        if decision.batch != batch:
            raise _lost(scope, batch, f"{self.place(scope)} has batch {decision.batch} at offset {offset}")
        return decision

    def index(self, scope: Scope) -> DecisionIndex:
        """Of the scope's partition."""
        return DecisionIndex(self._cluster, self._admin, self.place(scope))

    def note_finished(self, scope: Scope, decision: Decision) -> None:
        """Say that all transactions of a decision have ended; acknowledged on return."""
        builder = RecordBatchBuilder()
        builder.append(self._cluster.clock.now_ms(), scope.finished_key, decision.encode_finished())
        with BatchProducer(self._cluster) as producer:
            producer.send(self.place(scope), bytearray(builder.build()))

    def is_finished(self, scope: Scope, decision: Decision) -> bool:
        """Whether somebody has said so."""
        with _readable(scope, decision.batch):
            return self.index(scope).last_value(scope.finished_key) == decision.encode_finished()


def _places(scope: Scope, partitions: int) -> list[TopicPartition]:
    """Where a scope may have begun while the topic grew to so many partitions, the latest first."""
    numbers = dict.fromkeys(partition_for(scope.key, count) for count in range(partitions, 0, -1))
    return [TopicPartition(DECISIONS_TOPIC, number) for number in numbers]


@contextmanager
def _readable(scope: Scope, batch: int) -> Iterator[None]:
    """Records that are gone or damaged become the error that says what to do."""
    try:
        yield
    except (ApiError, CorruptRecord) as error:
        if isinstance(error, ApiError) and error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        raise _lost(scope, batch, str(error)) from error


def way_out(scope: Scope, batch: int) -> str:
    """What a person does about a scope whose last decision cannot be told."""
    known = "BATCH" if batch == NO_BATCH else str(batch)
    return (
        "nothing was committed or aborted. Find out which of the transactions that 'sparklog writes list' shows belong"
        " to a batch that was written, commit those (sparklog txn commit ID), and then declare the last batch:"
        f" sparklog writes declare {shlex.quote(scope.name)} --last-batch {known}"
    )


def _lost(scope: Scope, batch: int, reason: str) -> DataSourceError:
    what = "the last decision" if batch == NO_BATCH else f"the decision of batch {batch}"
    return DataSourceError(
        "SPARKLOG_DECISION_LOST",
        f"{what} of scope {scope.name!r} cannot be read: {reason}. Topic {DECISIONS_TOPIC} must be compacted, without a"
        f" retention; {way_out(scope, batch)}",
    )
