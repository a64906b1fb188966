"""Fetch sessions against a live broker: whole at first, then only news; topics that come, go and are made anew."""

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.hot.fetch import FetchPartition, FetchRequest, ForgottenPartition
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

PATIENT_MS = 20_000
BY_NAME, BY_ID = wire.BY_NAME, fetch_wire.MAX_VERSION


class Session:
    """The asking end of a fetch session."""

    def __init__(self, connection, version=BY_NAME):
        self.connection = connection
        self.version = version
        self.id, self.epoch = 0, 0

    def send(self, *partitions, forgotten=(), max_wait_ms=0, max_bytes=wire.MANY):
        message = FetchRequest(
            max_wait_ms,
            1,
            max_bytes,
            list(partitions),
            session_id=self.id,
            session_epoch=self.epoch,
            forgotten=list(forgotten),
        )
        self.connection.send(ApiKey.FETCH, self.version, fetch_wire.encode_request(message, self.version))

    def receive(self):
        """The error and the partitions of the answer."""
        _, version, body = self.connection.receive()
        error, partitions = fetch_wire.decode_response(body, version)
        if error is ErrorCode.NONE:
            self.id = fetch_wire.session_id_of(body, version)
            self.epoch += 1
        return error, partitions

    def ask(self, *partitions, **how):
        self.send(*partitions, **how)
        error, fetched = self.receive()
        assert error is ErrorCode.NONE
        return fetched


def asked(tp, offset=0, topic_id=ZERO_UUID):
    return FetchPartition(tp.topic, topic_id, tp.partition, offset, wire.MANY)


def put(connection, tp, count=1):
    for _ in range(count):
        assert wire.produce(connection, tp, wire.batch_of(b"v" * 100))[0] is ErrorCode.NONE


def topic_id_of(connection, topic):
    (described,) = wire.metadata(connection, topic).topics
    return described.topic_id


@pytest.fixture
def partitions(make_topic):
    name = make_topic(partitions=3)
    return [TopicPartition(name, number) for number in range(3)]


@pytest.mark.parametrize("version", [7, BY_NAME, BY_ID])
def test_after_the_first_answer_only_news_comes(connection, partitions, version):
    topic_id = topic_id_of(connection, partitions[0].topic)
    session = Session(connection, version)
    assert [each.partition for each in session.ask(*(asked(tp, topic_id=topic_id) for tp in partitions))] == [0, 1, 2]
    assert session.id > 0
    assert session.ask() == []
    put(connection, partitions[1])
    (news,) = session.ask()
    assert (news.partition, wire.offsets_in(news), news.high_watermark) == (1, [0], 1)
    (again,) = session.ask()
    assert wire.offsets_in(again) == [0], "it was not asked for anything else"
    gone = ForgottenPartition(partitions[0].topic, topic_id, 0)
    assert session.ask(asked(partitions[1], 1, topic_id), forgotten=[gone]) == []
    put(connection, partitions[0])
    assert session.ask() == []


def test_a_session_waits_for_all_its_partitions(bootstrap, connection, partitions):
    with wire.connect(bootstrap) as reader:
        session = Session(reader)
        session.ask(*map(asked, partitions))
        for number in (2, 0):
            session.send(max_wait_ms=PATIENT_MS)
            put(connection, partitions[number])
            error, news = session.receive()
            assert (error, [each.partition for each in news]) == (ErrorCode.NONE, [number])
            session.ask(asked(partitions[number], 1))


def test_no_partition_starves(connection, partitions):
    for tp in partitions:
        put(connection, tp, 4)
    session = Session(connection)
    first = session.ask(*map(asked, partitions), max_bytes=1)
    given = [each.partition for each in first if each.records]
    for _ in range(5):
        given += [each.partition for each in session.ask(max_bytes=1) if each.records]
    assert given == [0, 0, 1, 2, 0, 1], "the first, full answer has no session to take turns in"


def test_a_session_that_is_lost_is_told_so(connection, partitions):
    session = Session(connection)
    session.ask(asked(partitions[0]))
    held, session.epoch = session.epoch, 5
    session.send()
    assert session.receive()[0] is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch, session.version = held, BY_ID
    session.send()
    assert session.receive()[0] is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    session.id, session.version = session.id ^ 1, BY_NAME
    session.send()
    assert session.receive()[0] is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_topic_made_anew_is_another(connection, partitions):
    tp = partitions[0]
    session = Session(connection, BY_ID)
    topic_id = topic_id_of(connection, tp.topic)
    assert session.ask(asked(tp, topic_id=topic_id))[0].error is ErrorCode.NONE
    assert wire.delete_topic(connection, tp.topic) is ErrorCode.NONE

    def error():
        return [each.error for each in session.ask()]

    eventually(lambda: error() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert wire.create_topic(connection, tp.topic)[0] is ErrorCode.NONE
    eventually(lambda: error() == [ErrorCode.INCONSISTENT_TOPIC_ID])
    anew = topic_id_of(connection, tp.topic)
    gone = ForgottenPartition("", topic_id, tp.partition)
    assert [each.error for each in session.ask(asked(tp, topic_id=anew), forgotten=[gone])] == [ErrorCode.NONE]


def test_an_unknown_topic_id_is_told_with_each_answer(connection, partitions):
    session = Session(connection, BY_ID)
    known, unknown = topic_id_of(connection, partitions[0].topic), topic_id_of(connection, partitions[0].topic)
    unknown = type(known)(int=known.int ^ 1)
    session.ask(asked(partitions[0], topic_id=known), asked(partitions[1], topic_id=unknown))
    for _ in range(2):
        assert [(each.partition, each.error) for each in session.ask()] == [(1, ErrorCode.UNKNOWN_TOPIC_ID)]
