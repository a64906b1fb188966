"""Records that were taken in one go and are given one by one: the consumer's positions follow what was given."""

from __future__ import annotations

from sparklog.client.consumer_record import ConsumerRecord
from sparklog.client.subscription import Position, SubscriptionState
from sparklog.structs import LeaderEpoch, TopicPartition


class Loan:
    """What one ``poll`` returned, with the positions put back to before it.

    ``hand_over`` each record in order, and ``give_back`` in the end: what was not handed over is fetched again. Once
    the consumer has other plans for a partition (a seek, another poll, a rebalance) nothing more of it is handed over.
    """

    def __init__(self, subscription: SubscriptionState, records: list[ConsumerRecord]) -> None:
        self.records = records
        self._subscription = subscription
        self._ends: dict[TopicPartition, Position] = {}
        self._incarnations: dict[TopicPartition, int] = {}
        self._left: dict[TopicPartition, int] = {}
        for record in records:
            self._left[record.tp] = self._left.get(record.tp, 0) + 1
        for record in reversed(records):
            self._rewind(record)

    def _rewind(self, record: ConsumerRecord) -> None:
        tp = record.tp
        state = self._subscription.state(tp)
        assert state.position is not None
        if tp not in self._ends:
            self._ends[tp] = state.position
            self._incarnations[tp] = state.incarnation
        state.position = Position(record.offset, state.position.epoch)

    def hand_over(self, record: ConsumerRecord) -> bool:
        """Move past the record; False if it must not be given any more."""
        tp = record.tp
        if not self._subscription.is_current(tp, self._incarnations[tp]):
            return False
        self._left[tp] -= 1
        epoch = LeaderEpoch(record.leader_epoch)
        self._subscription.consumed(tp, Position(record.offset + 1, epoch) if self._left[tp] else self._ends[tp])
        return True

    def give_back(self) -> None:
        """Have what was not handed over fetched again."""
        for tp, left in self._left.items():
            if left and self._subscription.is_current(tp, self._incarnations[tp]):
                position = self._subscription.state(tp).position
                assert position is not None
                self._subscription.seek(tp, position)
        self._left.clear()
