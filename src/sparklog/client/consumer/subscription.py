"""What a consumer reads and how far it is: topics, partitions, positions, pauses. Values only.

Invariants:

1. One of three ways at a time: topics or a pattern (the group assigns partitions), or partitions named by hand.
   Another way needs ``unsubscribe`` first.
2. A partition that is not assigned has no position, and nothing of it is fetched or handed over.
3. ``position`` is the offset after the last record that was handed over; only ``consumed``, ``place`` and ``seek``
   move it, and ``consumed`` never back.
4. Each ``seek``, ``place``, reset and new assignment gives a partition another ``incarnation``: what was fetched for
   an earlier one is not handed over.
5. What stays assigned over a rebalance keeps its position, its pause and its incarnation.
6. A partition is fetchable exactly while its position is known and needs no validation, it is not paused, and it is
   not being given up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import NamedTuple
from uuid import UUID

from sparklog.client.consumer.offset_reset import OffsetReset
from sparklog.errors import ApiError, ErrorCode, LocalProtocolError
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import NO_EPOCH, IsolationLevel, LeaderEpoch, TopicPartition


class Mode(Enum):
    """How it was said what to read."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    ASSIGNED = "partitions named by hand"


class Position(NamedTuple):
    """Where to read next, and the leader epoch of the record before it (NO_EPOCH: not known)."""

    offset: int
    epoch: LeaderEpoch = NO_EPOCH


@dataclass(slots=True)
class PartitionState:
    """One assigned partition. Without a position it waits for ``reset`` if that is set, else for a committed offset."""

    incarnation: int
    position: Position | None = None
    reset: OffsetReset | None = None
    paused: bool = False
    giving_up: bool = False
    validated_epoch: int = NO_EPOCH
    """The leader's epoch under which the position was found to be on the leader's history."""
    needs_validation: bool = False
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    topic_id: UUID = ZERO_UUID
    """The topic that the position is one in, among those that have had its name; zeros until records of it came."""

    @property
    def is_fetchable(self) -> bool:
        return not (self.position is None or self.paused or self.giving_up or self.needs_validation)


