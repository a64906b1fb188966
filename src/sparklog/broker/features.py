"""The cluster's features, as ApiVersions tells them: what a client may count on beyond the versions of single APIs.

A broker in ZooKeeper mode cannot change the level of a feature while it runs (Kafka's UpdateFeatures), so the highest
is in force.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """``level`` is in force; levels 0 (it is off) up to it are known."""

    name: str
    level: int


FEATURES = (Feature("group.version", 1), Feature("transaction.version", 2))
"""``group.version`` 1: the consumer group protocol (KIP-848); ``transaction.version`` 2: an epoch a transaction, and
partitions that are added by their leaders (KIP-890). A client goes by these levels, not by the versions of the APIs."""

FINALIZED_EPOCH = 0
"""How often a level has changed."""
