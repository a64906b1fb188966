"""Histories in which replicas move: what was acknowledged is never lost, and only those that are to have it have it."""

import pytest
from sim.moving import MovingCluster
from sim.seeds import seeds

STEPS = 300
SEEDS = seeds(15, 40)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", [{}, {"min_isr": 2}, {"power_cuts": True}], ids=["killed", "of-two", "cut"])
def test_what_is_acknowledged_is_kept_wherever_it_moves(disk, seed, how):
    MovingCluster(disk, seed, **how).live(STEPS)
