"""Where an append comes from, which says how much of it is to be checked (Kafka's ``AppendOrigin``)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class AppendOrigin(Enum):
    """The writer of the batches."""

    CLIENT = "client"
    """A producer: everything is checked."""
    COORDINATOR = "coordinator"
    """A group's or transaction's coordinator: it writes markers, and batches of producers without sequences."""
    RAISED_MARKER = "raised marker"
    """A transaction's coordinator too, with a marker whose epoch lies above that of the batches that it ends: where a
    transaction of the very same epoch is open, it is the next one, and the marker comes late.
    """
    REPLICATION = "replication"
    """The leader, which has checked them: they are taken as they are."""


Verification = Callable[[int, int], None]
"""Asked with producer id and epoch before the first batch of a transaction is taken: raises ApiError unless the
transaction's coordinator says that it reaches this partition.
"""
