"""The markers that a prepared transaction owes its partitions, and what each answer to one means.

Source: Kafka 3.9, ``TransactionMarkerChannelManager``, ``TransactionMarkerRequestCompletionHandler``.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple, Protocol

from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.txn.state import ClientVersion, Producer, Transaction, TransactionState


class Marker(NamedTuple):
    """One decision, the same for every partition of a transaction.

    ``raises_epoch``: its epoch lies above that of the transaction's batches, so a partition in which the same epoch
    has a transaction open has got the marker before, and what is open is the next transaction.
    """

    producer: Producer
    commit: bool
    coordinator_epoch: int
    raises_epoch: bool = False


def marker_of(prepared: Transaction, coordinator_epoch: int) -> Marker:
    commits = prepared.state is TransactionState.PREPARE_COMMIT
    raises_epoch = prepared.client_version is not ClientVersion.CLASSIC
    return Marker(prepared.producer, commits, coordinator_epoch, raises_epoch)


class MarkerWriter(Protocol):
    """The partitions of the cluster, as the coordinator reaches them."""

    async def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Write the marker to each partition at its leader, wherever that is; a code for each, never an exception.

        UNKNOWN_TOPIC_OR_PARTITION may mean that the leader does not know it yet.
        """

    async def deleted(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those of ``partitions`` that exist no longer; none if that cannot be found out now."""


class Progress(Enum):
    """Where an answer leaves a partition."""

    DONE = "done"
    AGAIN = "again"
    """Sooner or later the partition can take the marker."""
    OVER = "over"
    """The partition knows a newer epoch of the producer: what that wrote there last, or its end, is decided by others,
    and under this marker's epoch nothing can be written there any more.
    """


_PROGRESS = {
    ErrorCode.NONE: Progress.DONE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Progress.DONE,  # such a partition has taken none of its batches either
    ErrorCode.INVALID_PRODUCER_EPOCH: Progress.OVER,
}


def progress(code: ErrorCode) -> Progress:
    """An unexpected code is a reason to try again and to say so, never one to leave a partition undecided.

    So is TRANSACTION_COORDINATOR_FENCED, where Kafka gives up: a coordinator that was replaced will be told by the
    controller, and a partition that was deceived will find out that it was.
    """
    return _PROGRESS.get(code, Progress.AGAIN)
