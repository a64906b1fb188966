"""Which brokers there are, and what they tell the controller: ``/brokers/ids``, their lives, failed log directories."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress

from kazoo.exceptions import NodeExistsError

from sparklog.errors import BrokerAddressTaken, BrokerIdTaken, CoordinationError, MalformedZnode
from sparklog.zk import znodes
from sparklog.zk.transactions import OPS_A_TRANSACTION, as_controller, check_office, failed, remove
from sparklog.zk.znode_client import OnChange, ZnodeClient
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)


class Brokers:
    """The brokers of a cluster. ``between_brokers`` names the listener by which they reach one another."""

    def __init__(self, zk: ZnodeClient, between_brokers: str) -> None:
        self._zk = zk
        self._between_brokers = between_brokers

    def owner(self, broker_id: int) -> int | None:
        """The session that registered the broker id, None if it is free."""
        stat = self._zk.kazoo.exists(znodes.broker_path(broker_id))
        return None if stat is None else int(stat.ephemeralOwner)

    def check_addresses(self, info: BrokerInfo) -> None:
        """Raises BrokerAddressTaken if a broker of another id is registered with an address of this one's.

        What is meant for one of them would come to the other.
        """
        own = {each.endpoint for each in info.all_listeners}
        for other in self.live().values():
            shared = own.intersection(each.endpoint for each in other.all_listeners)
            owner = self.owner(other.id) if shared and other.id != info.id else None
            if owner is not None:
                raise BrokerAddressTaken(str(min(shared)), other.id, owner)

    def register(self, info: BrokerInfo, now_ms: int) -> int:
        """Announce the broker for as long as the session lives; its epoch is returned.

        To be called again after an error: what this session has registered already is found. Raises BrokerIdTaken if
        another session holds the id.
        """
        path = znodes.broker_path(info.id)
        with suppress(NodeExistsError):
            self._zk.kazoo.create(path, znodes.encode_broker(info, now_ms), ephemeral=True)
        stat = self._zk.kazoo.exists(path)
        if stat is None:
            raise CoordinationError(f"the registration of broker {info.id} vanished; the session was lost")
        if stat.ephemeralOwner != self._zk.session_id:
            raise BrokerIdTaken(info.id, int(stat.ephemeralOwner))
        return int(stat.czxid)

    def live(self, on_change: OnChange | None = None) -> dict[int, BrokerInfo]:
        """The live brokers by id; without one that says nothing that can be told of it, for that is not the others'."""
        found = {}
        for name in self._zk.children(znodes.BROKER_IDS, on_change):
            node = self._zk.get(f"{znodes.BROKER_IDS}/{name}")
            if node is None:
                continue
            try:
                found[int(name)] = znodes.decode_broker(int(name), node[0], node[1].czxid, self._between_brokers)
            except (MalformedZnode, ValueError) as error:
                _logger.error("broker %s is left alone: %s", name, error)
        return found

    def lives(self) -> dict[int, int]:
        """For each broker the life of which the partition states take account; none if that cannot be read."""
        node = self._zk.get(znodes.LIVES)
        try:
            return {} if node is None else znodes.decode_lives(node[0])
        except MalformedZnode as error:
            _logger.error("every broker that comes back is taken for one that has lost its end: %s", error)
            return {}

    def write_lives(self, lives: Mapping[int, int], controller_epoch_version: int) -> None:
        """Raises CoordinationError if another controller has taken over."""
        transaction = as_controller(self._zk.kazoo, controller_epoch_version)
        transaction.set_data(znodes.LIVES, znodes.encode_lives(lives))
        results = list(transaction.commit())
        check_office(results)
        if failed(results):
            raise CoordinationError(f"{znodes.LIVES} cannot be written: {results[1]}")

    def report_log_dir_failure(self, broker_id: int) -> None:
        """Have the controller ask the broker which of its partitions it still holds."""
        path = f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}"
        self._zk.kazoo.create(path, znodes.encode_log_dir_event(broker_id), sequence=True)

    def log_dir_events(self, on_change: OnChange | None = None) -> dict[str, int]:
        """The reports that no controller has taken up yet: name, and the broker it is about (-1: it cannot be read)."""
        events = {}
        for name in self._zk.children(znodes.LOG_DIR_EVENTS, on_change):
            path = f"{znodes.LOG_DIR_EVENTS}/{name}"
            node = self._zk.get(path)
            if node is not None:
                events[name] = znodes.decode_log_dir_event(path, node[0])
        return events

    def forget_log_dir_events(self, names: Iterable[str], controller_epoch_version: int) -> None:
        """Remove reports that were taken up. Raises CoordinationError if another controller has taken over."""
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names]
        for start in range(0, len(paths), OPS_A_TRANSACTION):
            remove(self._zk.kazoo, paths[start : start + OPS_A_TRANSACTION], controller_epoch_version)
