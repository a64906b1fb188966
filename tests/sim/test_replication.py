"""Histories of replicas that are drawn by a seed: what was acknowledged is never lost, and all copies end equal."""

import pytest
from sim.cluster import SimCluster

SEEDS, STEPS = 25, 300


def run(directory, seed, **how):
    cluster = SimCluster(directory, seed, **how)
    try:
        for _ in range(STEPS):
            cluster.step()
        cluster.settle()
        cluster.check()
    finally:
        cluster.close()
    return cluster


def run_many(directory, seeds, **how):
    for seed in seeds:
        home = directory / str(seed)
        home.mkdir()
        run(home, seed, **how)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_acknowledged_is_kept(tmp_path, seed):
    run(tmp_path, seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_acknowledged_by_two_is_kept(tmp_path, seed):
    run(tmp_path, seed, min_isr=2)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_acknowledged_outlives_a_power_cut_of_one_broker(tmp_path, seed):
    run(tmp_path, seed, power_cuts=True)


def test_an_unclean_election_loses_records_and_is_caught(tmp_path):
    """The checker is checked."""
    with pytest.raises(AssertionError, match="is lost"):
        run_many(tmp_path, range(200), unclean=True)
