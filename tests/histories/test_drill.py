"""The workload under harm, and its history checked: ``checker`` says what must hold."""

import os

import pytest
from histories.clients import CONFLUENT, OWN
from histories.drill import READERS, Drill, SecureDrill, Workload, drill

SEEDS = [int(seed) for seed in os.environ.get("HISTORY_SEEDS", "").split()]
"""``HISTORY_SEEDS="7 8"`` repeats some, in every variant."""
MIXED, OURS, OTHERS = (CONFLUENT, OWN), (OWN,), (CONFLUENT,)
EAGER, COOPERATIVE = READERS.values()
LONG = [
    (100, 1, MIXED, EAGER),
    (101, 1, MIXED[::-1], COOPERATIVE),
    (102, 1, OURS, EAGER),
    (103, 1, OTHERS, COOPERATIVE),
    (104, 2, MIXED[::-1], EAGER),
    (105, 2, MIXED, COOPERATIVE),
    (106, 2, OURS, COOPERATIVE),
]
LONG = [(seed, *variant[1:]) for seed in SEEDS for variant in LONG] or LONG
SECURE = [(107, 1, MIXED, COOPERATIVE), (108, 2, MIXED[::-1], EAGER)]
SECURE = [(seed, *variant[1:]) for seed in SEEDS for variant in SECURE] or SECURE


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_short_history_holds(tmp_path):
    harms = ["pause_actor", "kill_actor", "kill_broker_under_own_copiers", "let_actors_go_on"]
    workload = Workload(MIXED, COOPERATIVE, own_transaction_timeout_ms=60_000)
    counts = drill(Drill(tmp_path, 4, 1, workload), 4, 0.0, harms)
    assert min(counts[what] for what in ("sent", "committed", "aborted", "read", "kept", "owns", "observed")) > 0


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_short_history_of_a_secure_cluster_holds(tmp_path):
    """Clients log in anew where they have to."""
    workload = Workload(MIXED, EAGER, own_transaction_timeout_ms=60_000)
    counts = drill(SecureDrill(tmp_path, 5, 1, workload), 5, 0.0, ["kill_broker_under_own_copiers"])
    assert min(counts[what] for what in ("sent", "committed", "aborted", "read", "kept", "owns", "observed")) > 0


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "brokers", "kinds", "copiers"), LONG)
def test_a_long_history_holds(seed, brokers, kinds, copiers, tmp_path):
    drill(Drill(tmp_path, seed, brokers, Workload(kinds, copiers)), seed, 40.0)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "brokers", "kinds", "copiers"), SECURE)
def test_a_long_history_of_a_secure_cluster_holds(seed, brokers, kinds, copiers, tmp_path):
    drill(SecureDrill(tmp_path, seed, brokers, Workload(kinds, copiers)), seed, 40.0)
