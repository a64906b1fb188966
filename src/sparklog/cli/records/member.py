"""A member of a consumer group whose records are printed: at least once, whatever ends it.

Invariant: what is committed was printed. So a round counts when the next one is asked for, not when it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import may_pass
from sparklog.client.consumer.consumer import Consumer
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.cli.interruption import Interruption
    from sparklog.client.consumer.group.committed import Offsets
    from sparklog.clock import Clock

_ROUND_BYTES = 4 << 20
_POLL_S = 0.5
"""How long a poll waits: after a signal that Python has dropped, or where nothing comes, something is to be done."""
_ALL = 1 << 31
_GONE_ON = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The group is without this member for a moment: the next poll tells it what it has lost, and it joins again."""

Round = tuple[TopicPartition, dict[str, "pa.Array"]]


class Member:
    """What a group gives one of its members. Its consumer commits nothing by itself."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        self._printed: Offsets = {}
        """Up to where all is printed, of each partition that is assigned."""
        self._committed: Offsets = {}
        self._is_assigned = self._is_waiting = False

    def subscribe(self, topics: Collection[str]) -> None:
        """Share these topics with the other members."""
        self._consumer.subscribe(topics, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost)

    def ends(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Where the partitions end now."""
        return self._consumer.end_offsets(
            [TopicPartition(topic, each.partition) for topic in topics for each in self._consumer.partitions_for(topic)]
        )

    def rounds(
        self,
        columns: Sequence[str],
        interruption: Interruption,
        most: int | None = None,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> Iterator[Round]:
        """These columns of the records, of one partition at a time; ``timestamp`` is ms.

        For ever; or ``most`` records; or until this member has come to the ``ends`` of all partitions that it has. What
        keeps it from committing, and may pass, does not end them: standard error tells of it.
        """
        left, due = _ALL if most is None else most, self._due()
        while left:
            interruption.check()
            found = self._consumer.poll_arrow(_POLL_S, _ROUND_BYTES, left)
            reached = self._consumer.positions()
            if found is not None:
                for tp, records in _rounds(found, columns):
                    yield tp, records
                    self._printed[tp] = reached[tp]
                left -= found.num_rows if most is not None else 0
            self._printed = reached
            if found is None or self._clock.monotonic() >= due:
                self._try_to_commit(self.commit)
                due = self._due()
            if ends is not None and self._is_at(ends):
                return

    def commit(self) -> None:
        """Commit what is printed. Raises ApiError where the group has gone on without this member."""
        mine = {tp: at for tp, at in self._printed.items() if tp in self._consumer.assignment}
        if mine != self._committed:
            self._consumer.commit(mine)
            self._committed = mine

    def _try_to_commit(self, commit: Callable[[], None]) -> None:
        """Tell once where it cannot be done now, and once when it can be done again."""
        try:
            commit()
        except SparklogError as error:
            if not (may_pass(error) or (isinstance(error, ApiError) and error.code in _GONE_ON)):
                raise
            if not self._is_waiting:
                click.echo(f"{error}; what is printed is not committed now, and will be if that passes", err=True)
            self._is_waiting = True
        else:
            if self._is_waiting:
                click.echo("committing again", err=True)
            self._is_waiting = False

    def _due(self) -> float:
        return self._clock.monotonic() + self._consumer.config.auto_commit_interval_ms / 1000

    def _is_at(self, ends: Mapping[TopicPartition, int]) -> bool:
        assigned = self._consumer.assignment
        return self._is_assigned and all(
            tp in self._printed and self._printed[tp].offset >= ends.get(tp, 0) for tp in assigned
        )

    def _assigned(self, _: list[TopicPartition]) -> None:
        self._is_assigned = True

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        """All that was given is printed by now: it is asked for more."""
        going = {tp: at for tp, at in self._printed.items() if tp in partitions}
        if any(self._committed.get(tp) != at for tp, at in going.items()):
            self._try_to_commit(lambda: self._consumer.commit(going))
        self._lost(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self._printed.pop(tp, None)
            self._committed.pop(tp, None)


@contextmanager
def joined(settings: Mapping[str, str], topics: Collection[str], clock: Clock) -> Iterator[Member]:
    """A member of the group that the ``settings`` name; in the end it commits what is printed, and leaves."""
    with Consumer({**settings, "enable.auto.commit": "false", "allow.auto.create.topics": "false"}) as consumer:
        member = Member(consumer, clock)
        member.subscribe(topics)
        try:
            yield member
        finally:
            member.commit()


def _rounds(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[Round]:
    """The rows of each partition, which are neighbours."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ms = batch["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    columns = {name: ms if name == "timestamp" else batch[name] for name in names}
    topic, partition, rows = batch["topic"], batch["partition"], batch.num_rows
    is_new = pc.or_(pc.not_equal(topic[1:], topic[: rows - 1]), pc.not_equal(partition[1:], partition[: rows - 1]))
    starts = [0, *(row + 1 for row in pc.indices_nonzero(is_new).to_pylist()), rows]
    for start, end in pairwise(starts):
        tp = TopicPartition(topic[start].as_py(), partition[start].as_py())
        yield tp, {name: column[start:end] for name, column in columns.items()}
