"""The workload under harm, and its history checked: ``checker`` says what must hold."""

import os
from collections import Counter

import pytest
from histories.checker import check
from histories.clients import CONFLUENT, OWN
from histories.drill import COPIERS, READERS, SOURCE, TARGET, Drill, SecureDrill, Workload
from histories.history import load

COPIED = {COPIERS: (SOURCE, TARGET)}
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


def drill(home, seed, seconds, brokers, workload, first=(), kind=Drill):
    """Run, check, and say where the history is if it is a bad one."""
    run = kind(home, seed, brokers, workload)
    try:
        run.run(seconds, first)
        assert not run.crashes()
        events = load(run.history)
        breaches = check(events, COPIED)
        assert not breaches, "\n".join(map(str, [f"{len(breaches)} breaches", *breaches[:20]]))
    except BaseException as error:
        error.add_note(f"seed {seed}; HISTORY_SEEDS={seed} repeats it; its history is in {run.history}")
        raise
    return Counter(event["what"] for event in events)


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_short_history_holds(tmp_path):
    harms = ["pause_actor", "kill_actor", "kill_broker_under_own_copiers", "let_actors_go_on"]
    workload = Workload(MIXED, COOPERATIVE, own_transaction_timeout_ms=60_000)
    counts = drill(tmp_path, 4, 0.0, 1, workload, harms)
    assert min(counts[what] for what in ("sent", "committed", "aborted", "read", "kept", "owns", "observed")) > 0


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_short_history_of_a_secure_cluster_holds(tmp_path):
    """Clients log in anew where they have to."""
    workload = Workload(MIXED, EAGER, own_transaction_timeout_ms=60_000)
    counts = drill(tmp_path, 5, 0.0, 1, workload, ["kill_broker_under_own_copiers"], SecureDrill)
    assert min(counts[what] for what in ("sent", "committed", "aborted", "read", "kept", "owns", "observed")) > 0


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "brokers", "kinds", "copiers"), LONG)
def test_a_long_history_holds(seed, brokers, kinds, copiers, tmp_path):
    drill(tmp_path, seed, 40.0, brokers, Workload(kinds, copiers))


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "brokers", "kinds", "copiers"), SECURE)
def test_a_long_history_of_a_secure_cluster_holds(seed, brokers, kinds, copiers, tmp_path):
    drill(tmp_path, seed, 40.0, brokers, Workload(kinds, copiers), kind=SecureDrill)