class SubscriptionState:
    """The state behind one consumer."""

    def __init__(self) -> None:
        self.mode = Mode.NONE
        self.topics: frozenset[str] = frozenset()
        """What the consumer wants: the topics named, or those that the pattern matched last."""
        self._pattern: Callable[[str], bool] | None = None
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._incarnations = count(1)

    # -- what to read

    def subscribe(self, topics: Iterable[str]) -> None:
        self._enter(Mode.TOPICS)
        self.topics = frozenset(topics)

    def subscribe_pattern(self, pattern: str | re.Pattern[str]) -> None:
        """Every topic whose whole name the pattern matches, also those that come later.

        Raises re.error for a pattern that does not compile and TypeError for one of bytes; nothing has changed then.
        """
        matcher = _matcher(pattern)
        self._enter(Mode.PATTERN)
        self._pattern = matcher
        self.topics = frozenset()

    def match(self, names: Iterable[str]) -> bool:
        """Tell which topics exist; whether what the pattern matches has changed."""
        if self._pattern is None:
            return False
        found = frozenset(filter(self._pattern, names))
        changed, self.topics = found != self.topics, found
        return changed

    def wants(self, topic: str) -> bool:
        """Whether the group may assign partitions of the topic."""
        return self._pattern(topic) if self._pattern is not None else topic in self.topics

    def names(self, topic: str) -> bool:
        """Whether it is the user who asks for the topic, and not a pattern or others of the group."""
        return self.mode is not Mode.PATTERN and (self.mode is not Mode.TOPICS or topic in self.topics)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these, without the group assigning anything."""
        self._enter(Mode.ASSIGNED)
        self._set(tuple(partitions))

    def unsubscribe(self) -> None:
        self.mode = Mode.NONE
        self.topics = frozenset()
        self._pattern = None
        self._set(())

    def assigned_by_group(self, partitions: Iterable[TopicPartition]) -> None:
        """The group's assignment, whole; raises LocalProtocolError if partitions were named by hand."""
        if not self.is_group_managed:
            raise LocalProtocolError(f"the group assigned partitions to a consumer that reads {self.mode.value}")
        self._set(tuple(partitions))

    def check_subscribed(self) -> None:
        """Raises LocalProtocolError before it was said what to read."""
        if self.mode is Mode.NONE:
            raise LocalProtocolError(
                "the consumer reads nothing yet: call subscribe(topics) or assign(partitions) first"
            )

    @property
    def is_group_managed(self) -> bool:
        return self.mode in (Mode.TOPICS, Mode.PATTERN)

    def _enter(self, mode: Mode) -> None:
        if self.mode not in (Mode.NONE, mode):
            raise LocalProtocolError(
                f"the consumer reads {self.mode.value}; call unsubscribe() before it reads {mode.value}"
            )
        self.mode = mode
        self._pattern = None

    def _orphan(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the keeper of the state of what is no longer assigned see that."""
        for tp in partitions:
            self._partitions[tp].incarnation = next(self._incarnations)

    def _set(self, partitions: Collection[TopicPartition]) -> None:
        old = self._partitions
        self._orphan(old.keys() - set(partitions))
        self._partitions = {tp: old.get(tp) or PartitionState(next(self._incarnations)) for tp in partitions}
        for state in self._partitions.values():
            state.giving_up = False

    # -- the partitions

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._partitions)

    @property
    def states(self) -> Mapping[TopicPartition, PartitionState]:
        """The assigned partitions, in the order in which they were assigned."""
        return self._partitions

    def state(self, tp: TopicPartition) -> PartitionState:
        """Raises ApiError for a partition that is not assigned."""
        state = self._partitions.get(tp)
        if state is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"partition {tp} is not assigned to this consumer")
        return state

    def is_current(self, tp: TopicPartition, incarnation: int) -> bool:
        """Whether what was asked for this incarnation may still be used."""
        state = self._partitions.get(tp)
        return state is not None and state.incarnation == incarnation

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.state(tp) for tp in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.state(tp) for tp in partitions]:
            state.paused = False

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, state in self._partitions.items() if state.paused)

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching and handing over what is about to be revoked, so that its position stands still."""
        for tp in partitions:
            if tp in self._partitions:
                self._partitions[tp].giving_up = True

    # -- positions

    def seek(self, tp: TopicPartition, position: Position) -> None:
        """The caller's choice, whatever was known before.

        Raises LocalProtocolError for a negative offset, ApiError for a partition that is not assigned.
        """
        if position.offset < 0:
            raise LocalProtocolError(f"cannot seek partition {tp} to the offset {position.offset}")
        self._move(self.state(tp), position)

    def request_reset(self, tp: TopicPartition, reset: OffsetReset) -> None:
        """Forget the position; it is to be looked up as ``reset`` says."""
        state = self.state(tp)
        self._move(state, None)
        state.reset = reset

    def place(self, tp: TopicPartition, incarnation: int, position: Position) -> bool:
        """The answer to a look-up of a position; False if it comes too late."""
        if not self.is_current(tp, incarnation):
            return False
        self._move(self._partitions[tp], position)
        return True

    def _move(self, state: PartitionState, position: Position | None) -> None:
        state.incarnation = next(self._incarnations)
        state.position = position
        state.topic_id = ZERO_UUID  # of whichever topic has the name now
        state.reset = None
        state.validated_epoch = NO_EPOCH
        state.needs_validation = False

    def consumed(self, tp: TopicPartition, position: Position) -> None:
        """Records up to this position were handed over."""
        state = self._partitions[tp]
        assert state.position is not None
        assert position.offset >= state.position.offset
        state.position = position

    def fetched_from(self, tp: TopicPartition, topic_id: UUID) -> bool:
        """Records of this topic came; False where the position is one in another topic, which had the name before.

        They are refused until the position is set anew.
        """
        state = self._partitions[tp]
        if state.topic_id == ZERO_UUID:
            state.topic_id = topic_id
        return topic_id in (ZERO_UUID, state.topic_id)

    def leader_changed(self, tp: TopicPartition, leader_epoch: int) -> None:
        """A leader of this epoch was seen: a position whose own epoch is known is to be validated with it, once."""
        state = self._partitions.get(tp)
        if state is None or state.position is None or leader_epoch <= state.validated_epoch:
            return
        if state.position.epoch == NO_EPOCH:
            state.validated_epoch = leader_epoch
        else:
            state.needs_validation = True

    def validated(self, tp: TopicPartition, incarnation: int, leader_epoch: int) -> None:
        """The leader of this epoch has the position on its history."""
        if self.is_current(tp, incarnation):
            state = self._partitions[tp]
            state.needs_validation = False
            state.validated_epoch = leader_epoch

    def lag(self, isolation: IsolationLevel) -> dict[TopicPartition, int | None]:
        """Records that a reader of this isolation has before it, as of the last fetch; None where that is not known."""
        committed = isolation is IsolationLevel.READ_COMMITTED
        lags: dict[TopicPartition, int | None] = {}
        for tp, state in self._partitions.items():
            end = state.last_stable_offset if committed else state.high_watermark
            known = end is not None and state.position is not None
            lags[tp] = max(0, end - state.position.offset) if known else None  # type: ignore[operator, union-attr]
        return lags

    # -- what is to be done

    def fetchable(self) -> list[TopicPartition]:
        return [tp for tp, state in self._partitions.items() if state.is_fetchable]

    def without_position(self) -> list[TopicPartition]:
        """Those that begin where the group left off, or where the reset policy says."""
        return [tp for tp, state in self._partitions.items() if state.position is None and state.reset is None]

    def to_reset(self) -> dict[TopicPartition, OffsetReset]:
        return {tp: state.reset for tp, state in self._partitions.items() if state.reset is not None}

    def to_validate(self) -> list[TopicPartition]:
        return [tp for tp, state in self._partitions.items() if state.needs_validation]

    def positions(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Position]:
        """The known positions: of all, or of those of ``partitions`` that are assigned."""
        chosen = self._partitions if partitions is None else [tp for tp in partitions if tp in self._partitions]
        return {tp: at for tp in chosen if (at := self._partitions[tp].position) is not None}


def _matcher(pattern: str | re.Pattern[str]) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    if not isinstance(compiled.pattern, str):
        raise TypeError(f"a pattern of topics is a str, not {pattern!r}")
    return lambda topic: compiled.fullmatch(topic) is not None
