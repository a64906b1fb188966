"""Which replica a reader asks for each partition: the leader, or the follower that the leader named (KIP-392). Pure.

Rules of Kafka 3.9 (``AbstractFetch.selectReadReplica``, ``SubscriptionState``): a follower that was named is asked for
``metadata.max.age.ms``, while it is among the brokers; then, and after whatever it refuses, the leader is asked again.

One rule is our own. A leader names a follower for as long as the cluster counts it as alive, and gives no records
itself. So a reader that could not use a follower says no rack for a while, and is served by the leader.

Times are seconds on a clock that does not go back.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from sparklog.structs import BrokerId, TopicPartition

LEADER_ALONE_S: Final = 10.0
"""How long no rack is said after a follower failed. Within ``zookeeper.session.timeout.ms``, 18 s by default, or in
the next such time, the cluster finds out too.
"""


class ReadReplicas:
    """The choices of one reader, which stands in ``rack``; an empty one is none, and then leaders name nobody."""

    def __init__(self, rack: str, max_age_s: float) -> None:
        self._rack = rack
        self._max_age_s = max_age_s
        self._named: dict[TopicPartition, tuple[BrokerId, float]] = {}
        self._leader_alone_until = 0.0

    def rack(self, now: float) -> str:
        """What to say in a Fetch."""
        return "" if now < self._leader_alone_until else self._rack

    def named(self, tp: TopicPartition, broker: int, now: float) -> None:
        """The leader says who is to be asked."""
        self._named[tp] = BrokerId(broker), now + self._max_age_s

    def choose(self, tp: TopicPartition, leader: BrokerId, brokers: Container[BrokerId], now: float) -> BrokerId:
        """The broker to ask now; ``brokers`` are those that are in the cluster."""
        if not self._named:
            return leader
        broker, until = self._named.get(tp, (leader, now))
        if now <= until and broker in brokers:
            return broker
        self._named.pop(tp, None)
        return leader

    def back_to_leader(self, tp: TopicPartition) -> bool:
        """The answer was no use; whether it was a follower's, so that the leader is to be asked before it is judged."""
        return self._named.pop(tp, None) is not None

    def failed(self, tp: TopicPartition, now: float) -> bool:
        """As ``back_to_leader``, where the follower cannot be reached or does not get on."""
        was_named = self.back_to_leader(tp)
        if was_named:
            self._leader_alone_until = now + LEADER_ALONE_S
        return was_named
