"""What was fetched and not yet handed over, by partition; handed over as records or as Arrow columns. No I/O.

Invariants:

1. Per partition, what is handed over is in offset order, each offset once, from the position on.
2. The subscription's position moves exactly past what was handed over, batches without a visible record included.
3. What was fetched for an earlier incarnation, or stands in a partition that is not fetchable now (paused, being given
   up), is not handed over; what is paused is kept, unless it is too much (``drop_idle``), what is of an earlier
   incarnation is thrown away.
4. Partitions take turns: none waits for more than one ``take`` of every other, and a ``take`` shares its limit evenly.
5. What the last ``take`` handed over can be given back, as long as nothing else has moved the position: it is fetched
   again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pyarrow as pa

from sparklog.client.consumer.fetch.deserializers import BYTES, Deserializers
from sparklog.client.consumer.record import ConsumerRecord
from sparklog.client.consumer.subscription import Position, SubscriptionState
from sparklog.errors import CorruptRecord
from sparklog.fetch.scan import Scan, unreadable
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import COLUMNS, HEADERS_TYPE, ColumnarDecoder
from sparklog.record.layout import MAX_INT64
from sparklog.record.records import placed_records
from sparklog.structs import LeaderEpoch, TopicPartition

ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)
"""The columns of Spark's Kafka source, in its order."""


class PartitionBuffer:
    """One partition's batches. ``end`` is the position of a reader that has had them all, and what was passed over."""

    def __init__(self, tp: TopicPartition, incarnation: int, position: Position) -> None:
        self.tp = tp
        self.incarnation = incarnation
        self.end = position
        self.batches: deque[RecordBatch] = deque()
        self.nbytes = 0
        self.fed_by = 0
        """The number of the answer that brought the last batches; 0 before the first."""
        self._records: list[ConsumerRecord] | None = None
        self._next = 0

    def add(self, found: Scan, answer: int = 0) -> None:
        """What the answer of this number held at ``fetch_position``."""
        self.fed_by = answer
        self.batches.extend(found.batches)
        self.nbytes += sum(batch.size_in_bytes for batch in found.batches)
        self.end = Position(found.next_offset, found.epoch)

    @property
    def fetch_position(self) -> int:
        """Where the next fetch goes on."""
        return self.end.offset

    def drop_first(self) -> Position:
        """The first batch was handed over; returns where a reader stands behind it."""
        batch = self.batches.popleft()
        self.nbytes -= batch.size_in_bytes
        self._records = None
        return Position(batch.next_offset, LeaderEpoch(batch.partition_leader_epoch)) if self.batches else self.end

    def records(self, position: int, limit: int) -> list[ConsumerRecord]:
        """The next records of the first batch from ``position`` on, at most so many; none at its end."""
        if self._records is None:
            self._records, self._next = placed_records(self.batches[0], *self.tp, ConsumerRecord), 0
        records, first = self._records, self._next
        if first and records[first - 1].offset >= position:
            first = 0  # what was given last was not taken
        while first < len(records) and records[first].offset < position:
            first += 1
        self._next = min(first + limit, len(records))
        return records[first : self._next]

    @property
    def at_end_of_batch(self) -> bool:
        """Whether ``records`` gave the first batch's last record."""
        return self._records is not None and self._next == len(self._records)


