"""The workload under harm, and its history checked: ``checker`` says what must hold."""

import os
from collections import Counter

import pytest
from histories.checker import check
from histories.drill import COPIERS, SOURCE, TARGET, Drill
from histories.history import load

COPIED = {COPIERS: (SOURCE, TARGET)}
SEEDS = [int(seed) for seed in os.environ.get("HISTORY_SEEDS", "").split()]
"""``HISTORY_SEEDS="7 8"`` repeats some, with one broker and with two."""
LONG = [(seed, brokers) for seed in SEEDS for brokers in (1, 2)]
LONG = LONG or [(100, 1), (101, 1), (102, 1), (103, 1), (104, 2), (105, 2)]


def drill(home, seed, seconds, first=(), **how):
    """Run, check, and say where the history is if it is a bad one."""
    workload = Drill(home, seed, **how)
    try:
        workload.run(seconds, first)
        assert not workload.crashes()
        events = load(workload.history)
        breaches = check(events, COPIED)
        assert not breaches, "\n".join(map(str, [f"{len(breaches)} breaches", *breaches[:20]]))
    except BaseException as error:
        error.add_note(f"seed {seed}; HISTORY_SEEDS={seed} repeats it; its history is in {workload.history}")
        raise
    return Counter(event["what"] for event in events)


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_short_history_holds(tmp_path):
    counts = drill(tmp_path, 4, 0.0, ["pause_actor", "kill_actor", "kill_broker", "kill_copiers", "let_actors_go_on"])
    assert min(counts[what] for what in ("sent", "committed", "aborted", "read", "kept", "owns", "observed")) > 0


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "brokers"), LONG)
def test_a_long_history_holds(seed, brokers, tmp_path):
    drill(tmp_path, seed, 40.0, brokers=brokers)
