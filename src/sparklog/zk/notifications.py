"""Folders in which Kafka's brokers tell each other what has changed (``ZkNodeChangeNotificationListener``).

Each notification is a sequential znode that names what changed. What it says now is somewhere else: whoever has missed
the same name twice reads it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sparklog.zk.znode_client import OnChange, ZnodeClient
from sparklog.zk.znodes import CONFIG_CHANGE_PREFIX, CONFIG_CHANGES, decode_config_change

Name = TypeVar("Name")


class NotificationFolder(Generic[Name]):
    """Failures raise what those of ``ZnodeClient`` do: call the methods by ``guarded`` or ``lasting``.

    ``decode`` makes the name of what changed of a znode's path and data, or raises MalformedZnode.
    """

    def __init__(self, zk: ZnodeClient, folder: str, prefix: str, decode: Callable[[str, bytes], Name]) -> None:
        self._zk = zk
        self._folder = folder
        self._prefix = prefix
        self._decode = decode

    @property
    def session_id(self) -> int:
        """The session that there is now; 0 when there is none."""
        return self._zk.session_id

    def numbers(self, on_change: OnChange | None = None) -> list[int]:
        """The numbers of the notifications, in order. ``on_change`` is called once, at the next."""
        return self._zk.numbers(self._folder, self._prefix, on_change)

    def name(self, number: int) -> Name | None:
        """What changed; None if it is forgotten already. Raises MalformedZnode."""
        path = f"{self._folder}/{self._prefix}{number:010d}"
        found = self._zk.stored(path)
        return None if found is None else self._decode(path, found.data)

    def forget(self, kept_ms: int) -> None:
        """Remove what was told more than ``kept_ms`` before the newest; ZooKeeper's clock has stamped both."""
        self._zk.forget_older(self._folder, self._prefix, kept_ms)


def config_changes(zk: ZnodeClient) -> NotificationFolder[str]:
    """Whose settings changed: the entity's path below ``/config``."""
    return NotificationFolder(zk, CONFIG_CHANGES, CONFIG_CHANGE_PREFIX, decode_config_change)
