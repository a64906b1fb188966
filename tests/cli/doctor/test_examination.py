"""What is asked of a cluster, and when."""

import pytest
from cli.doctor.clusters import cluster

from sparklog.cli.doctor.examination import Examination, Limits
from sparklog.client.admin.groups import GroupListing
from sparklog.client.cluster.config import ClientConfig
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode
from sparklog.testing.clock import ManualClock


class Groups:
    """An Admin that tells of groups, one answer after another, and of nothing else."""

    def __init__(self, *answers, error=None):
        self._answers = list(answers)
        self._error = error

    def describe_cluster(self):
        return cluster({})

    def reachable_groups(self, **_):
        listed = [GroupListing(name, "consumer", state, "classic") for name, state in self._answers.pop(0).items()]
        return listed, {}

    def group_offsets(self, _):
        return {}

    def __getattr__(self, name):
        def refuse(*_, **__):
            raise self._error or ConnectionFailed(name)

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


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (
            ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED),
            "ask as a user with DESCRIBE on the cluster, on topics '*', groups '*' and transactional ids '*':"
            " --command-config FILE",
        ),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT), "mend that first"),
    ],
)
def test_what_a_user_may_not_see_is_to_be_asked_for_as_another(error, advice):
    config = ClientConfig.from_properties({"bootstrap.servers": "127.0.0.1:9092"})
    found = Examination(Groups({}, error=error), config, ManualClock(), Limits()).run()
    assert {each.advice for each in found if each.what.startswith("could not be looked at")} == {advice}
