"""Brokers and a ZooKeeper that reach each other over ``network`` alone, and lose power, disks and time at a word."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from histories import faulty_broker
from histories.network import HOST, ZOOKEEPER, Network, broker_name

from sparklog.local.broker import BrokerProcess, BrokerSpec
from sparklog.local.ports import free_port
from sparklog.local.process import OneProcess
from sparklog.local.running import Running
from sparklog.local.secured import BROKERS, CLIENTS, SecureDirectory
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.log.checkpoints import PARTITION_METADATA
from sparklog.structs import TopicPartition
from sparklog.testing.broker import settings_arguments
from sparklog.testing.cluster import SecuredClients
from sparklog.testing.eventually import eventually, wait_for_death

_SOON_S = 60.0
_PATIENCE_S = 2.0


class Harmed(OneProcess):
    """What is done to a broker of whatever kind, and is seen of its logs. ``log_dirs`` is where it keeps them."""

    starts_within_s: ClassVar[float] = 5.0
    """After which another is restarted, where one after the other is."""
    log_dirs: Sequence[Path]
    life = 0
    """How often it was started."""

    def replica_dir(self, tp: TopicPartition) -> Path | None:
        """Where it has the partition's log, if it has one."""
        return next((home / str(tp) for home in self.log_dirs if (home / str(tp)).is_dir()), None)

    def replica_made_at(self, tp: TopicPartition) -> int:
        """When its present log of the partition was made, in nanoseconds; 0 without one."""
        with suppress(FileNotFoundError):
            for home in self.log_dirs:
                if (made := home / str(tp) / PARTITION_METADATA).exists():
                    return made.stat().st_mtime_ns
        return 0

    def future_dirs(self) -> list[Path]:
        """The copies that are to take the place of a log in another directory."""
        return [path for home in self.log_dirs for path in home.glob("*-future")]

    def terminate(self) -> None:
        """Ask it to end in order; returns at once."""
        raise NotImplementedError

    def stop(self) -> None:
        """In order."""
        raise NotImplementedError

    def stop_with_little_patience(self) -> None:
        """In order; it is told again, to hurry, if it waits for others: they may have nobody else in sync yet."""
        self.terminate()
        with suppress(AssertionError):
            wait_for_death(self.pid, _PATIENCE_S)
        self.stop()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


class FaultyBroker(BrokerProcess, Harmed):
    """A ``faulty_broker``. ``address`` is that of its relay, which it tells others too.

    ``spec.data_dir`` is its disk; its log directories are that itself or directories there.
    """

    def __init__(self, spec: BrokerSpec, log_path: Path, relay_port: int, log_dirs: Sequence[Path]) -> None:
        super().__init__(spec, log_path)
        self._relay_port = relay_port
        self.log_dirs = log_dirs

    @property
    def broker_id(self) -> int:
        return self.spec.broker_id

    @property
    def address(self) -> str:
        return f"{HOST}:{self._relay_port}"

    @property
    def own_address(self) -> str:
        """Where it listens itself: no harm to the network keeps an observer from asking."""
        return f"{HOST}:{self.spec.port}"

    def spawn(self) -> None:
        self.life += 1
        faulty_broker.orders_path(self.spec.data_dir).unlink(missing_ok=True)
        super().spawn()

    def cut_power(self, seed: int, page: int) -> None:
        """It dies, and its disk is left as it may be found then."""
        home = self.spec.data_dir
        into = home.with_name(f"{home.name}.cut")
        shutil.rmtree(into, ignore_errors=True)
        self._order({"do": "cut", "into": str(into), "seed": seed, "page": page})
        wait_for_death(self.pid)
        self.kill()
        shutil.rmtree(home)
        into.rename(home)

    def fail_disk(self, error: int, steps: Sequence[str]) -> None:
        """Every such step of its disk fails."""
        self._obeyed({"do": "fail", "error": error, "steps": list(steps)})

    def mend_disk(self) -> None:
        if self.alive:
            self._obeyed({"do": "recover"})

    def set_clock(self, ahead_ms: int) -> None:
        """Its wall clock is so far ahead of the machine's."""
        self._obeyed({"do": "clock", "ahead_ms": ahead_ms})

    def _obeyed(self, order: Mapping[str, object]) -> None:
        self._order(order)
        path = faulty_broker.orders_path(self.spec.data_dir)
        eventually(lambda: not path.exists() or not self.alive, _SOON_S, f"{self.name} to obey")

    def _order(self, order: Mapping[str, object]) -> None:
        path = faulty_broker.orders_path(self.spec.data_dir)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(order))
        self.signal(signal.SIGUSR1)


