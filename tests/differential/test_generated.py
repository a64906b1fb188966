"""Sequences drawn by lot: the same seed asks Kafka 3.9.1 and us the same, each request in a version of its own."""

import os

import pytest
from differential.generated import STEPS, wander
from differential.pair import Pair
from differential.table import allowances

pytestmark = [pytest.mark.peer, pytest.mark.slow]
SEEDS = [int(seed) for seed in os.environ.get("DIFFERENTIAL_SEEDS", "").split()] or range(1, 13)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_answer_alike_whatever_is_asked(addresses, versions, seed):
    with Pair(addresses, versions, f"generated-{seed}") as pair:
        wander(pair, seed)
    allowed = allowances()
    wrong = [each for each in pair.differences if not any(allowance.covers(each) for allowance in allowed)]
    assert pair.steps > STEPS
    assert not wrong, "\n".join(["Kafka and sparklog differ first in:", *map(str, wrong[:10])])
