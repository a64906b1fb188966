"""A cluster for tests: quick ZooKeeper, free ports, and no supervisor that repairs what a test breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sparklog.config.properties import load_properties
from sparklog.config.zookeeper_security import OPEN, ZooKeeperSecurity
from sparklog.local.broker import BrokerProcess
from sparklog.local.cluster import LocalCluster
from sparklog.local.secured import SecureDirectory
from sparklog.testing.broker import settings_arguments


class ClusterHarness(LocalCluster):
    """``LocalCluster`` on free ports, with short sessions and unsupervised: killed brokers stay dead.

    ``settings`` are every broker's, as for ``BrokerHarness``; ``racks`` those of the brokers, in their order.
    """

    tick_time_ms = 500
    fsync_zookeeper = False
    supervised = False

    def __init__(
        self,
        data_dir: Path,
        brokers: int = 1,
        settings: Mapping[str, object] | None = None,
        racks: Sequence[str] = (),
        *,
        zookeepers: int | None = None,
    ) -> None:
        self.own_args = {number: ("--set", f"broker.rack={rack}") for number, rack in enumerate(racks)}
        arguments = settings_arguments(settings)
        super().__init__(data_dir, brokers, base_port=0, broker_args=arguments, zookeepers=zookeepers)

    def broker(self, broker_id: int) -> BrokerProcess:
        return self.brokers[broker_id]

    def kill_broker(self, broker_id: int) -> None:
        """SIGKILL it; what it had not flushed is gone, as in a crash of the process."""
        self.broker(broker_id).kill()

    def stop_broker(self, broker_id: int) -> None:
        """Shut it down cleanly."""
        self.broker(broker_id).stop()

    def start_broker(self, broker_id: int) -> None:
        """Start it again where it was."""
        self.broker(broker_id).start()


class SecuredClients:
    """What the clients of a cluster are told that lets nobody in without a password or a certificate."""

    secured: SecureDirectory | None
    """None where it lets everybody in."""

    def client_file(self, user: str) -> Path:
        """The settings of the clients of ``admin`` or ``spark``, as Kafka's tools take them."""
        assert self.secured is not None
        return self.secured.client_settings(user)

    def client(self, user: str) -> dict[str, str]:
        """The same by their names."""
        return load_properties(self.client_file(user))

    @property
    def zookeeper_security(self) -> ZooKeeperSecurity:
        """How to connect to its ZooKeeper, once it was started."""
        if self.secured is None:
            return OPEN
        return ZooKeeperSecurity.divide(load_properties(self.secured.broker_settings))[0]


class SecureClusterHarness(SecuredClients, ClusterHarness):
    """One that lets nobody in without a password or a certificate, as ``sparklog up --secure`` does."""

    is_secure = True