class FaultyCluster(SecuredClients, Running):
    """``brokers`` brokers with ids from 0, whatever may be replicated on all of them. Nobody repairs what is broken.

    ``log_dirs`` is how many log directories each has, all on one disk. A ``secure`` one lets nobody in without a
    password or a certificate, as ``sparklog up --secure`` does. What is gone ``refuses`` connections, or is silent.
    """

    def __init__(
        self,
        home: Path,
        brokers: int,
        settings: Mapping[str, object],
        log_dirs: int = 1,
        *,
        secure: bool = False,
        refuses: bool = False,
    ) -> None:
        self._log_dirs = log_dirs
        self.zookeeper = EmbeddedZooKeeper(home / "zookeeper", tick_time_ms=500, fsync=False)
        self.secured = SecureDirectory(home / "secure") if secure else None
        if self.secured is not None:
            self.secured.prepare([HOST])
            self.zookeeper.tls = self.secured.zookeeper_tls
        self.network = Network(brokers, refuses=refuses)
        relay = self.network.relay(ZOOKEEPER, self.zookeeper.port)
        self.brokers = [self._broker(home, number, f"{HOST}:{relay}", settings) for number in range(brokers)]

    def _broker(self, home: Path, number: int, zookeeper: str, settings: Mapping[str, object]) -> Any:
        port = free_port()
        relay = self.network.relay(broker_name(number), port)
        disk, log_dirs = home / broker_name(number), self._log_dirs_of(home, number)
        inner = free_port() if self.secured is not None else 0
        spec = BrokerSpec(
            broker_id=number,
            zookeeper=zookeeper,
            data_dir=disk,
            port=port,
            inner_port=inner,
            arguments=(  # the later --data counts for the broker, the first for the faults of its disk
                *self._security(),
                *settings_arguments({**settings, **self._advertised(number, relay, inner)}),
                *("--data", ",".join(map(str, log_dirs))),
            ),
            program=(sys.executable, "-P", faulty_broker.__file__),
        )
        return FaultyBroker(spec, home / f"{broker_name(number)}.log", relay, log_dirs)

    def _log_dirs_of(self, home: Path, number: int) -> list[Path]:
        disk = home / broker_name(number)
        return [disk / f"logs-{each}" for each in range(self._log_dirs)] if self._log_dirs > 1 else [disk]

    def _security(self) -> Sequence[str]:
        return ("--config", str(self.secured.broker_settings)) if self.secured is not None else ()

    def _advertised(self, number: int, relay: int, inner: int) -> Mapping[str, object]:
        """By what others reach the broker: relays of all of its listeners."""
        if self.secured is None:
            return {"advertised.port": relay}
        between = self.network.relay(broker_name(number), inner)
        return {"advertised.listeners": f"{CLIENTS}://{HOST}:{relay},{BROKERS}://{HOST}:{between}"}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> None:
        try:
            self.zookeeper.start()
            if self.secured is not None:
                self.secured.admit(self.zookeeper.connect_string, self.bootstrap_servers)
            self._start_brokers()
        except BaseException:
            self.stop()
            raise

    def _start_brokers(self) -> None:
        for broker in self.brokers:
            broker.spawn()
        for broker in self.brokers:
            broker.wait_until_ready()

    def stop_brokers(self) -> None:
        """In order, all at once."""
        for broker in self.brokers:
            broker.terminate()
        for broker in self.brokers:
            broker.reap()

    def stop(self) -> None:
        self.stop_brokers()
        self.zookeeper.stop()
        self.network.close()
