"""How many leaders this broker has elected as the controller, how many of them were not in sync, and how long it took.

Counted over all its terms of office. The first leader of a new partition is no election.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparklog.net.request_meter import RequestMeter
from sparklog.structs import NO_LEADER, TopicPartition


class Elections:
    """Told after each look at the cluster."""

    def __init__(self) -> None:
        self.leaders = 0
        """Partitions that were given another leader."""
        self.unclean = 0
        """Those of them whose new leader was not in sync."""
        self.times = RequestMeter("elections", 1)
        """Of the looks in which a leader changed: from their beginning until ZooKeeper had the states."""

    def note(
        self,
        before: Mapping[TopicPartition, int],
        after: Mapping[TopicPartition, int],
        unclean: Collection[TopicPartition],
        seconds: float,
    ) -> None:
        """The leaders ``before`` a look, and ``after`` it those of the partitions that were written."""
        elected = [tp for tp, leader in after.items() if leader not in (NO_LEADER, before.get(tp, leader))]
        if elected:
            self.leaders += len(elected)
            self.unclean += sum(tp in unclean for tp in elected)
            self.times.answer(seconds)
