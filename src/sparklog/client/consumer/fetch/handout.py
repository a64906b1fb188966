"""Records that were taken in one go and are given one by one: the consumer's positions follow what was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from sparklog.client.consumer.record import ConsumerRecord
from sparklog.client.consumer.subscription import PartitionState, Position, SubscriptionState
from sparklog.structs import TopicPartition

_new = tuple.__new__
"""Makes a named tuple in half the time of its constructor, which only sorts out arguments."""
_PARTITION = attrgetter("topic", "partition")


@dataclass(slots=True)
class _Run:
    """Neighbouring records of one partition; ``end`` is where a reader stands behind them."""

    tp: TopicPartition
    state: PartitionState
    incarnation: int
    records: list[ConsumerRecord]
    end: Position
    given: int = 0


class Handout:
    """What one ``poll`` returned, with the positions put back to before it. Iterate, and ``give_back`` in the end.

    The position moves when a record is given, not when it was taken; what was not given is fetched again. When the
    consumer has other plans for a partition (a seek, another poll, a rebalance) the iteration ends; the rest of a
    partition that is paused is passed over, even if it is resumed meanwhile.
    """

    def __init__(self, subscription: SubscriptionState, records: list[ConsumerRecord]) -> None:
        self._subscription = subscription
        self._runs = [self._run(tp, list(run)) for tp, run in groupby(records, key=_PARTITION)]
        for run in reversed(self._runs):
            assert run.state.position is not None
            run.end = run.state.position
            run.state.position = Position(run.records[0].offset, run.end.epoch)

    def _run(self, tp: tuple[str, int], records: list[ConsumerRecord]) -> _Run:
        state = self._subscription.state(TopicPartition(*tp))
        assert state.position is not None
        return _Run(TopicPartition(*tp), state, state.incarnation, records, state.position)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        passed_over: set[TopicPartition] = set()
        for run in self._runs:
            if run.tp in passed_over:
                continue
            state, incarnation, last = run.state, run.incarnation, run.records[-1]
            for record in run.records:
                if state.incarnation != incarnation:
                    return
                if state.paused:
                    passed_over.add(run.tp)
                    break
                run.given += 1
                end = run.end if record is last else _new(Position, (record.offset + 1, record.leader_epoch))
                state.position = end
                yield record

    @property
    def is_given(self) -> bool:
        """Whether nothing of it is left to be given back."""
        return all(run.given == len(run.records) for run in self._runs)

    def give_back(self) -> None:
        """Have what was not given fetched again."""
        for run in self._runs:
            current = self._subscription.is_current(run.tp, run.incarnation)
            if current and run.given < len(run.records):
                assert run.state.position is not None
                self._subscription.seek(run.tp, run.state.position)
        self._runs = []
