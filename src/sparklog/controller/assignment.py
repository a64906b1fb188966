"""Which brokers hold the replicas of a new topic."""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.errors import ApiError, ErrorCode

MAX_PARTITIONS = 10_000
"""What a znode of a megabyte holds with room to spare, and what a request may make a broker do."""


def check_partition_count(partitions: int) -> None:
    """Raises ApiError(INVALID_PARTITIONS) unless a topic may have as many."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; a topic has 1 to {MAX_PARTITIONS}")


def assign_replicas(
    brokers: Sequence[int], partitions: int, replication_factor: int, *, start: int = 0, shift: int = 0
) -> dict[int, tuple[int, ...]]:
    """Replicas of each partition, preferred leader first.

    First replicas go round the brokers from ``start``; the others follow at a distance that grows by one each time
    round, so that the partitions of one broker have their copies spread over all the rest. Source: Kafka 3.9,
    ``AdminUtils``.
    Raises ApiError(INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR).
    """
    check_partition_count(partitions)
    if not 1 <= replication_factor <= len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} with {len(brokers)} live brokers",
        )
    ordered = sorted(brokers)
    assignment = {}
    for number in range(partitions):
        if number > 0 and number % len(ordered) == 0:
            shift += 1
        first = (number + start) % len(ordered)
        replicas = [ordered[first]]
        for step in range(replication_factor - 1):
            distance = 1 + (shift + step) % (len(ordered) - 1)
            replicas.append(ordered[(first + distance) % len(ordered)])
        assignment[number] = tuple(replicas)
    return assignment
