"""Histories in which disks fail and brokers leave while replicas move: nothing acknowledged is lost, all rests."""

import pytest
from sim.failing import FailingCluster

STEPS = 300
SEEDS = [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 60))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", [{}, {"min_isr": 2}, {"power_cuts": True}], ids=["killed", "of-two", "cut"])
def test_what_is_acknowledged_is_kept_though_disks_fail_where_it_moves(disk, seed, how):
    FailingCluster(disk, seed, **how).live(STEPS)
