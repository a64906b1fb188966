"""A replicated cluster under fire: whatever happens to it, ``checker`` finds nothing to say."""

import os
import signal
from functools import partial

import pytest
from histories.checker import check, legal_losses
from histories.drill import final_log
from histories.fire import Fire, SecureFire, burn
from histories.history import Recorder, load, now
from histories.schedule import Harm
from histories.watcher import described
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient

FOUND = {46: "it was over before the log of the transactions had been cleaned once"}
"""Seeds that failed, and why: they are run whatever the range is."""
SEEDS = [int(seed) for seed in os.environ.get("FIRE_SEEDS", "").split()] or sorted({*FOUND, *range(100)})
"""``FIRE_SEEDS="7 8"`` runs these alone, of ``test_a_cluster_under_fire_keeps_its_promises``."""
SECURE_SEEDS = [int(seed) for seed in os.environ.get("SECURE_FIRE_SEEDS", "").split()] or range(200, 210)
"""``SECURE_FIRE_SEEDS`` does the same of the secure ones."""
SHORT = [
    Harm("kill_leader", {"number": 0, "is_missed": True}),
    Harm("part", {"ways": [("broker-1", "broker-2")], "breaks": True}, 0.5),
]
TP = TopicPartition("unclean", 0)
ALL, ONE = "all", "1"
REQUIRED = {ALL: -1, ONE: 1}


@pytest.mark.integration
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [15, pytest.param(1, marks=pytest.mark.slow)])
def test_a_cluster_outlives_its_leader_and_a_cut(tmp_path, seed):
    """The second one is compacted, by jobs too, and is offloaded: it costs five times as much."""
    run = Fire(tmp_path, seed, 0)
    run.harms = SHORT
    burn(run)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_under_fire_keeps_its_promises(seed, tmp_path):
    burn(Fire(tmp_path, seed, 6))


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SECURE_SEEDS)
def test_a_secure_cluster_under_fire_keeps_its_promises(seed, tmp_path):
    burn(SecureFire(tmp_path, seed, 6))


class Witness:
    """Writes to a partition, and writes down what it did and saw."""

    def __init__(self, cluster, zookeeper, history):
        self._cluster, self._zookeeper = cluster, zookeeper
        self._record = Recorder(history, "witness")
        self._number = 0

    @property
    def state(self):
        asked = now()
        found = self._zookeeper.states.read([TP])
        self._record("states", asked=asked, states=described(found))
        return found[TP]

    def send(self, count, acks):
        for _ in range(count):
            value, place = f"w:{self._number}", {"topic": TP.topic, "partition": TP.partition}
            self._number += 1
            self._record("send", value=value, txn=None, acks=acks, **place)
            batch = wire.batch_of(value.encode())
            offset = eventually(partial(self._produce, batch, REQUIRED[acks]), 60, "the leader to take a record") - 1
            self._record("sent", value=value, offset=offset, acks=acks, **place)

    def _produce(self, batch, acks):
        """The offset behind the record; 0 if there is no leader now."""
        with wire.connect(self._cluster.brokers[self.state.leader].address) as connection:
            code, offset, _ = wire.produce(connection, TP, batch, acks)
            return offset + 1 if code is ErrorCode.NONE else 0

    def read(self):
        with wire.connect(self._cluster.brokers[self.state.leader].address) as connection:
            found = eventually(partial(final_log, connection, TP), 60, "all of the log")
            self._record("final log", **found)


@pytest.mark.integration
def test_what_an_unclean_election_loses_is_found(tmp_path):
    """The checker is checked: what one replica alone had is lost with it, where one that was not in sync may lead."""
    (tmp_path / "history").mkdir()
    with ClusterHarness(tmp_path / "cluster", brokers=3) as cluster:
        zookeeper = ZkClient(cluster.zookeeper.connect_string, session_timeout=10.0, on_session=lambda _: None)
        try:
            configs = {"unclean.leader.election.enable": "true"}
            eventually(lambda: wire.topic_is_made(cluster.brokers, TP.topic, configs, 3), 60, "the topic")
            witness = Witness(cluster, zookeeper, tmp_path / "history")
            witness.send(5, ALL)
            leader = cluster.brokers[witness.state.leader]
            followers = [each for each in cluster.brokers if each is not leader]
            for each in followers:
                os.kill(each.pid, signal.SIGSTOP)
            eventually(lambda: len(witness.state.isr) == 1, 60, "the leader to be alone")
            witness.send(3, ONE)
            witness.send(2, ALL)
            leader.kill()
            for each in followers:
                os.kill(each.pid, signal.SIGCONT)
            # A follower that was stopped may lose its session yet, and with it a record that it alone has.
            survivors = {each.spec.broker_id for each in followers}
            eventually(lambda: set(witness.state.isr) == survivors, 60, "both survivors to be in sync")
            witness.send(1, ALL)
            witness.read()
        finally:
            zookeeper.close()
    events = load(tmp_path / "history")
    assert [breach.name for breach in check(events)] == ["lost write"] * 2
    assert legal_losses(events) == 3
