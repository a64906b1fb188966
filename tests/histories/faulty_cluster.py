"""Brokers and a ZooKeeper that reach each other over ``network`` alone, and lose power, disks and time at a word."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from histories import faulty_broker
from histories.network import HOST, ZOOKEEPER, Network, broker_name

from sparklog.local.broker import BrokerProcess, BrokerSpec
from sparklog.local.ports import free_port
from sparklog.local.running import Running
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.broker import settings_arguments
from sparklog.testing.eventually import eventually, wait_for_death

_SOON_S = 60.0


class FaultyBroker(BrokerProcess):
    """A ``faulty_broker``. ``address`` is that of its relay, which it tells others too."""

    def __init__(self, spec: BrokerSpec, log_path: Path, relay_port: int) -> None:
        super().__init__(spec, log_path)
        self._relay_port = relay_port
        self.life = 0
        """How often it was started."""

    @property
    def name_in_network(self) -> str:
        return broker_name(self.spec.broker_id)

    @property
    def address(self) -> str:
        return f"{HOST}:{self._relay_port}"

    def spawn(self) -> None:
        self.life += 1
        faulty_broker.orders_path(self.spec.data_dir).unlink(missing_ok=True)
        super().spawn()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

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


class FaultyCluster(Running):
    """``brokers`` brokers with ids from 0, whatever may be replicated on all of them. Nobody repairs what is broken."""

    def __init__(self, home: Path, brokers: int, settings: Mapping[str, object]) -> None:
        self.zookeeper = EmbeddedZooKeeper(home / "zookeeper", tick_time_ms=500, fsync=False)
        self.network = Network(brokers)
        relay = self.network.relay(ZOOKEEPER, self.zookeeper.port)
        self.brokers = [self._broker(home, number, f"{HOST}:{relay}", settings) for number in range(brokers)]

    def _broker(self, home: Path, number: int, zookeeper: str, settings: Mapping[str, object]) -> FaultyBroker:
        port = free_port()
        relay = self.network.relay(broker_name(number), port)
        spec = BrokerSpec(
            broker_id=number,
            zookeeper=zookeeper,
            data_dir=home / broker_name(number),
            port=port,
            arguments=settings_arguments({**settings, "advertised.port": relay}),
            program=(sys.executable, "-P", faulty_broker.__file__),
        )
        return FaultyBroker(spec, home / f"{broker_name(number)}.log", relay)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> None:
        try:
            self.zookeeper.start()
            for broker in self.brokers:
                broker.spawn()
            for broker in self.brokers:
                broker.wait_until_ready()
        except BaseException:
            self.stop()
            raise

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
