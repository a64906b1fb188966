"""Sticky: as even as the subscriptions allow, and as little moved as that allows.

How it is found:

1. Every member keeps what it claims to own. Of several claims to a partition the one of the highest generation counts;
   of several of one generation none does.
2. Partitions without an owner go, one by one, to the subscriber with the fewest.
3. While a member has at least two partitions more than another that may read one of them, that one moves; what its
   holder has newly got moves before what it owned.

Each move makes the sum of the squares of the members' loads smaller, so it ends; then no single move makes the group
more even. With equal subscriptions the loads differ by one at most, and nothing moves that need not. Racks are not
looked at.

``cooperative-sticky`` is the same, and then leaves out what another member still has: that member gives it up first,
and the group rebalances once more.

User data, for members that cannot or, being eager, do not tell what they own (Kafka 3.9, ``StickyAssignor``)::

    sticky                assignment [topic string, partitions [int32]], from its version 1 on: generation int32
    cooperative-sticky    generation int32
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparklog.client.consumer.assignors.base import Assigned, GroupMember, partitions_of, ranked, subscribed
from sparklog.errors import RemoteProtocolError
from sparklog.protocol.subscription import NO_GENERATION, read_partitions, write_partitions
from sparklog.protocol.wire import WireReader, WireWriter
from sparklog.structs import TopicPartition


class Claim(NamedTuple):
    """What a member says it owns, as of which generation."""

    partitions: tuple[TopicPartition, ...]
    generation: int


_NOTHING = Claim((), NO_GENERATION)


class StickyAssignor:
    """Kafka's ``sticky``: eager, so a member's last assignment is in its user data."""

    name = "sticky"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        if generation == NO_GENERATION:
            return None
        writer = WireWriter()
        write_partitions(writer, owned)
        writer.int32(generation)
        return writer.joined()

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assigned:
        claims = {member.member_id: _eager_claim(member) for member in members}
        return _Balance(partition_counts, members, claims).assign()


class CooperativeStickyAssignor:
    """Kafka's ``cooperative-sticky``."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        writer = WireWriter()
        writer.int32(generation)
        return writer.joined()

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assigned:
        claims = {member.member_id: _cooperative_claim(member) for member in members}
        balance = _Balance(partition_counts, members, claims)
        assigned = balance.assign()
        holders: dict[TopicPartition, list[str]] = {}
        for member_id, claim in claims.items():
            for tp in claim.partitions:
                holders.setdefault(tp, []).append(member_id)
        return {
            member_id: [
                tp
                for tp in partitions
                if balance.owners.get(tp) == member_id or not set(holders.get(tp, ())) - {member_id}
            ]
            for member_id, partitions in assigned.items()
        }


def _eager_claim(member: GroupMember) -> Claim:
    data = member.subscription.user_data
    if not data:
        return _NOTHING
    reader = WireReader(memoryview(data))
    try:
        partitions = read_partitions(reader)
        return Claim(partitions, reader.int32() if reader.position < len(data) else NO_GENERATION)
    except RemoteProtocolError:
        return _NOTHING


def _cooperative_claim(member: GroupMember) -> Claim:
    subscription = member.subscription
    data = subscription.user_data or b""
    if subscription.version >= 2 or len(data) < 4:
        return Claim(subscription.owned, subscription.generation)
    return Claim(subscription.owned, WireReader(memoryview(data)).int32())


class _Balance:
    """One assignment in the making."""

    def __init__(
        self, partition_counts: Mapping[str, int], members: Sequence[GroupMember], claims: Mapping[str, Claim]
    ) -> None:
        order = ranked(members)
        self._rank = {member.member_id: number for number, member in enumerate(order)}
        self._partitions = [
            tp
            for topic in sorted(subscribed(order) & partition_counts.keys())
            for tp in partitions_of(topic, partition_counts[topic])
        ]
        self._readers: dict[str, list[str]] = {}
        for member in order:
            for topic in dict.fromkeys(member.subscription.topics):
                self._readers.setdefault(topic, []).append(member.member_id)
        self._held: dict[str, dict[TopicPartition, None]] = {member.member_id: {} for member in order}
        self.owners = self._owners(claims)

    def assign(self) -> Assigned:
        for tp, owner in self.owners.items():
            self._held[owner][tp] = None
        for tp in self._partitions:
            if tp not in self.owners:
                self._held[self._least(tp.topic)][tp] = None
        while self._move_one():
            pass
        return {member_id: sorted(held) for member_id, held in self._held.items()}

    def _owners(self, claims: Mapping[str, Claim]) -> dict[TopicPartition, str]:
        """The owner of each partition by the claims that count."""
        existing = set(self._partitions)
        best: dict[TopicPartition, int] = {}
        owners: dict[TopicPartition, str | None] = {}
        for member_id in self._rank:
            partitions, generation = claims[member_id]
            for tp in dict.fromkeys(partitions):
                if tp not in existing:
                    continue
                if tp not in best or generation > best[tp]:
                    best[tp], owners[tp] = generation, member_id
                elif generation == best[tp]:
                    owners[tp] = None
        return {tp: owner for tp in self._partitions if (owner := owners.get(tp)) in self._readers[tp.topic] and owner}

    def _load(self, member_id: str) -> tuple[int, int]:
        return len(self._held[member_id]), self._rank[member_id]

    def _least(self, topic: str) -> str:
        return min(self._readers[topic], key=self._load)

    def _move_one(self) -> bool:
        """Move one partition from the fullest to the emptiest member, if that makes the group more even.

        The taker has the least of all who read anything that the giver holds. The partition's owner is one of them, so
        to give it back to its owner in place of the taker would never make the group more even.
        """
        for giver in sorted(self._held, key=self._load, reverse=True):
            held = self._held[giver]
            taker = min((self._least(topic) for topic in {tp.topic for tp in held}), key=self._load, default=giver)
            if len(held) - len(self._held[taker]) < 2:
                continue
            movable = [tp for tp in held if taker in self._readers[tp.topic]]
            moved = next((tp for tp in reversed(movable) if self.owners.get(tp) != giver), movable[-1])
            del held[moved]
            self._held[taker][moved] = None
            return True
        return False
