"""Which member of a group reads what: the leader's decision, by the strategies that Kafka's clients know by name.

Invariants of every strategy, whatever the members claim:

- each partition of a topic that at least one member subscribes to goes to exactly one member, who subscribes to it
  (cooperative-sticky alone leaves out, for one generation, what its old owner must give up first);
- the same group and the same topics give the same assignment, in whatever order the members are listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.client.consumer.assignors.base import Assigned, Assignor, GroupMember
from sparklog.client.consumer.assignors.range import RangeAssignor
from sparklog.client.consumer.assignors.roundrobin import RoundRobinAssignor
from sparklog.client.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from sparklog.errors import ConfigError

__all__ = ["ASSIGNORS", "Assigned", "Assignor", "GroupMember", "assignors_named"]

ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
_JAVA_PREFIX = "org.apache.kafka.clients.consumer."
_BY_CLASS = {f"{_JAVA_PREFIX}{type(each).__name__}": each.name for each in ASSIGNORS.values()}


def assignors_named(names: Sequence[str]) -> list[Assignor]:
    """The strategies of these names, Java's class names among them. Raises ConfigError for another."""
    unknown = [name for name in names if _BY_CLASS.get(name, name) not in ASSIGNORS]
    if unknown or not names:
        raise ConfigError(
            f"partition.assignment.strategy: {', '.join(unknown) or 'an empty list'} is not known;"
            f" choose from {', '.join(ASSIGNORS)}"
        )
    return [ASSIGNORS[name] for name in dict.fromkeys(_BY_CLASS.get(name, name) for name in names)]
