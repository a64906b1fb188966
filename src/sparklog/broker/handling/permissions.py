"""What can be done with things, and what is never done on purpose, whoever asks.

The topics in which the coordinators and Spark's sinks keep what they know are protected: they are not deleted or given
other partitions or another retention, unless ``sparklog.internal.topics.protect`` is false. Kafka leaves that to an
authorizer, and without one refuses only DeleteRecords, as any compacted topic does.

Source: Kafka 3.9, ``AclOperation``, ``AclEntry``, ``ReplicaManager``.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.security.access import OPERATIONS_ON, Operation, ResourceType
from sparklog.structs import STATE_TOPICS

_WHAT_IS_KEPT = ("cleanup.policy", "retention.ms", "retention.bytes")
_COMPACTED = "compact"


def check_state_is_kept(config: BrokerConfig, topic: str, deed: str) -> None:
    """Raises ApiError(POLICY_VIOLATION) for a topic that is protected; ``deed`` completes "it cannot be"."""
    if config.internal_topics_protect and topic in STATE_TOPICS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{topic} holds what groups, transactions or Spark's sinks have stored, so it cannot be {deed}; brokers "
            "with sparklog.internal.topics.protect=false allow it",
        )


def check_settings_keep_state(
    config: BrokerConfig, topic: str, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """The same for a change of a topic's settings. Those that only say when and how are free."""
    for name in _WHAT_IS_KEPT:
        becomes_compacted = name == "cleanup.policy" and after.get(name) == _COMPACTED
        if before.get(name) != after.get(name) and not becomes_compacted:
            check_state_is_kept(config, topic, f"given another {name}")


ON_TOPIC = OPERATIONS_ON[ResourceType.TOPIC]
ON_GROUP = OPERATIONS_ON[ResourceType.GROUP]
ON_CLUSTER = OPERATIONS_ON[ResourceType.CLUSTER]


Allowed = frozenset[Operation] | None
"""What a caller may do with a thing; None where it did not ask."""
