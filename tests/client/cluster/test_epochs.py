"""Where a leader epoch ended, as the leader tells that is known to lead now."""

import asyncio

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.epochs import ends_of_epochs
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetForLeaderEpochResponse
from sparklog.structs import TopicPartition
from sparklog.testing.scripted import ScriptedCluster

TP = TopicPartition("t", 0)


def test_one_that_led_before_and_has_not_heard_of_another_election_is_not_believed():
    """It has all that it had, so that what an unclean election cut off seems to be there still."""
    form = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    known = [5, 7]  # what the broker hears of, one after the other

    def tell(asked):
        (partition,) = asked.message.topics[0].partitions
        epoch = known.pop(0) if len(known) > 1 else known[0]
        is_behind = partition.current_leader_epoch > epoch
        code = ErrorCode.UNKNOWN_LEADER_EPOCH if is_behind else ErrorCode.NONE
        end = form.EpochEndOffset(
            error_code=int(code), partition=0, leader_epoch=5, end_offset=9 if epoch == partition.leader_epoch else 6
        )
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=[form(topic="t", partitions=[end])])

    async def test():
        async with ScriptedCluster() as scripted:
            scripted.topics["t"], scripted.leader_epoch = [0], 7
            scripted.on[ApiKey.OFFSET_FOR_LEADER_EPOCH] = tell
            config = ClientConfig(bootstrap_servers=scripted.bootstrap_servers, retry_backoff_ms=1)
            with ClusterMetadata(config) as cluster:
                assert await asyncio.to_thread(ends_of_epochs, cluster, {TP: 5}) == {TP: 6}

    asyncio.run(test())
