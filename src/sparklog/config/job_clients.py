"""The client ids of jobs, by which quotas hold them; what the client's own settings say as ``client.id`` counts first.

They are of programs that move much at once, and a quota of such an id slows these alone: other clients have
``sparklog``, or ids of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COMMAND: Final = "sparklog"
"""Of every other command, and of all clients."""
COMPACT: Final = "sparklog-compact"
OFFLOAD: Final = "sparklog-offload"
LOAD: Final = "sparklog-load"
BACKUP: Final = "sparklog-backup"
RESTORE: Final = "sparklog-restore"
ERASE: Final = "sparklog-erase"


def of_job(client_id: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of the job's client: ``settings``, with this client id where they have none."""
    return {"client.id": client_id, **settings}
