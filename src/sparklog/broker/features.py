"""The features that all brokers of the cluster have and use, as ApiVersions tells them (KIP-584).

Every broker that speaks with ZooKeeper is of this software, so what one supports is in force in all: the epoch of the
table never changes. A client goes by the finalized level, not by the versions of the APIs.
"""

from __future__ import annotations

from typing import NamedTuple

EPOCH = 0


class Feature(NamedTuple):
    """A feature in force at ``level``; this broker could do with any from ``lowest`` to that."""

    name: str
    lowest: int
    level: int


FEATURES = (
    Feature(
        "transaction.version", 0, 2
    ),  # an epoch a transaction, partitions that are added by their leaders (KIP-890)
)
