"""Brokers of both kinds in one cluster under the histories: whatever happens to them, ``checker`` finds nothing."""

import os

import pytest
from compat.mixed_histories import KAFKA, OURS, MixedDrill, MixedFire
from histories.clients import CONFLUENT, OWN
from histories.drill import READERS, Workload, drill
from histories.fire import burn

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(1200)]

KINDS = [(KAFKA, OURS, OURS), (OURS, KAFKA, KAFKA), (OURS, OURS, KAFKA), (KAFKA, KAFKA, OURS)]
"""The first broker is the first controller. A seed has these in turn."""
SEEDS = [int(seed) for seed in os.environ.get("MIXED_FIRE_SEEDS", "").split()] or (
    *(302, 306, 312, 320),
    *(301, 303, 307, 309),
)
"""Each harm to a broker is among them. ``MIXED_FIRE_SEEDS="7 8"`` runs these alone."""
DRILLS = [(330, KINDS[0], "eager"), (331, KINDS[1], "cooperative")]
DRILLS = [(int(seed), *each[1:]) for seed in os.environ.get("HISTORY_SEEDS", "").split() for each in DRILLS] or DRILLS
"""``HISTORY_SEEDS="7 8"`` repeats some, in both."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mixed_cluster_under_fire_keeps_its_promises(seed, tmp_path):
    burn(MixedFire(tmp_path, seed, 6, KINDS[seed % len(KINDS)]))


@pytest.mark.parametrize(("seed", "kinds", "copiers"), DRILLS)
def test_a_history_of_a_mixed_cluster_without_replicas_holds(seed, kinds, copiers, tmp_path):
    drill(MixedDrill(tmp_path, seed, kinds, Workload((CONFLUENT, OWN), READERS[copiers])), seed, 40.0)
