"""Where a reader of one partition stands, and what each answer to its fetch means for it. No I/O.

A driver asks for ``offset``. It hands the error code of an answer to ``refusal_of``, which says what is to be done. An
answer without an error it hands to ``take``, which gives the batches that the reader sees and moves ``offset``.

Invariants:

1. ``offset`` only rises. A reader that asks again and again at ``offset`` is given each batch that it may see once, in
   order; it stands behind the last batch that came, one that it does not see included.
2. Where no batch came, ``offset`` moves only over a gap: compaction can take the last records below the end of what the
   reader may see. Two answers at the same offset must show the gap, since one may come from a leader that has only just
   heard of its high watermark. Each must be without a record though there was room for some: the records of other
   partitions in the same answer may have used up ``max.bytes``, and then nothing is no sign. Nor is a part of a batch,
   which brokers send where the rest found no room beside others; without others it is a mistake of the broker. Nor is
   it a sign where the offset comes before the leader's own log: Kafka answers with nothing as long as its remote
   storage (KIP-405) is slow. So a driver looks where that log begins when ``may_be_gap`` says so.
3. A refusal moves nothing, nor does damage: where the first batch of an answer is damaged, the reader stays before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from sparklog.cluster.leader_errors import LEADER_ERRORS
from sparklog.errors import ErrorCode, RemoteProtocolError
from sparklog.fetch.scan import Scan, scan, visible_end
from sparklog.protocol.hot.fetch import FetchedPartition
from sparklog.structs import IsolationLevel, TopicPartition


class Refusal(Enum):
    """What a driver is to do about a partition's error code."""

    MOVED = auto()
    """Ask for metadata, then ask its leader."""
    OUT_OF_RANGE = auto()
    """The leader has not, or no longer, what is asked for: another offset must be found, or the loss told."""
    OTHER = auto()
    """Tell the user. A driver with a deadline may try again until then, where the code is retriable. One without may
    not: CORRUPT_MESSAGE is retriable, and would be waited for without a word.
    """


def refusal_of(code: ErrorCode) -> Refusal | None:
    """What the error code of a partition in an answer asks for; None if it is no error."""
    if code is ErrorCode.NONE:
        return None
    if code in LEADER_ERRORS:
        return Refusal.MOVED
    return Refusal.OUT_OF_RANGE if code is ErrorCode.OFFSET_OUT_OF_RANGE else Refusal.OTHER


def fed(answers: Iterable[FetchedPartition]) -> int:
    """How many partitions of an answer have records. A partition had room where no other one has any."""
    return sum(1 for each in answers if each.records)


def may_be_gap(fetched: FetchedPartition, offset: int, isolation: IsolationLevel) -> bool:
    """Whether an answer to a fetch at ``offset`` has nothing of what it says there is."""
    is_empty = fetched.error is ErrorCode.NONE and not fetched.records and fetched.preferred_read_replica < 0
    return is_empty and visible_end(fetched, isolation) > offset


class FetchPosition:
    """The position of one reader in one partition."""

    __slots__ = ("_check_crcs", "_everything", "_gap_at", "_isolation", "_tp", "offset")

    def __init__(
        self,
        tp: TopicPartition,
        offset: int,
        isolation: IsolationLevel,
        *,
        check_crcs: bool = True,
        everything: bool = False,
    ) -> None:
        """``everything``: control batches too, and those of aborted transactions."""
        self.offset = offset
        """What to ask for next."""
        self._tp = tp
        self._isolation = isolation
        self._check_crcs = check_crcs
        self._everything = everything
        self._gap_at = -1

    def take(self, fetched: FetchedPartition, *, had_room: bool) -> Scan:
        """What an answer without an error holds that was asked for at ``offset``, which moves to its ``next_offset``.

        ``had_room``: it is known that the answer would have held a record of the partition if there were one. Raises
        CorruptRecord where damage comes first, RemoteProtocolError where there was room and no whole batch came.
        """
        found = scan(
            self._tp,
            fetched,
            self.offset,
            self._isolation,
            check_crcs=self._check_crcs,
            everything=self._everything,
        )
        if found.next_offset == self.offset:
            if had_room and fetched.records:
                raise RemoteProtocolError(
                    f"partition {self._tp} at offset {self.offset}: an answer without a whole batch"
                )
            if had_room:
                found = self._over_gap(found, visible_end(fetched, self._isolation))
        self.offset = found.next_offset
        return found

    def _over_gap(self, found: Scan, end: int) -> Scan:
        if end <= self.offset:
            self._gap_at = -1
        elif self._gap_at == self.offset:
            return found._replace(next_offset=end)
        else:
            self._gap_at = self.offset
        return found


class FetchPositions:
    """The positions of a reader of many partitions that keeps the offsets itself."""

    def __init__(self, isolation: IsolationLevel, *, check_crcs: bool = True) -> None:
        self._isolation = isolation
        self._check_crcs = check_crcs
        self._positions: dict[TopicPartition, FetchPosition] = {}

    def at(self, tp: TopicPartition, offset: int) -> FetchPosition:
        """The position of ``tp``, which is a new one if it is not at ``offset``: the reader was placed elsewhere."""
        found = self._positions.get(tp)
        if found is None or found.offset != offset:
            found = self._positions[tp] = FetchPosition(tp, offset, self._isolation, check_crcs=self._check_crcs)
        return found
