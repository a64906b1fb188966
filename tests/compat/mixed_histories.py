"""The histories of ``tests/histories`` on three brokers of both kinds: Kafka 3.9.1's and ours.

What is done to a broker of Kafka's is what can be done to its process: it is killed, stopped, frozen and started again,
it is led past and moved to, and its connections and its ZooKeeper break. Power, disks and clocks are those of ours. A
connection that Kafka's opens to a broker comes from no address of its own: the network takes it for a client's.

Where brokers do not flush, none loses its power: a controller of Kafka's has the last replica in sync lead again, which
may have lost then what the others have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from compat.mixed import JAVA, SETTINGS, promised_by_both
from histories.drill import SETTINGS as OF_HISTORIES
from histories.drill import Drill, Workload
from histories.faulty_cluster import FaultyBroker, FaultyCluster, Harmed
from histories.fire import Fire
from histories.network import HOST, ZOOKEEPER, broker_name
from histories.replicated import BROKERS
from histories.schedule import Harm

from sparklog.local.ports import free_port
from sparklog.testing.broker import QUICK_SETTINGS
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import START_TIMEOUT_S, KafkaBroker

VERSION = "inter.broker.protocol.version"
_OF_BOTH = {VERSION: SETTINGS[VERSION], "controlled.shutdown.retry.backoff.ms": 500}
_UNREPLICATED = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
KAFKA, OURS = "kafka", "ours"
Kinds = Sequence[str]
"""By the brokers' ids. The first of them is the first controller."""
_OF_OURS = ("lose_power", "break_disk", "step_clock")


class KafkaMember(KafkaBroker, Harmed):
    """A broker of Kafka's behind a relay, whose ``address`` it tells others."""

    starts_within_s: ClassVar[float] = START_TIMEOUT_S

    def __init__(
        self, home: Path, id_: int, zookeeper: str, port: int, relay: int, settings: Mapping[str, object]
    ) -> None:
        listeners = {"listeners": f"PLAINTEXT://{HOST}:{port}", "advertised.listeners": f"PLAINTEXT://{HOST}:{relay}"}
        super().__init__(home / f"kafka-{id_}", zookeeper, port, id_, {**settings, **listeners}, java=JAVA)
        self._relay = relay

    @property
    def address(self) -> str:
        return f"{HOST}:{self._relay}"

    @property
    def own_address(self) -> str:
        return f"{HOST}:{self.port}"

    def spawn(self) -> None:
        self.life += 1
        super().spawn()

    def start(self) -> None:
        """Returns when it serves. It gives up where it finds itself registered: its session has to end."""

        def serves() -> bool:
            if not self.alive:
                self.spawn()
            return self.is_ready()

        eventually(serves, START_TIMEOUT_S, f"{self.name} to serve")

    def is_ready(self) -> bool:
        return self.alive and super().is_ready()


class MixedFaultyCluster(FaultyCluster):
    """The first broker serves before the others are started."""

    def __init__(
        self,
        home: Path,
        kinds: Kinds,
        settings: Mapping[str, object],
        log_dirs: int = 1,
        *,
        refuses: bool = False,
    ) -> None:
        self._kinds = kinds
        super().__init__(home, len(kinds), {**settings, **_OF_BOTH}, log_dirs, refuses=refuses)

    def _broker(
        self, home: Path, number: int, zookeeper: str, settings: Mapping[str, object]
    ) -> FaultyBroker | KafkaMember:
        if self._kinds[number] == OURS:
            ours: FaultyBroker = super()._broker(home, number, zookeeper, settings)
            return ours
        log_dirs = self._log_dirs_of(home, number)
        told = {**QUICK_SETTINGS, **settings, "log.dirs": ",".join(map(str, log_dirs))}
        port = free_port()
        relay = self.network.relay(broker_name(number), port)
        way_to_zookeeper = self.network.relay(ZOOKEEPER, self.zookeeper.port, broker_name(number))
        made = KafkaMember(home, number, f"{HOST}:{way_to_zookeeper}", port, relay, told)
        made.log_dirs = log_dirs
        return made

    @property
    def ours(self) -> list[FaultyBroker]:
        return [each for each in self.brokers if isinstance(each, FaultyBroker)]

    def _start_brokers(self) -> None:
        first, *others = self.brokers
        first.start()
        for broker in others:
            broker.spawn()
        for broker in others:
            broker.wait_until_ready()

    def stop_brokers(self) -> None:
        """In order: Kafka's one by one, for a controlled shutdown wants a controller, and then ours."""
        for broker in self.brokers:
            if isinstance(broker, KafkaMember):
                broker.stop()
        for broker in self.ours:
            broker.terminate()
        for broker in self.ours:
            broker.reap()


class MixedFire(Fire):
    """Three brokers that have replicas of everything, under a schedule that the seed draws."""

    cluster: MixedFaultyCluster
    is_mixed = True
    repeated_by = "MIXED_FIRE_SEEDS"

    def __init__(self, home: Path, seed: int, count: int, kinds: Kinds) -> None:
        assert len(kinds) == BROKERS
        self._kinds = kinds
        super().__init__(home, seed, count)
        self.harms = [self._possible(harm) for harm in self.harms]

    def told(self) -> str:
        return f"brokers: {', '.join(self._kinds)}\n{super().told()}"

    def _cluster_with(self, home: Path, settings: Mapping[str, object]) -> MixedFaultyCluster:
        return MixedFaultyCluster(home, self._kinds, settings, self.log_dirs, refuses=self.refuses)

    def _possible(self, harm: Harm) -> Harm:
        """What needs a broker of ours is done to one."""
        if harm.name == "lose_power" and not self.flushes:
            return harm._replace(name="kill", how={"brokers": harm.how["brokers"]})
        return self._to_ours(harm) if harm.name in _OF_OURS else harm

    def _to_ours(self, harm: Harm) -> Harm:
        ours = [number for number, kind in enumerate(self._kinds) if kind == OURS]
        how = dict(harm.how)
        if "broker" in how:
            how["broker"] = ours[how["broker"] % len(ours)]
        else:
            how["brokers"] = sorted({ours[number % len(ours)] for number in how["brokers"]})
        return harm._replace(how=how)

    @property
    def observed(self) -> list[str]:
        """Ours. A follower of Kafka's takes over the high watermark of its leader, which may be a lower one than it
        knew (``UnifiedLog.maybeUpdateHighWatermark``)."""
        return [broker.own_address for broker in self.cluster.ours]

    def _promised(self, replica: dict[str, Any]) -> dict[str, Any]:
        return promised_by_both(replica)


class MixedDrill(Drill):
    """Three brokers without replicas, under harms that chance names one after the other."""

    cluster: MixedFaultyCluster

    def __init__(self, home: Path, seed: int, kinds: Kinds, workload: Workload) -> None:
        self._kinds = kinds
        super().__init__(home, seed, len(kinds), workload)

    def _make_cluster(self, home: Path, brokers: int) -> MixedFaultyCluster:
        return MixedFaultyCluster(home, self._kinds, {**OF_HISTORIES, **_UNREPLICATED})

    @property
    def observed(self) -> list[str]:
        return [broker.address for broker in self.cluster.ours]
