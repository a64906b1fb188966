"""What is asked of a cluster, and when."""

import pytest
from cli.doctor.clusters import cluster

from sparklog.cli.doctor.examination import Examination, Limits
from sparklog.client.admin.groups import GroupListing
from sparklog.client.cluster.config import ClientConfig
from sparklog.errors import ConnectionFailed
from sparklog.testing.clock import ManualClock


class Groups:
    """An Admin that tells of groups, one answer after another, and of nothing else."""

    def __init__(self, *answers):
        self._answers = list(answers)

    def describe_cluster(self):
        return cluster({})

    def reachable_groups(self, **_):
        listed = [GroupListing(name, "consumer", state, "classic") for name, state in self._answers.pop(0).items()]
        return listed, {}

    def group_offsets(self, _):
        return {}

    def __getattr__(self, name):
        def refuse(*_, **__):
            raise ConnectionFailed(name)

        return refuse


def looked_at(*answers):
    clock = ManualClock()
    before = clock.monotonic()
    config = ClientConfig.from_properties({"bootstrap.servers": "127.0.0.1:9092"})
    found = Examination(Groups(*answers), config, clock, Limits()).run()
    return [each.where for each in found if each.where[0].startswith("group ")], clock.monotonic() - before


def test_a_rebalance_is_looked_at_again():
    first = {"a": "PreparingRebalance", "b": "CompletingRebalance", "c": "Stable"}
    then = {"a": "CompletingRebalance", "b": "Stable", "c": "PreparingRebalance"}
    assert looked_at(first, then) == ([("group a",)], 10.0)


@pytest.mark.parametrize("state", ["Stable", "Empty"])
def test_nothing_is_waited_for_without_a_rebalance(state):
    assert looked_at({"a": state}) == ([], 0.0)
