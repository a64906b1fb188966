"""A cluster for tests: quick ZooKeeper, free ports, and no supervisor that repairs what a test breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sparklog.config.properties import load_properties
from sparklog.config.zookeeper_security import OPEN, ZooKeeperSecurity
from sparklog.local.broker import BrokerProcess
from sparklog.local.cluster import LocalCluster
from sparklog.local.secured import SecureDirectory
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.broker import settings_arguments


class SharedZooKeeper(EmbeddedZooKeeper):
    """A tree of its own in a ZooKeeper that runs already, and goes on when this is stopped. It cannot be killed.

    ``data_dir`` names the tree: what comes back there finds it again. Nothing but that there was one is kept there.
    """

    def __init__(self, data_dir: Path, server: EmbeddedZooKeeper) -> None:
        super().__init__(data_dir, server.port, server.host)
        self._server = server

    @property
    def connect_string(self) -> str:
        """``host:port/tree``."""
        return f"{self._server.connect_string}/{str(self.data_dir).strip('/').replace('/', '-')}"

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def alive(self) -> bool:
        return self._server.alive

    @property
    def fate(self) -> str:
        return self._server.fate

    def spawn(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)

    def terminate(self) -> None:
        """It goes on."""

    def reap(self) -> None:
        """It goes on."""

    def stop(self) -> None:
        """It goes on."""

    def kill(self) -> None:
        raise AssertionError("other clusters use this ZooKeeper: make the cluster with shares_zookeeper=False")


class ClusterHarness(LocalCluster):
    """``LocalCluster`` on free ports, with short sessions and unsupervised: killed brokers stay dead.

    ``settings`` are every broker's, as for ``BrokerHarness``; ``racks`` those of the brokers, in their order. A test
    that harms the ZooKeeper ``shares_zookeeper`` with no other.
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
        shares_zookeeper: bool = True,
    ) -> None:
        self._shares_zookeeper = shares_zookeeper
        self.own_args = {number: ("--set", f"broker.rack={rack}") for number, rack in enumerate(racks)}
        arguments = settings_arguments(settings)
        super().__init__(data_dir, brokers, base_port=0, broker_args=arguments, zookeepers=zookeepers)

    def _only(self, remembered: dict[str, int]) -> EmbeddedZooKeeper:
        server = self.shared_zookeeper() if self._shares_zookeeper and not self.is_secure else None
        return super()._only(remembered) if server is None else SharedZooKeeper(self.directory.zookeeper(), server)

    @staticmethod
    def shared_zookeeper() -> EmbeddedZooKeeper | None:
        """A running one that clusters share: none, and each starts its own. Tests put one here (``fix_cluster.py``).

        Secure clusters and ensembles always start theirs.
        """
        return None

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
