"""The client ids of jobs, by which quotas hold them; what the client's own settings say as ``client.id`` counts first.

They are of programs that move much at once, and a quota of such an id slows these alone: other clients have
``sparklog``, or ids of their own. Each job needs some rights, which are told to a user that lacks one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

COMMAND: Final = "sparklog"
"""Of every other command, and of all clients."""
COMPACT: Final = "sparklog-compact"
OFFLOAD: Final = "sparklog-offload"
LOAD: Final = "sparklog-load"
BACKUP: Final = "sparklog-backup"
RESTORE: Final = "sparklog-restore"
ERASE: Final = "sparklog-erase"


class Rights(NamedTuple):
    """What a job asks of brokers; ``cluster`` and ``more`` are empty where it needs nothing of the kind."""

    topic: str
    """The operations on each topic that it is told of."""
    cluster: str = ""
    """The operation on the cluster, and when it is needed."""
    more: str = ""

    def __str__(self) -> str:
        return ", and ".join(filter(None, (f"{self.topic} on each topic", self.more, self.cluster)))


RIGHTS: Final[Mapping[str, Rights]] = {
    COMPACT: Rights("ALTER", "DESCRIBE on the cluster to name topics in a dry run"),
    OFFLOAD: Rights("READ and DESCRIBE_CONFIGS", more="READ on the group if retention waits for it"),
    LOAD: Rights(
        "READ, WRITE and DESCRIBE_CONFIGS",
        "DESCRIBE on the cluster unless it loads via produce",
        "WRITE on the transactional id and READ on the group 'sparklog-load.NAME'",
    ),
    BACKUP: Rights("READ and DESCRIBE_CONFIGS"),
    RESTORE: Rights(
        "CREATE, WRITE, ALTER and DESCRIBE_CONFIGS",
        "DESCRIBE on the cluster",
        "unless with --no-groups READ on each topic and group",
    ),
    ERASE: Rights("DELETE"),
}
"""What the user of each job needs (docs/security.md: What Spark needs)."""


def of_job(client_id: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of the job's client: ``settings``, with this client id where they have none."""
    return {"client.id": client_id, **settings}
