"""Changes of topics that were made, though the answer was lost: the controller is asked again, and refuses."""

import asyncio

import pytest

from sparklog.client import AsyncAdmin
from sparklog.client.admin.topics import NewTopic
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import CreatePartitionsResponse, CreateTopicsResponse, DeleteTopicsResponse
from sparklog.testing.scripted import HangUp, ScriptedCluster


def _created(code):
    form = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(throttle_time_ms=0, topics=[form(name="t", error_code=code, error_message=None)])


def _deleted(code):
    form = DeleteTopicsResponse.DeletableTopicResult
    return DeleteTopicsResponse(throttle_time_ms=0, responses=[form(name="t", error_code=code, error_message=None)])


def _grown(code):
    form = CreatePartitionsResponse.CreatePartitionsTopicResult
    return CreatePartitionsResponse(throttle_time_ms=0, results=[form(name="t", error_code=code, error_message=None)])


_CHANGES = {
    "create": (
        ApiKey.CREATE_TOPICS,
        lambda admin: admin.create_topics([NewTopic("t", 2, 1)]),
        _created(ErrorCode.TOPIC_ALREADY_EXISTS),
    ),
    "grow": (
        ApiKey.CREATE_PARTITIONS,
        lambda admin: admin.create_partitions({"t": 2}),
        _grown(ErrorCode.INVALID_PARTITIONS),
    ),
    "delete": (
        ApiKey.DELETE_TOPICS,
        lambda admin: admin.delete_topics(["t"]),
        _deleted(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ),
}


def _change(name, *, first, becomes):
    """Make a change; ``first`` is what becomes of the first attempt, ``becomes`` the partitions' leaders then."""
    api, call, refusal = _CHANGES[name]

    async def test():
        async with ScriptedCluster() as cluster:
            cluster.topics["t"] = [0]
            attempts = []

            def answer(_asked):
                attempts.append(first)
                cluster.topics = {} if becomes is None else {"t": becomes}
                if len(attempts) == 1 and first is not None:
                    raise first
                return refusal

            cluster.on[api] = answer
            async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=1) as admin:
                await call(admin)

    asyncio.run(test())


@pytest.mark.parametrize(("name", "becomes"), [("create", [0, 0]), ("grow", [0, 0]), ("delete", None)])
def test_a_change_is_made_though_the_answer_to_its_first_attempt_was_lost(name, becomes):
    _change(name, first=HangUp(), becomes=becomes)


@pytest.mark.parametrize(
    ("name", "first", "becomes"),
    [
        ("create", None, [0, 0]),
        ("create", HangUp(), [0, 0, 0]),
        ("grow", None, [0, 0]),
        ("grow", HangUp(), [0, 0, 0]),
        ("delete", None, None),
    ],
)
def test_a_refusal_is_told_that_no_lost_attempt_explains(name, first, becomes):
    with pytest.raises(ApiError, match=r"cannot .* topic 't'"):
        _change(name, first=first, becomes=becomes)
