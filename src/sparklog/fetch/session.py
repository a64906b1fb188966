"""Incremental fetches (KIP-227), the client's half, one a broker: what to name in a request, what the broker remembers.

Pure. While the broker grants a session, a request names only what is new or has changed, and what to forget; an answer
holds only partitions with news. Where it grants none (session id 0), or has lost it, every request names everything.

Invariant: after each answer that was taken, ``remembered`` is what the broker will read for the next request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sparklog.errors import ErrorCode
from sparklog.protocol.hot.fetch import FetchPartition, ForgottenPartition
from sparklog.structs import TopicPartition

_NO_SESSION = 0
_FIRST_EPOCH = 0
_LAST_EPOCH = 2**31 - 1
LOST = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
"""Errors after which the next request names everything."""


class FetchPlan(NamedTuple):
    """The part of a request that depends on the session."""

    session_id: int
    epoch: int
    partitions: list[FetchPartition]
    forgotten: list[ForgottenPartition]

    @property
    def is_full(self) -> bool:
        """Whether it names everything, so that the answer does too."""
        return self.epoch == _FIRST_EPOCH


class FetchSession:
    """The session with one broker. ``plan``, then ``answered`` or ``reset``, in turns."""

    def __init__(self) -> None:
        self.remembered: dict[TopicPartition, FetchPartition] = {}
        self._id = _NO_SESSION
        self._epoch = _FIRST_EPOCH

    def plan(
        self,
        wanted: Mapping[TopicPartition, FetchPartition],
        touched: Collection[TopicPartition] | None = None,
    ) -> FetchPlan:
        """What to send to have these partitions read, in this order.

        ``touched``: the only ones that may not be as in the last plan, for a caller of thousands that knows; None if
        any may be.
        """
        before, self.remembered = self.remembered, dict(wanted)
        if self._epoch == _FIRST_EPOCH:
            return FetchPlan(self._id, self._epoch, list(wanted.values()), [])
        named = wanted if touched is None else touched
        changed = [wanted[tp] for tp in named if tp in wanted and before.get(tp) != wanted[tp]]
        forgotten = [
            ForgottenPartition(before[tp].topic, before[tp].topic_id, before[tp].partition)
            for tp in (before if touched is None else touched)
            if tp in before and (tp not in wanted or wanted[tp].topic_id != before[tp].topic_id)
        ]
        return FetchPlan(self._id, self._epoch, changed, forgotten)

    def answered(self, error: ErrorCode, session_id: int) -> None:
        """The broker's answer to the last plan."""
        is_another = self._epoch != _FIRST_EPOCH and session_id != self._id
        if error is not ErrorCode.NONE or session_id == _NO_SESSION or is_another:
            self.reset()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """Nothing is known of what the broker remembers: name everything in the next request."""
        self.remembered = {}
        self._id, self._epoch = _NO_SESSION, _FIRST_EPOCH
