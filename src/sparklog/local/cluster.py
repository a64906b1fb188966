"""A cluster on this machine: the embedded ZooKeeper and some brokers, each a child process, watched over."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from sparklog.config.broker import is_every_address
from sparklog.errors import ConfigError
from sparklog.local.broker import PROGRAM, BrokerProcess, BrokerSpec
from sparklog.local.directory import ClusterDirectory
from sparklog.local.ensemble import Ensemble, Server
from sparklog.local.member import EnsembleMember
from sparklog.local.ports import HIGHEST_PORT, LOOPBACK, free_port, require_free, require_own
from sparklog.local.running import Running
from sparklog.local.secured import ADMIN, SecureDirectory
from sparklog.local.supervisor import Service, Supervisor
from sparklog.local.zookeeper import EmbeddedZooKeeper

NO_METRICS = -1
_MOST_INTERNAL_COPIES = 3


def _say_nothing(text: str) -> None:
    pass


def _ports_of(zookeeper: EmbeddedZooKeeper) -> dict[str, int]:
    """As the directory remembers them."""
    if not isinstance(zookeeper, EnsembleMember):
        return {"zookeeper": zookeeper.port}
    name, server = f"zookeeper-{zookeeper.server.id}", zookeeper.server
    return {name: server.client_port, f"{name}-peer": server.peer_port, f"{name}-election": server.election_port}


def _check_ports(first: int, brokers: int, whose: str, option: str) -> None:
    """Raises ConfigError where one of the brokers would have none."""
    last = first + brokers - 1
    if first and not 1 <= first <= last <= HIGHEST_PORT:
        raise ConfigError(
            f"{whose} would listen on the ports {first} to {last}, and ports are 1 to {HIGHEST_PORT};"
            f" choose another with {option}, or 0 for free ones"
        )


def _replicated_internal_topics(brokers: int) -> tuple[str, ...]:
    """Settings with which groups and transactions outlive a broker, where there are several."""
    copies = min(brokers, _MOST_INTERNAL_COPIES)
    settings = {
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": max(copies - 1, 1),
    }
    return tuple(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))


class LocalCluster(Running):
    """ZooKeeper and ``brokers`` brokers (ids from 0) under ``data_dir``; an existing one goes on from where it was.

    Without ``brokers`` there are as many as the directory has data of, up to the highest id; 1 in a new one.
    Broker N listens on ``base_port + N`` of ``host``, and tells clients ``advertised_host`` where that is given;
    ZooKeeper, which asks for no password, listens on the loopback address only. ``base_port`` 0 picks free ports.
    A secure one (``SecureCluster``) asks for a certificate there too, and for a password where clients come.
    Ports picked once are kept while the directory lives, where they are still free. So is the number of ``zookeepers``,
    which is 1 unless it is said; several make an ensemble.
    A broker or a ZooKeeper that dies is started again; ``on_event(text)`` hears of it, on another thread, of a
    broker that serves but reported errors at the start, of what a start cut off a damaged log, and of full disks.
    Raises ConfigError for settings that make no cluster. ``start`` raises ConfigError (no Java, a port or the directory
    in use) or ConnectionFailed (a child died; with its log's tail), and then leaves nothing running.
    """

    program: ClassVar[Sequence[str]] = PROGRAM
    """What a broker is run with, before ``broker --id N ...``."""
    tick_time_ms: ClassVar[int] = 2000
    fsync_zookeeper: ClassVar[bool] = True
    supervised: ClassVar[bool] = True
    is_secure: ClassVar[bool] = False
    """Whether nobody comes in without a password or a certificate (``secured.py``); once it is so it stays so."""
    metrics_port: int = NO_METRICS
    """Broker N answers Prometheus on this port and N, of the loopback address; 0 picks free ones."""
    web_port: int = NO_METRICS
    """The first broker serves the web page on this port of the loopback address; 0 picks a free one, -1 is none."""
    own_args: Mapping[int, Sequence[str]] = {}
    """What is on the command lines of single brokers besides."""

    def __init__(
        self,
        data_dir: Path,
        brokers: int | None = None,
        base_port: int = 9092,
        host: str = "127.0.0.1",
        broker_args: Sequence[str] = (),
        on_event: Callable[[str], None] = _say_nothing,
        advertised_host: str = "",
        *,
        zookeepers: int | None = None,
    ) -> None:
        self.directory = ClusterDirectory(data_dir)
        brokers = self._count_of_brokers(brokers)
        _check_ports(base_port, brokers, "the brokers", "--port")
        if is_every_address(host) and not advertised_host:
            raise ConfigError(
                f"{host} listens on every address of this machine, and clients must be told one that they can reach:"
                " name it with --advertised-host"
            )
        require_own(host)
        self.secured = self._secured()
        self.host = host
        self._advertised_host = advertised_host
        self._base_port = base_port
        self._broker_args = (*_replicated_internal_topics(brokers), *broker_args)
        self._on_event = on_event
        self._supervisor: Supervisor | None = None
        if self.metrics_port != NO_METRICS:
            _check_ports(self.metrics_port, brokers, "the brokers' metrics", "--metrics-port")
        remembered = self.directory.remembered_ports()
        count = self._zookeepers(zookeepers)
        self.zookeepers = self._members(count, remembered) if count > 1 else [self._only(remembered)]
        if self.secured is not None:
            for zookeeper in self.zookeepers:
                zookeeper.tls = self.secured.zookeeper_tls
        self._inner_ports: dict[str, int] = {}
        self.brokers = [self._broker(broker_id, remembered) for broker_id in range(brokers)]

    @property
    def left_out(self) -> list[int]:
        """Brokers that have data in the directory and are none of this run's, ascending."""
        return [each for each in self.directory.broker_ids() if each >= len(self.brokers)]

    @property
    def zookeeper(self) -> EmbeddedZooKeeper:
        """The only ZooKeeper, or the first."""
        return self.zookeepers[0]

    @property
    def zookeeper_connect(self) -> str:
        """Every ZooKeeper's ``host:port``, as brokers want it."""
        return ",".join(each.connect_string for each in self.zookeepers)

    @property
    def bootstrap_servers(self) -> str:
        """Every broker's ``host:port``, as clients want it."""
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> None:
        """Start everything and return when every broker serves."""
        self.directory.lock()
        try:
            self._require_ports()
            if self.secured is not None:  # before anything else, by which an open cluster is known
                self.secured.prepare(self._names(), [self.directory.logs, *(each.data_dir for each in self.zookeepers)])
            self._remember_ports()
            self._start_zookeepers()
            if self.secured is not None:
                self.secured.admit(self.zookeeper_connect, self.bootstrap_servers)
            self._start_brokers()
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise self.directory.unusable(error) from error
            raise
        if self.supervised:
            self._supervisor = Supervisor([*self.zookeepers, *self.brokers], self._on_event, self._note_process)
            self._supervisor.start()

    def _require_ports(self) -> None:
        """Before anything is made: what is there is of one kind for good, such as open to everybody."""
        for broker in self.brokers:
            broker.require_ports()
        if self.web_port > 0:
            require_free(
                LOOPBACK, self.web_port, "the web page", "stop what holds it or choose another with --web-port"
            )

    def _start_zookeepers(self) -> None:
        for zookeeper in self.zookeepers:
            zookeeper.spawn()
            self._note_process(zookeeper)
        for zookeeper in self.zookeepers:
            zookeeper.wait_until_ready()

    def _start_brokers(self) -> None:
        for broker in self.brokers:
            broker.spawn()
            self._note_process(broker)
        for broker in self.brokers:
            broker.wait_until_ready()
            for line in broker.news():
                self._on_event(f"{broker.name}: {line}")
            if broker.has_reported_errors():
                self._on_event(f"{broker.name} reported errors while starting: see {broker.log_path}")

    def stop(self) -> None:
        """Stop the brokers, then the ZooKeepers; a process that does not go in time is killed."""
        if not self.directory.is_locked:
            return  # The directory, and the pid files in it, may be another cluster's.
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None
        for broker in self.brokers:
            broker.terminate()
        for broker in self.brokers:
            broker.reap()
            self.directory.remove_pid(broker.name)
        for zookeeper in self.zookeepers:
            zookeeper.terminate()
        for zookeeper in self.zookeepers:
            zookeeper.reap()
            self.directory.remove_pid(zookeeper.name)
        self.directory.unlock()

    def _names(self) -> list[str]:
        """What clients reach the brokers by."""
        return [each for each in (self.host, self._advertised_host) if not is_every_address(each)]

    def _secured(self) -> SecureDirectory | None:
        found = SecureDirectory(self.directory.secure)
        if found.exists and not self.is_secure:
            raise ConfigError(
                f"the cluster in {self.directory.root} is secure, and is not started for everybody: add --secure, or"
                " choose another directory"
            )
        if self.is_secure and not found.exists and self.directory.zookeepers():
            raise ConfigError(
                f"the cluster in {self.directory.root} was made for everybody: its znodes and files are open."
                " Leave --secure out, or choose another directory (a backup carries topics over)"
            )
        return found if self.is_secure else None

    def _remember_ports(self) -> None:
        ports = {f"broker-{broker.spec.broker_id}": broker.spec.port for broker in self.brokers}
        ports |= self._inner_ports
        ports |= {f"metrics-{each.spec.broker_id}": each.spec.metrics_port for each in self.brokers if each.metrics}
        for zookeeper in self.zookeepers:
            ports |= _ports_of(zookeeper)
        self.directory.remember_ports({**self.directory.remembered_ports(), **ports})

    def _count_of_brokers(self, wanted: int | None) -> int:
        if wanted is not None and wanted < 1:
            raise ConfigError(f"a cluster needs at least one broker, not {wanted}")
        return wanted or max(self.directory.broker_ids(), default=0) + 1

    def _zookeepers(self, wanted: int | None) -> int:
        there = self.directory.zookeepers()
        if wanted is not None and wanted < 1:
            raise ConfigError(f"a cluster needs at least one ZooKeeper, not {wanted}")
        if there and wanted not in (None, there):
            raise ConfigError(
                f"the cluster in {self.directory.root} has {there} ZooKeeper{'s' if there > 1 else ''}, and cannot be"
                f" made one with {wanted}; leave --zookeepers out, or choose another directory"
            )
        return wanted or there or 1

    def _only(self, remembered: dict[str, int]) -> EmbeddedZooKeeper:
        return EmbeddedZooKeeper(
            self.directory.zookeeper(),
            self._still_free(remembered.get("zookeeper", 0), LOOPBACK),
            LOOPBACK,
            tick_time_ms=self.tick_time_ms,
            fsync=self.fsync_zookeeper,
        )

    def _members(self, count: int, remembered: dict[str, int]) -> list[EmbeddedZooKeeper]:
        def port(name: str) -> int:
            return self._still_free(remembered.get(name, 0), LOOPBACK)

        servers = [
            Server(
                number,
                LOOPBACK,
                port(f"zookeeper-{number}-peer"),
                port(f"zookeeper-{number}-election"),
                port(f"zookeeper-{number}"),
            )
            for number in range(1, count + 1)
        ]
        return [
            EnsembleMember(
                self.directory.zookeeper(each.id),
                Ensemble(tuple(servers)),
                each.id,
                tick_time_ms=self.tick_time_ms,
                fsync=self.fsync_zookeeper,
            )
            for each in servers
        ]

    def _broker(self, broker_id: int, remembered: dict[str, int]) -> BrokerProcess:
        spec = BrokerSpec(
            broker_id=broker_id,
            zookeeper=self.zookeeper_connect,
            data_dir=self.directory.broker(broker_id),
            port=self._broker_port(broker_id, remembered.get(f"broker-{broker_id}", 0)),
            host=self.host,
            advertised_host=self._advertised_host,
            arguments=(*self._broker_args, *self._web_args(broker_id), *self.own_args.get(broker_id, ())),
            program=self.program,
            metrics_port=self._metrics_port_of(broker_id, remembered.get(f"metrics-{broker_id}", 0)),
        )
        if self.secured is not None:
            spec = self._closed(spec, self.secured, remembered)
        return BrokerProcess(spec, self.directory.log(f"broker-{broker_id}"))

    def _closed(self, spec: BrokerSpec, secured: SecureDirectory, remembered: dict[str, int]) -> BrokerSpec:
        """The broker with a listener for clients that give a password, and an inner one for brokers."""
        name = f"broker-{spec.broker_id}-inner"
        port = self._inner_ports[name] = self._still_free(remembered.get(name, 0), LOOPBACK)
        return replace(
            spec,
            inner_port=port,
            arguments=("--config", str(secured.broker_settings), *spec.arguments),
        )

    def _web_args(self, broker_id: int) -> Sequence[str]:
        if broker_id or self.web_port < 0:
            return ()
        settings = {"sparklog.web.port": str(self.web_port)}
        if self.secured is not None:
            settings["sparklog.web.client.config"] = str(self.secured.client_settings(ADMIN))
        return tuple(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))

    def _broker_port(self, broker_id: int, remembered: int) -> int:
        return self._base_port + broker_id if self._base_port else self._still_free(remembered, self.host)

    def _metrics_port_of(self, broker_id: int, remembered: int) -> int:
        if self.metrics_port == NO_METRICS:
            return NO_METRICS
        return self.metrics_port + broker_id if self.metrics_port else self._still_free(remembered, LOOPBACK)

    def _still_free(self, port: int, host: str) -> int:
        """``port`` if it can be listened on, else a free one; 0 means none is remembered."""
        if port:
            try:
                require_free(host, port, "a local cluster", "choosing another")
            except ConfigError:
                port = 0
        return port or free_port(host)

    def _note_process(self, service: Service) -> None:
        self.directory.write_pid(service.name, service.pid)


class SecureCluster(LocalCluster):
    """One that lets nobody in without a password or a certificate."""

    is_secure = True


def watched(kind: type[LocalCluster], metrics_port: int, web_port: int = NO_METRICS) -> type[LocalCluster]:
    """The same kind of cluster, with that ``metrics_port`` and ``web_port``."""
    return type(kind.__name__, (kind,), {"metrics_port": metrics_port, "web_port": web_port})
