"""DeleteTopics: several at once, of which one does not come to its end."""

import asyncio
from types import SimpleNamespace

from sparklog.broker.apis.cluster import delete_topics
from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.net.turns import Turns
from sparklog.protocol.messages import DeleteTopicsRequest
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.testing.clock import ManualClock


def deleted(*names, stuck=False):
    """What became of the topics, of which there are a, b and c, in order; and what was done, with the seconds that
    each wait was to take. With ``stuck`` the first wait takes all of them.
    """
    done, clock = [], ManualClock()

    async def run_zk(request_deletion, name, topic_id):
        done.append(name)

    async def wait_for(condition, timeout):
        done.append(timeout)
        if not stuck or timeout <= 0:
            return True
        clock.advance(timeout)
        return False

    async def handled():
        topics = {name: SimpleNamespace(name=name, topic_id=None, partitions={0: None}) for name in "abc"}
        broker = SimpleNamespace(
            authorizer=AllowEverything(),
            config=BrokerConfig(),
            controller=SimpleNamespace(is_active=True),
            metadata=SimpleNamespace(topic=topics.get, wait_for=wait_for),
            quotas=ClientQuotas(BrokerConfig(), clock),
            run_zk=run_zk,
            turns=Turns(asyncio.get_running_loop(), clock),
            zk=SimpleNamespace(topics=SimpleNamespace(request_deletion=None)),
        )
        message = DeleteTopicsRequest(topics=[], topic_names=[*names], timeout_ms=30_000)
        return await delete_topics.handle(broker, ApiRequest(delete_topics.API, 5, "c", Caller("h"), message))

    answer = asyncio.run(handled())
    assert [each.name for each in answer.responses] == [*names]
    return [ErrorCode(each.error_code) for each in answer.responses], done


def test_all_are_begun_before_one_is_waited_for_and_have_one_time_together():
    """A broker with a replica of the first is away: the client gave up before the second was asked for at all."""
    codes, done = deleted("a", "b", "nothing", "c", stuck=True)
    assert done == ["a", "b", "c", 30.0, 0.0, 0.0]
    assert codes == [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]


def test_what_is_named_twice_is_deleted_once():
    assert deleted("a", "b", "a") == ([ErrorCode.NONE] * 3, ["a", "b", 30.0, 30.0, 30.0])