class RecordBuffer:
    """The buffers of all partitions of a subscription."""

    def __init__(self, subscription: SubscriptionState, deserializers: Deserializers = BYTES) -> None:
        self._subscription = subscription
        self._deserializers = deserializers
        self._buffers: dict[TopicPartition, PartitionBuffer] = {}
        self._turns: deque[TopicPartition] = deque()
        self._topics: dict[str, pa.Scalar] = {}
        self._before: dict[TopicPartition, tuple[int, Position]] = {}
        """The incarnation and the position of each partition that the last ``take`` moved, before it did."""

    def buffer(self, tp: TopicPartition) -> PartitionBuffer:
        """The buffer of the partition as it is now, an empty one at its position if it was elsewhere before.

        The partition must have a position.
        """
        state = self._subscription.state(tp)
        found = self._buffers.get(tp)
        if found is None or found.incarnation != state.incarnation:
            assert state.position is not None
            if found is None:
                self._turns.append(tp)
            found = self._buffers[tp] = PartitionBuffer(tp, state.incarnation, state.position)
        return found

    def is_empty(self, tp: TopicPartition) -> bool:
        """Whether nothing of the partition waits to be handed over."""
        found = self._buffers.get(tp)
        return found is None or not found.batches

    def drop_idle(self, most: int) -> list[TopicPartition]:
        """Let go of partitions that are not fetchable, the largest first, until no more than ``most`` bytes wait in
        such; what was let go of is fetched again. Returns those partitions."""
        states, dropped = self._subscription.states, []
        idle = [each for tp, each in self._buffers.items() if tp not in states or not states[tp].is_fetchable]
        nbytes = sum(each.nbytes for each in idle)
        for each in sorted(idle, key=lambda each: each.nbytes, reverse=True):
            if nbytes <= most:
                break
            nbytes -= each.nbytes
            dropped.append(each.tp)
            self._forget(each.tp)
        return dropped

    def forget_old(self) -> None:
        """Let go of what will never be handed over."""
        for tp, found in list(self._buffers.items()):
            if not self._subscription.is_current(tp, found.incarnation):
                self._forget(tp)

    def _forget(self, tp: TopicPartition) -> None:
        del self._buffers[tp]
        self._turns.remove(tp)

    def ready(self) -> list[TopicPartition]:
        """The partitions that can give something now, in turn.

        Those with nothing left move past what holds no record for this reader: markers, aborted transactions, gaps.
        """
        self.forget_old()
        states = self._subscription.states
        for tp, found in self._buffers.items():
            if not found.batches and states[tp].is_fetchable:
                self._move(tp, found.end)
        return [tp for tp in self._turns if self._buffers[tp].batches and states[tp].is_fetchable]

    def _served(self, tp: TopicPartition) -> None:
        self._turns.remove(tp)
        self._turns.append(tp)

    def give_back(self, got: Iterable[ConsumerRecord] = ()) -> None:
        """Fetch again what the last ``take`` gave, for the user did not get it, or these first records of it alone.

        What the user got after all may be given back with the rest.
        """
        before, self._before = self._before, {}
        reached = {record.tp: _behind(record) for record in got}
        for tp, (incarnation, position) in before.items():
            if self._subscription.is_current(tp, incarnation):
                self._subscription.seek(tp, reached.get(tp, position))
                if reached:
                    self._before[tp] = (self._subscription.states[tp].incarnation, position)

    def _remember(self, tp: TopicPartition) -> None:
        state = self._subscription.states[tp]
        assert state.position is not None
        self._before.setdefault(tp, (state.incarnation, state.position))

    # -- as records

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """The next records of the partitions in turn. Raises DeserializationError or CorruptRecord for the first."""
        self._before = {}
        taken: list[ConsumerRecord] = []
        while (ready := self.ready()) and len(taken) < max_records:
            for number, tp in enumerate(ready):
                share = -(-(max_records - len(taken)) // (len(ready) - number))
                if not share or not self._take_from(tp, len(taken) + share, taken):
                    return taken
                self._served(tp)
        return taken

    def _take_from(self, tp: TopicPartition, until: int, taken: list[ConsumerRecord]) -> bool:
        """Add records of one partition until there are ``until``; False where one could not be read."""
        self._remember(tp)
        buffer = self._buffers[tp]
        while buffer.batches and len(taken) < until:
            try:
                records = buffer.records(self._position(tp), until - len(taken))
            except CorruptRecord as error:
                if taken:
                    return False
                raise unreadable(tp, buffer.batches[0], error) from error
            if records and not self._hand_over(tp, records, taken):
                return False
            if buffer.at_end_of_batch:
                self._move(tp, buffer.drop_first())
        return True

    def _hand_over(self, tp: TopicPartition, records: list[ConsumerRecord], taken: list[ConsumerRecord]) -> bool:
        read, failure = self._deserializers.applied(records)
        if read:
            taken += read
            self._move(tp, _behind(read[-1]))
        if failure is not None and not taken:
            raise failure
        return failure is None

    def _position(self, tp: TopicPartition) -> int:
        position = self._subscription.state(tp).position
        assert position is not None
        return position.offset

    def _move(self, tp: TopicPartition, position: Position) -> None:
        if position.offset > self._position(tp):
            self._subscription.consumed(tp, position)

    # -- as columns

    def take_arrow(self, max_bytes: int, max_rows: int) -> pa.RecordBatch | None:
        """The next rows of the partitions in turn, as one batch of ARROW_SCHEMA; None where nothing is ready.

        ``max_bytes`` is looked at between batches, so the last one may go beyond it.
        """
        self._before = {}
        decoder = ColumnarDecoder(COLUMNS, timestamp_unit="us")
        runs: list[tuple[TopicPartition, int]] = []
        ready = self.ready()
        for number, tp in enumerate(ready):
            left = len(ready) - number
            rows = decoder.rows
            row_limit = rows + -(-(max_rows - rows) // left)
            byte_limit = decoder.nbytes + -(-(max_bytes - decoder.nbytes) // left)
            whole = self._decode_from(tp, decoder, byte_limit, row_limit)
            if decoder.rows > rows:
                runs.append((tp, decoder.rows - rows))
            self._served(tp)
            if not whole or decoder.nbytes >= max_bytes or decoder.rows >= max_rows:
                break
        return self._arrow(decoder, runs) if decoder.rows else None

    def _decode_from(self, tp: TopicPartition, decoder: ColumnarDecoder, max_bytes: int, max_rows: int) -> bool:
        self._remember(tp)
        buffer = self._buffers[tp]
        while buffer.batches and decoder.nbytes < max_bytes and decoder.rows < max_rows:
            batch = buffer.batches[0]
            position = self._position(tp)
            first = max(position, batch.base_offset)
            room = max_rows - decoder.rows
            end = first + room if batch.record_count > room else MAX_INT64
            try:
                decoder.append(batch, position, end)
            except CorruptRecord as error:
                if decoder.rows:
                    return False
                raise unreadable(tp, batch, error) from error
            if end < batch.next_offset:
                self._move(tp, Position(end, LeaderEpoch(batch.partition_leader_epoch)))
            else:
                self._move(tp, buffer.drop_first())
        return True

    def _arrow(self, decoder: ColumnarDecoder, runs: list[tuple[TopicPartition, int]]) -> pa.RecordBatch:
        columns = decoder.finish()
        columns["topic"] = _repeated([(self._topic(tp.topic), rows) for tp, rows in runs])
        columns["partition"] = _repeated([(pa.scalar(tp.partition, pa.int32()), rows) for tp, rows in runs])
        return pa.RecordBatch.from_arrays([columns[name] for name in ARROW_SCHEMA.names], schema=ARROW_SCHEMA)

    def _topic(self, name: str) -> pa.Scalar:
        return self._topics.setdefault(name, pa.scalar(name, pa.string()))


def _behind(record: ConsumerRecord) -> Position:
    return Position(record.offset + 1, LeaderEpoch(record.leader_epoch))


def _repeated(runs: list[tuple[pa.Scalar, int]]) -> pa.Array:
    arrays = [pa.repeat(value, count) for value, count in runs]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
