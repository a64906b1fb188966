"""Which brokers hold the replicas of new partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from sparklog.errors import ApiError, ErrorCode

MAX_PARTITIONS = 10_000
"""What a znode of a megabyte holds with room to spare, and what a request may make a broker do."""


def check_partition_count(partitions: int) -> None:
    """Raises ApiError(INVALID_PARTITIONS) unless a topic may have as many."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; a topic has 1 to {MAX_PARTITIONS}")


def assign_replicas(
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    *,
    start: int = 0,
    shift: int = 0,
    first_number: int = 0,
    racks: Mapping[int, str | None] | None = None,
) -> dict[int, tuple[int, ...]]:
    """Replicas of each partition from ``first_number`` on, preferred leader first.

    First replicas go round the brokers from ``start``; the others follow at a distance that grows by one each time
    round, so that the partitions of one broker have their copies spread over all the rest. Where every broker says in
    which rack it stands, no rack has two replicas of a partition while another has none. Source: Kafka 3.9,
    ``AdminUtils``.
    Raises ApiError(INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR).
    """
    check_partition_count(partitions)
    if not 1 <= replication_factor <= len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} with {len(brokers)} live brokers",
        )
    known = {broker: (racks or {}).get(broker) for broker in sorted(brokers)}
    rack_of = {broker: rack or "" for broker, rack in known.items()} if all(known.values()) else None
    ordered = list(known) if rack_of is None else _racks_by_turns(rack_of)
    assignment = {}
    for number in range(first_number, first_number + partitions):
        if number > 0 and number % len(ordered) == 0:
            shift += 1
        first = (number + start) % len(ordered)
        if rack_of is None:
            others = [_follower(ordered, first, shift, step) for step in range(replication_factor - 1)]
        else:
            others = _over_racks(ordered, rack_of, first, shift, replication_factor - 1)
        assignment[number] = (ordered[first], *others)
    return assignment


def _follower(ordered: Sequence[int], first: int, shift: int, step: int) -> int:
    distance = 1 + (shift + step) % (len(ordered) - 1)
    return ordered[(first + distance) % len(ordered)]


def _racks_by_turns(rack_of: Mapping[int, str]) -> list[int]:
    """The brokers, one of each rack after the other."""
    of_rack: dict[str, list[int]] = {}
    for broker, rack in rack_of.items():
        of_rack.setdefault(rack, []).append(broker)
    rounds = zip_longest(*(of_rack[rack] for rack in sorted(of_rack)))
    return [broker for each in rounds for broker in each if broker is not None]


def _over_racks(ordered: Sequence[int], rack_of: Mapping[int, str], first: int, shift: int, count: int) -> list[int]:
    """``count`` followers of the first replica, in racks without a replica as long as there are any."""
    chosen, racks, all_racks = [ordered[first]], {rack_of[ordered[first]]}, set(rack_of.values())
    step = 0
    while len(chosen) <= count:
        broker = _follower(ordered, first, shift * len(all_racks), step)
        step += 1
        if broker not in chosen and (rack_of[broker] not in racks or racks == all_racks):
            chosen.append(broker)
            racks.add(rack_of[broker])
    return chosen[1:]
