"""A partition's leader in memory, as far as producers are concerned."""

from collections import deque
from typing import NamedTuple

from sparklog.errors import ErrorCode
from sparklog.record.batch import RecordBatch, increment_sequence
from sparklog.record.records import iter_records

_E = ErrorCode


class _Known(NamedTuple):
    """What a leader remembers of a batch."""

    first: int
    last: int
    offset: int


class Leader:
    """One partition's leader, as Kafka's ``ProducerAppendInfo`` judges batches."""

    def __init__(self):
        self.log = []
        self.producers = {}  # id → epoch, and the last five batches

    def restart(self):
        """As Kafka does it: of each producer the last batch alone is known afterwards."""
        for producer, (epoch, known) in self.producers.items():
            self.producers[producer] = epoch, deque([known[-1]], maxlen=5)

    def forget(self):
        """It has heard nothing for ``producer.id.expiration.ms``, or its topic was made again."""
        self.producers.clear()

    def append(self, data):
        batch = RecordBatch(data)
        batch.validate()
        first, last = batch.base_sequence, batch.last_sequence
        epoch, known = self.producers.get(batch.producer_id, (None, deque(maxlen=5)))
        if epoch is not None and batch.producer_epoch < epoch:
            return _E.INVALID_PRODUCER_EPOCH, -1
        if epoch is not None and batch.producer_epoch > epoch and first != 0:
            return _E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if batch.producer_epoch == epoch:
            for each in known:
                if (each.first, each.last) == (first, last):
                    return _E.NONE, each.offset
            if first != increment_sequence(known[-1].last, 1):
                return _E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        else:
            known = deque(maxlen=5)
        offset = len(self.log)
        self.log += [int(record.value) for record in iter_records(batch)]
        known.append(_Known(first, last, offset))
        self.producers[batch.producer_id] = batch.producer_epoch, known
        return _E.NONE, offset
