"""Which brokers hold the replicas of a new topic."""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.errors import ApiError, ErrorCode


def assign_replicas(
    brokers: Sequence[int], partitions: int, replication_factor: int, *, start: int = 0, shift: int = 0
) -> dict[int, tuple[int, ...]]:
    """Replicas of each partition, preferred leader first.

    First replicas go round the brokers from ``start``; the others follow at a distance that grows by one each time
    round, so that the partitions of one broker have their copies spread over all the rest. Source: Kafka 3.9,
    ``AdminUtils``.
    Raises ApiError(INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR).
    """
    if partitions < 1:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"a topic needs at least 1 partition, not {partitions}")
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
