"""What the error code of a partition in the answer to a Produce means, for every producer. Values only.

Invariant: a code has one meaning for all producers. What follows from it depends on the batch, and is decided where the
batch is numbered (``sequences``). One that gets no answer counts as refused with NETWORK_EXCEPTION: it may be written.
"""

from __future__ import annotations

from enum import Enum, auto

from sparklog.errors import ErrorCode

_E = ErrorCode
_WRITTEN = frozenset({_E.NONE, _E.DUPLICATE_SEQUENCE_NUMBER})
_OUT_OF_SEQUENCE = frozenset({_E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.UNKNOWN_PRODUCER_ID})
TOO_LARGE = frozenset({_E.MESSAGE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE})
_NOT_WRITTEN = frozenset(
    {
        _E.CORRUPT_MESSAGE,
        _E.NOT_ENOUGH_REPLICAS,
        _E.FENCED_LEADER_EPOCH,
        _E.UNKNOWN_LEADER_EPOCH,
        _E.CONCURRENT_TRANSACTIONS,
        _E.COORDINATOR_LOAD_IN_PROGRESS,
        _E.COORDINATOR_NOT_AVAILABLE,
        _E.NOT_COORDINATOR,
        _E.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""The retriable errors that a leader gives before it appends and never behind it. NOT_LEADER_OR_FOLLOWER is none: with
``acks=all`` it is the answer also where the leadership was lost while the batch waited for its replicas."""


class Refusal(Enum):
    """Why a batch was not taken."""

    PASSING = auto()
    """The same batch may be taken later, by this leader or another (``cluster.leader_errors`` tells which)."""
    OUT_OF_SEQUENCE = auto()
    """Its numbers are not those that the leader waits for, or the leader does not know the producer or its epoch."""
    FENCED = auto()
    """Another producer has taken over the transactional id."""
    TOO_LARGE = auto()
    """It may be taken in parts."""
    FINAL = auto()
    """It will never be taken."""


def refusal_of(code: ErrorCode, *, is_transactional: bool) -> Refusal | None:
    """What a code means; None where the batch is in the log, with this attempt or an earlier one."""
    if code in _WRITTEN:
        return None
    if code is _E.PRODUCER_FENCED or (is_transactional and code is _E.INVALID_PRODUCER_EPOCH):
        return Refusal.FENCED
    if code in _OUT_OF_SEQUENCE or code is _E.INVALID_PRODUCER_EPOCH:
        return Refusal.OUT_OF_SEQUENCE
    if code in TOO_LARGE:
        return Refusal.TOO_LARGE
    return Refusal.PASSING if code.retriable else Refusal.FINAL


def leaves_doubt(code: ErrorCode) -> bool:
    """Whether a batch that was refused with this passing error may have been written all the same."""
    return code not in _NOT_WRITTEN
