"""DeleteRecords is answered when it is durable, and nobody waits for the disk but its client."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

from sparklog.broker.apis.records import delete_records
from sparklog.broker.context import ApiRequest
from sparklog.errors import ApiError, ErrorCode, LogDirFailed
from sparklog.protocol.messages import DeleteRecordsRequest
from sparklog.replica.purgatory import Purgatory
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.testing.steps import finish

MANY = 100
FIRST, SECOND = Path("/first"), Path("/second")
_Topic = DeleteRecordsRequest.DeleteRecordsTopic


class Broker(SimpleNamespace):
    """Its even partitions lie in FIRST, the odd ones in SECOND; ``written`` are the writes that have had the disk.

    ``low`` are the low watermarks of partitions in which other replicas begin earlier, or the error in their place.
    """

    def __init__(self, *refusing):
        self.refusing = refusing
        self.disk = asyncio.Event()
        self.queued, self.written, self.failed = [], [], []
        self.low, self.deletion_purgatory = {}, Purgatory(asyncio.get_running_loop())
        super().__init__(authorizer=AllowEverything(), replicas=self, turns=self)

    async def paced(self, items):
        for each in items:
            yield each

    def low_watermark(self, tp):
        low = self.low.get(tp.partition, 5)
        if isinstance(low, ApiError):
            raise low
        return low

    def moves(self, partition, low):
        self.low[partition] = low
        self.deletion_purgatory.check(TopicPartition("t", partition))

    def held(self, tp):
        if tp.partition >= MANY:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is not here")
        return SimpleNamespace(log_dir=(FIRST, SECOND)[tp.partition % 2])

    def delete_records(self, tp, before):
        return 5 if before < 0 else before

    def start_checkpoints(self):
        return [(each, lambda each=each: self.write(each), self.failed.append) for each in (FIRST, SECOND)]

    def write(self, directory):
        self.written.append(directory)
        if directory in self.refusing:
            raise LogDirFailed(f"{directory} is full")

    async def run_disk(self, call):
        self.queued.append(call)
        await self.disk.wait()
        return call()


async def answered(broker, partitions, offset=5, timeout_ms=60_000):
    """The answer by partition: the code and the low watermark."""
    asked = [_Topic.DeleteRecordsPartition(partition_index=each, offset=offset) for each in partitions]
    message = DeleteRecordsRequest(topics=[_Topic(name="t", partitions=asked)], timeout_ms=timeout_ms)
    answer = await finish(delete_records.handle(broker, ApiRequest(delete_records.API, 2, "me", Caller("h"), message)))
    (topic,) = answer.topics
    return {each.partition_index: (ErrorCode(each.error_code), each.low_watermark) for each in topic.partitions}


def test_one_write_of_each_directory_makes_all_durable_and_is_waited_for():
    async def run():
        broker = Broker()
        asking = asyncio.ensure_future(answered(broker, range(MANY)))
        while not broker.queued:
            await asyncio.sleep(0)
        assert not broker.written, "not in the loop's own thread"
        assert not asking.done()
        broker.disk.set()
        assert await asking == dict.fromkeys(range(MANY), (ErrorCode.NONE, 5))
        assert broker.written == [FIRST, SECOND]

    asyncio.run(run())


def test_a_directory_that_refuses_fails_what_lies_in_it_alone():
    async def run():
        broker = Broker(SECOND)
        broker.disk.set()
        found = await answered(broker, [0, 1, MANY])
        assert found == {
            0: (ErrorCode.NONE, 5),
            1: (ErrorCode.KAFKA_STORAGE_ERROR, -1),
            MANY: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        }
        assert [str(each) for each in broker.failed] == ["/second is full"]

    asyncio.run(run())


def test_where_nothing_is_deleted_nothing_is_written():
    async def run():
        broker = Broker()
        assert await answered(broker, [MANY]) == {MANY: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}
        assert broker.queued == []

    asyncio.run(run())


def test_the_records_of_brokers_own_topics_are_theirs():
    async def run():
        broker = Broker()
        asked = [_Topic.DeleteRecordsPartition(partition_index=0, offset=5)]
        names = ["__consumer_offsets", "__transaction_state"]
        message = DeleteRecordsRequest(topics=[_Topic(name=each, partitions=asked) for each in names], timeout_ms=1000)
        request = ApiRequest(delete_records.API, 2, "me", Caller("h"), message)
        answer = await finish(delete_records.handle(broker, request))
        codes = [each.partitions[0].error_code for each in answer.topics]
        assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2
        assert broker.queued == []

    asyncio.run(run())


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


def test_the_answer_waits_for_the_replicas_that_begin_earlier():
    async def run():
        broker = Broker()
        broker.disk.set()
        broker.low.update({1: 4, 2: -1, 3: 0})
        asking = asyncio.ensure_future(answered(broker, [0, 1, 2, 3], offset=-1))
        await turns()
        broker.moves(1, 5)
        broker.moves(2, 4)
        broker.moves(3, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads"))
        await turns()
        assert broker.written == [FIRST, SECOND]
        assert not asking.done()
        broker.moves(2, 7)
        assert await asking == {
            0: (ErrorCode.NONE, 5),
            1: (ErrorCode.NONE, 5),
            2: (ErrorCode.NONE, 7),
            3: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        }
        assert len(broker.deletion_purgatory) == 0

    asyncio.run(run())


def test_a_replica_that_has_not_said_so_in_time_makes_it_time_out():
    async def run():
        broker = Broker()
        broker.disk.set()
        broker.low[1] = 4
        assert await answered(broker, [0, 1], timeout_ms=0) == {
            0: (ErrorCode.NONE, 5),
            1: (ErrorCode.REQUEST_TIMED_OUT, 4),
        }

    asyncio.run(run())


def test_nobody_waits_for_a_request_that_is_given_up():
    async def run():
        broker = Broker()
        broker.disk.set()
        broker.low[1] = 4
        asking = asyncio.ensure_future(answered(broker, [1]))
        await turns()
        assert len(broker.deletion_purgatory) == 1
        asking.cancel()
        await turns()
        assert len(broker.deletion_purgatory) == 0

    asyncio.run(run())
