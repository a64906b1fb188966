"""Records of one partition that travel together: filled, closed, encoded, sent until they are acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sparklog.client.producer.delivery import Delivery, RecordFuture
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, increment_sequence, patch_producer
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.codec import write_record
from sparklog.record.compression import CompressionType, compress
from sparklog.record.records import iter_records
from sparklog.record.varint import read_varint

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from sparklog.structs import TopicPartition

Headers = Sequence[tuple[str, "Buffer | None"]]


class Stamp(NamedTuple):
    """Under what an idempotent producer sends a batch; the sequence number is its first record's."""

    producer_id: int
    epoch: int
    sequence: int


_NO_STAMP = Stamp(layout.NO_PRODUCER_ID, layout.NO_PRODUCER_EPOCH, layout.NO_SEQUENCE)


class ProducerBatch:
    """One batch of one partition. ``order`` rises from one batch of a partition to the next.

    It is filled with ``append``, or made whole with ``encoded``. ``stamp`` is None until it is first sent; with a stamp
    it is never changed, and it gets another one only when it is known not to have been written.

    ``count`` says how many records are in it. What an ``append`` that was interrupted has written besides is cut off
    before the batch is filled further, and before it is sealed.
    """

    __slots__ = (
        "_base_timestamp",
        "_data",
        "_is_torn",
        "_max_timestamp",
        "_stamped",
        "attempts",
        "charged",
        "count",
        "created",
        "delivery",
        "is_doubtful",
        "last_error",
        "order",
        "records",
        "retry_at",
        "span",
        "stamp",
        "tp",
    )

    def __init__(self, tp: TopicPartition, order: float, created: float, span: float = 1.0) -> None:
        self.tp = tp
        self.order = order
        self.span = span
        """How far its order is from that of the next batch; its halves share it."""
        self.created = created
        self.records = bytearray()
        self.count = 0
        self.charged = 0
        """Bytes of ``buffer.memory`` that it takes."""
        self.attempts = 0
        self.retry_at = 0.0
        self.last_error = ""
        self.is_doubtful = False
        """An attempt was not answered, or not clearly: it may have been written."""
        self.delivery = Delivery(tp)
        self.stamp: Stamp | None = None
        self._base_timestamp = self._max_timestamp = layout.NO_TIMESTAMP
        self._data: bytearray | None = None
        self._is_torn = False
        """Bytes of no record may follow the last one."""
        self._stamped: Stamp | None = None

    def append(self, timestamp: int, key: Buffer | None, value: Buffer | None, headers: Headers) -> RecordFuture:
        """Add a record. LocalProtocolError leaves the batch as it was."""
        if self._is_torn:
            self._mend()
        index = self.count
        base = self._base_timestamp if index else timestamp
        try:
            write_record(self.records, timestamp - base, index, key, value, headers)
            if not index:
                self._base_timestamp = self._max_timestamp = timestamp
            elif timestamp > self._max_timestamp:
                self._max_timestamp = timestamp
            self.count = index + 1  # no call since it was written: a signal handler has no place between
        except BaseException:
            self._is_torn = True
            raise
        return RecordFuture(self.delivery, index, timestamp)

    def _mend(self) -> None:
        """Cut off what follows the last record."""
        end = 0
        for _ in range(self.count):
            length, size = read_varint(self.records, end)
            end += size + length
        del self.records[end:]
        self._is_torn = False

    @classmethod
    def encoded(cls, tp: TopicPartition, order: float, created: float, data: bytearray) -> ProducerBatch:
        """A batch that was made elsewhere, without a producer."""
        batch = cls(tp, order, created)
        batch._data = data
        batch.count = RecordBatch(data).record_count
        return batch

    def encode(self, compression: CompressionType, is_transactional: bool) -> bytearray:
        """The bytes to send, under the present stamp."""
        if self._data is None:
            self._data = self._seal(compression, is_transactional)
        if self.stamp != self._stamped:
            patch_producer(self._data, 0, *(self.stamp or _NO_STAMP))
            self._stamped = self.stamp
        return self._data

    def _seal(self, compression: CompressionType, is_transactional: bool) -> bytearray:
        if self._is_torn:
            self._mend()
        records: Buffer = self.records
        if compression is not CompressionType.NONE:
            compressed = compress(compression, self.records)
            if len(compressed) < len(self.records):
                records = compressed
            else:
                compression = CompressionType.NONE
        header = RecordBatchBuilder(compression, is_transactional=is_transactional)
        if self.stamp is not None:
            header.producer_id, header.producer_epoch, header.base_sequence = self.stamp
        header.record_count = self.count
        header.base_timestamp, header.max_timestamp = self._base_timestamp, self._max_timestamp
        data = bytearray(layout.HEADER_SIZE)
        data += records
        header.write_header(data)
        self._stamped = self.stamp
        self.records = bytearray()  # from here on the encoded form is all that is needed
        return data

    @property
    def size(self) -> int:
        """Bytes on the wire, or of the records as long as they are not encoded."""
        return layout.HEADER_SIZE + len(self.records) if self._data is None else len(self._data)

    def halves(self) -> tuple[ProducerBatch, ProducerBatch] | None:
        """Two batches with the same records and numbers, which settle this one's futures; None for a single record.

        Only for a batch that its leader refused as too large: it is known not to be written.
        """
        if self.count < 2 or self._data is None:
            return None
        middle, span = self.count // 2, self.span / 2
        first = ProducerBatch(self.tp, self.order, self.created, span)
        second = ProducerBatch(self.tp, self.order + span, self.created, span)
        for index, record in enumerate(iter_records(RecordBatch(self._data))):
            half = first if index < middle else second
            half.append(record.timestamp, record.key, record.value, record.headers)
        first.charged = self.charged // 2
        second.charged = self.charged - first.charged
        if self.stamp is not None:
            first.stamp = self.stamp
            second.stamp = self.stamp._replace(sequence=increment_sequence(self.stamp.sequence, middle))
        self.delivery.split(middle, first.delivery, second.delivery)
        return first, second
