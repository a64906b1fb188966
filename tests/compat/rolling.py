"""Three of Kafka's brokers are taken over by three of ours, one by one, and given back, under the histories' workload.

What is done is what docs/takeover.md says: the setting ``inter.broker.protocol.version`` is taken away when the last of
Kafka's is gone, and set again before the first comes back.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from compat.mixed import SETTINGS, MixedCluster, promised_by_both
from compat.traffic import Traffic
from histories.clients import CONFLUENT, OWN
from histories.drill import END_S, READERS, Workload
from histories.replicated import BROKERS, REPLICATED, ReplicatedDrill
from histories.watcher import Place

from sparklog.local.broker import PROGRAM
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

IDS = range(BROKERS)
CLICKS = "clicks"
VERSION = "inter.broker.protocol.version"
OF_KAFKA = SETTINGS[VERSION]
OF_OURS = "4.0"
"""What it is where it is not set."""


PAUSES_S = 0.2
"""How long a writer does nothing: the run is a long one."""


class RollingCluster(MixedCluster):
    """Its ports are known before it is started; then three brokers of Kafka's are in it."""

    def __init__(self, directory: Path) -> None:
        told = {"replica.lag.time.max.ms": SETTINGS["replica.lag.time.max.ms"], "log.segment.bytes": 400_000}
        super().__init__(directory, {**REPLICATED, **told, "controlled.shutdown.retry.backoff.ms": 500})
        self.lives = dict.fromkeys(IDS, 0)
        self.addresses = [f"127.0.0.1:{self._port(id_)}" for id_ in IDS]

    @property
    def bootstrap_servers(self) -> str:
        return self.bootstrap

    def __enter__(self) -> RollingCluster:
        super().__enter__()
        for id_ in IDS:
            self.kafka(id_)
        return self

    def replace(self, id_: int, start: Callable[[int], Any]) -> None:
        """Stop the broker in order, and have ``start`` take its id, its address and its logs."""
        self.brokers[id_].stop()
        self.lives[id_] += 1
        start(id_)

    def ours_alone(self, id_: int) -> None:
        """Start a broker of ours that knows of none of Kafka's."""
        self.ours(id_, **{VERSION: OF_OURS})


class Takeover(ReplicatedDrill):
    """There, without the setting, and back. Ours go on through all of it; ``restarted`` are those that did not."""

    cluster: RollingCluster
    transaction_timeout_ms: ClassVar[int] = 60_000

    def __init__(self, home: Path, seed: int) -> None:
        super().__init__(home, seed, BROKERS, Workload((OWN, CONFLUENT), READERS["cooperative"]))
        self.restarted: list[str] = []

    def _make_cluster(self, home: Path, brokers: int) -> RollingCluster:
        return RollingCluster(home)

    def _roles(self, workload: Workload, common: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        for slot, role in super()._roles(workload, common):
            yield slot, {**role, "pauses": PAUSES_S}

    @property
    def zookeeper(self) -> str:
        return self.cluster.zookeeper

    @property
    def addresses(self) -> list[str]:
        return self.cluster.addresses

    @property
    def places(self) -> list[Place]:
        return [Place(id_, self.cluster.lives[id_], self.addresses[id_]) for id_ in IDS]

    def _homes(self, tp: TopicPartition) -> list[tuple[int, Path | None]]:
        return [(id_, self.cluster.log_dir(id_) / str(tp)) for id_ in IDS]

    def term(self, address: str, tp: TopicPartition) -> str | None:
        id_ = self.addresses.index(address)
        return f"broker {id_}, life {self.cluster.lives[id_]}"

    def is_in_first_life(self, address: str) -> bool:
        return self.cluster.lives[self.addresses.index(address)] == 0

    def _promised(self, replica: dict[str, Any]) -> dict[str, Any]:
        return promised_by_both(replica)

    def _stop_brokers(self) -> None:
        for id_ in IDS:
            self.cluster.brokers[id_].stop()

    def _harm(self, seconds: float, first: Sequence[str]) -> None:
        self.cluster.create(CLICKS, [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        eventually(lambda: self._works(0), END_S, "something to take over")
        self._await_whole()
        with Traffic(self.cluster.bootstrap, CLICKS, BROKERS) as traffic:
            traffic.moves_on()
            for kind, start in self._stages():
                self._check()
                for id_ in self._controller_last():
                    self._record("fault", text=f"broker {id_} becomes {kind}")
                    self.cluster.replace(id_, start)
                    self._await_whole()
                    self.cluster.wait_until_whole(CLICKS, [BROKERS] * BROKERS)
                    self._await_life(self.slots)
                    traffic.moves_on()
            self.restarted = [slot.who for slot in self.slots if slot.is_own and not slot.who.endswith(".1")]
        traffic.check()
        assert not traffic.unclear  # every stop was an orderly one

    def _stages(self) -> Iterator[tuple[str, Callable[[int], Any]]]:
        yield "ours", self.cluster.ours
        yield "ours alone", self.cluster.ours_alone
        yield "ours, to go back", self.cluster.ours
        yield "Kafka's", self.cluster.kafka

    def _controller_last(self) -> list[int]:
        controller = self.cluster.controller()
        return sorted(IDS, key=lambda id_: id_ == controller)

    def _check(self) -> None:
        """Nothing is to be done before the next stage."""
        command = [*PROGRAM, "takeover", "check", "--zookeeper", self.zookeeper]
        said = subprocess.run(command, timeout=120, check=False, capture_output=True, text=True)
        assert said.returncode == 0, said.stdout + said.stderr
