"""``ZkClient``: the cluster's tree in ZooKeeper. Each noun of it has a module; ``znode_client.py`` is below them all.

What is written, and by whom:

- A decision of the controller (partition states, added partitions, the end of a topic) is one transaction with a check
  of the version of ``/controller_epoch``: a controller that was deposed writes nothing, however late it comes.
- A wish (a new topic, new settings, a topic to delete) may be written by every broker, in one transaction that holds
  all of it and fails whole where something else stands in its place.
- An ephemeral znode goes with its session, or is deleted by it; the session of a process that is proved dead is ended
  as that process would have ended it. A broker deletes one of another's: a controller's that is gone, with its epoch.

A session may end because ZooKeeper has lost what it held, or because another one stands at its address. So the first
call in each session finds out whether the cluster there is the one that this client began with, and no call is made in
another: what a broker would read there (no topics, no settings, no lists) would cost it all that it holds.
"""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Callable
from typing import TypeVar

from kazoo.exceptions import NodeExistsError

from sparklog.config.listeners import PLAINTEXT
from sparklog.config.zookeeper_security import OPEN, ZooKeeperSecurity
from sparklog.errors import CoordinationError
from sparklog.zk import znodes
from sparklog.zk.brokers import Brokers
from sparklog.zk.configs import Configs
from sparklog.zk.consumer_offsets import ConsumerOffsets
from sparklog.zk.office import Office
from sparklog.zk.partition_states import PartitionStates
from sparklog.zk.producer_ids import ProducerIds
from sparklog.zk.topics import Topics
from sparklog.zk.znode_client import ZnodeClient

T = TypeVar("T")


class ZkClient(ZnodeClient):
    """A session, and the cluster's tree by its nouns. Every failure raises CoordinationError."""

    def __init__(
        self,
        connect: str,
        *,
        session_timeout: float,
        connect_timeout: float = 15.0,
        on_session: Callable[[str], None],
        makes_chroot: bool = True,
        between_brokers: str = PLAINTEXT,
        security: ZooKeeperSecurity = OPEN,
        given_up: threading.Event | None = None,
    ) -> None:
        """As ``ZnodeClient``."""
        self._cluster_id = ""
        """The one that this client began with; empty until it was asked for."""
        self._known_session = 0
        """The last one of which it is known that it belongs to that cluster."""
        super().__init__(
            connect,
            session_timeout=session_timeout,
            connect_timeout=connect_timeout,
            on_session=on_session,
            makes_chroot=makes_chroot,
            security=security,
            given_up=given_up,
        )
        self.brokers = Brokers(self, between_brokers)
        self.configs = Configs(self)
        self.consumer_offsets = ConsumerOffsets(self)
        self.office = Office(self)
        self.producer_ids = ProducerIds(self)
        self.states = PartitionStates(self)
        self.topics = Topics(self)

    def guarded(self, call: Callable[..., T], *args: object) -> T:
        """As ``ZnodeClient.guarded``; CoordinationError also where this is another cluster than it was."""
        if self._cluster_id and self._known_session != self.session_id:
            super().guarded(self._require_cluster)
        return super().guarded(call, *args)

    def _require_cluster(self) -> None:
        session, node = self.session_id, self.get(znodes.CLUSTER_ID)
        found = None if node is None else znodes.decode_cluster_id(node[0])
        if found != self._cluster_id:
            there = "knows of no cluster" if found is None else f"is that of cluster.id={found}"
            raise CoordinationError(
                f"the ZooKeeper that answers now {there}, and not that of cluster.id={self._cluster_id}, to which this"
                " broker belongs: nothing is read or written there. Has ZooKeeper lost its data directory? Bring it"
                " back, or name the right ensemble (zookeeper.connect)"
            )
        if session == self.session_id:
            self._known_session = session

    def ensure_tree(self) -> None:
        """Make the znodes that every cluster has."""
        for path in znodes.PERSISTENT_PATHS:
            self.kazoo.ensure_path(path)

    def cluster_id(self) -> str:
        """The cluster's id, made by the broker that comes first. No other cluster is spoken to from now on."""
        self.kazoo.ensure_path("/cluster")
        fresh = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        try:
            self.kazoo.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(fresh))
        except NodeExistsError:
            fresh = znodes.decode_cluster_id(self.kazoo.get(znodes.CLUSTER_ID)[0])
        self._cluster_id = fresh
        return fresh
