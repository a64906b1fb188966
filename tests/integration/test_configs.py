"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs on the wire: what is kept, refused, in force, and told."""

import json
import re
import time

import pytest
from integration import wire

from sparklog.errors import ConnectionFailed, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeProducersRequest,
    IncrementalAlterConfigsRequest,
)
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_TOPIC, OF_BROKER, OF_CLUSTER, STATIC, DEFAULT = range(1, 6)


def alter(connection, kind, name, *changes, validate_only=False, version=1):
    """Code and message; ``changes`` are (name, operation, value)."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes]
    asked = [resource(resource_type=kind, resource_name=name, configs=configs)]
    request = IncrementalAlterConfigsRequest(resources=asked, validate_only=validate_only)
    (result,) = wire.ask(connection, ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return ErrorCode(result.error_code), result.error_message or ""


def replace(connection, kind, name, settings, validate_only=False, version=2):
    resource = AlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name=key, value=value) for key, value in settings.items()]
    asked = [resource(resource_type=kind, resource_name=name, configs=configs)]
    request = AlterConfigsRequest(resources=asked, validate_only=validate_only)
    (result,) = wire.ask(connection, ApiKey.ALTER_CONFIGS, version, request).responses
    return ErrorCode(result.error_code), result.error_message or ""


def describe(connection, kind, name, *keys):
    """Setting → its value, source and whether it is read only, and its synonyms' (value, source)."""
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=False)
    (result,) = wire.ask(connection, ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert result.error_code == ErrorCode.NONE
    return {
        each.name: (
            (each.value, each.config_source, each.read_only),
            [(synonym.value, synonym.source) for synonym in each.synonyms],
        )
        for each in result.configs
    }


def value(connection, kind, name, key):
    return describe(connection, kind, name, key)[key][0][:2]


@pytest.mark.parametrize("whose", ["0", ""])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"log.cleaner.threads": "1000"}, "each needs more than 1048576"),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "each needs more than 1048576"),
        ({"log.cleaner.io.buffer.load.factor": "0"}, "must be more than 0, and at most 1"),
        ({"log.cleaner.io.max.bytes.per.second": "0"}, "must be more than 0"),
    ],
)
def test_a_cleaner_is_given_nothing_with_which_it_could_not_work(connection, whose, changes, said):
    asked = [(name, SET, text) for name, text in changes.items()]
    code, message = alter(connection, BROKER, whose, *asked, validate_only=True)
    assert code is ErrorCode.INVALID_REQUEST
    assert said in message
    both = {"log.cleaner.threads": "1000", "log.cleaner.dedupe.buffer.size": "1048577000"}
    assert replace(connection, BROKER, whose, both, validate_only=True)[0] is ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1])
def test_a_topics_setting_is_in_force_at_once(connection, tp, version):
    assert wire.produce(connection, tp, wire.batch_of(b"x" * 500))[0] is ErrorCode.NONE
    assert alter(connection, TOPIC, tp.topic, ("max.message.bytes", SET, "200"), version=version) == (
        ErrorCode.NONE,
        "",
    )
    assert wire.produce(connection, tp, wire.batch_of(b"x" * 500))[0] is ErrorCode.MESSAGE_TOO_LARGE
    assert value(connection, TOPIC, tp.topic, "max.message.bytes") == ("200", OF_TOPIC)
    assert alter(connection, TOPIC, tp.topic, ("max.message.bytes", DELETE, None), version=version)[0] is ErrorCode.NONE
    assert wire.produce(connection, tp, wire.batch_of(b"x" * 500))[0] is ErrorCode.NONE
    assert value(connection, TOPIC, tp.topic, "max.message.bytes") == ("1048588", DEFAULT)


def test_lists_are_appended_to_and_subtracted_from(connection, make_topic):
    topic = make_topic()
    assert alter(connection, TOPIC, topic, ("cleanup.policy", APPEND, "compact"))[0] is ErrorCode.NONE
    assert value(connection, TOPIC, topic, "cleanup.policy") == ("delete,compact", OF_TOPIC)
    assert alter(connection, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete"))[0] is ErrorCode.NONE
    assert value(connection, TOPIC, topic, "cleanup.policy") == ("compact", OF_TOPIC)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_older_request_replaces_all_settings(connection, make_topic, version):
    topic = make_topic(segment_bytes=5000, retention_ms=7)
    assert replace(connection, TOPIC, topic, {"retention.ms": "9"}, version=version) == (ErrorCode.NONE, "")
    assert value(connection, TOPIC, topic, "retention.ms") == ("9", OF_TOPIC)
    assert value(connection, TOPIC, topic, "segment.bytes") == ("1073741824", DEFAULT)


def test_what_is_only_validated_changes_nothing(connection, make_topic):
    topic = make_topic()
    assert alter(connection, TOPIC, topic, ("retention.ms", SET, "5"), validate_only=True) == (ErrorCode.NONE, "")
    assert replace(connection, TOPIC, topic, {"retention.ms": "5"}, validate_only=True) == (ErrorCode.NONE, "")
    code, _ = alter(connection, TOPIC, topic, ("retention.ms", SET, "soon"), validate_only=True)
    assert code is ErrorCode.INVALID_CONFIG
    assert value(connection, TOPIC, topic, "retention.ms") == ("604800000", DEFAULT)


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG, "not a whole number of 64 bits"),
        ([("retention.ms", SET, "5"), ("no.such", SET, "1")], ErrorCode.INVALID_CONFIG, "unknown setting"),
        ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG, "not a list"),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "needs a value"),
        ([("retention.ms", SET, "5"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST, "twice"),
        ([("retention.ms", 4, "5")], ErrorCode.INVALID_REQUEST, "no operation 4"),
    ],
)
def test_a_resource_is_changed_whole_or_not_at_all(connection, make_topic, changes, code, says):
    topic = make_topic()
    assert alter(connection, TOPIC, topic, *changes)[0] is code
    assert says in alter(connection, TOPIC, topic, *changes)[1]
    assert value(connection, TOPIC, topic, "retention.ms") == ("604800000", DEFAULT)


def test_settings_that_do_not_go_together_are_refused_however_they_come(connection, make_topic):
    topic = make_topic(max_compaction_lag_ms=5)
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    code, message = alter(connection, TOPIC, topic, (least, SET, "6"))
    assert code is ErrorCode.INVALID_CONFIG
    assert f"{least}=6 is more than {most}=5" in message
    assert replace(connection, TOPIC, topic, {least: "6", most: "5"})[0] is ErrorCode.INVALID_CONFIG
    assert value(connection, TOPIC, topic, least) == ("0", DEFAULT)
    both = ((least, SET, "6"), (most, SET, "6"))
    assert alter(connection, TOPIC, topic, *both) == (ErrorCode.NONE, "")
    assert replace(connection, TOPIC, topic, {least: "7"}) == (ErrorCode.NONE, "")
    assert value(connection, TOPIC, topic, least) == ("7", OF_TOPIC)


def test_the_strategy_of_compaction_and_its_header_are_set_together(connection, make_topic):
    topic, strategy = make_topic(), "compaction.strategy"
    code, message = alter(connection, TOPIC, topic, (strategy, SET, "header"))
    assert (code, "needs compaction.strategy.header" in message) == (ErrorCode.INVALID_CONFIG, True)
    assert "one of offset, timestamp, header" in alter(connection, TOPIC, topic, (strategy, SET, "newest"))[1]
    assert value(connection, TOPIC, topic, strategy) == ("offset", DEFAULT)
    both = ((strategy, SET, "header"), (f"{strategy}.header", SET, "v"))
    assert alter(connection, TOPIC, topic, *both) == (ErrorCode.NONE, "")
    assert value(connection, TOPIC, topic, f"{strategy}.header") == ("v", OF_TOPIC)
    code, message = alter(connection, BROKER, "", ("log.cleaner.compaction.strategy", SET, "header"))
    assert (code, "needs compaction.strategy.header" in message) == (ErrorCode.INVALID_REQUEST, True)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_REQUEST),
        (BROKER, "99", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_here(connection, kind, name, code):
    assert alter(connection, kind, name, ("retention.ms", SET, "5"))[0] is code
    assert replace(connection, kind, name, {"retention.ms": "5"})[0] is code


def test_a_resource_stands_in_a_request_once(connection, make_topic):
    topic = make_topic()
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    asked = [resource(resource_type=TOPIC, resource_name=topic, configs=[])] * 2
    request = IncrementalAlterConfigsRequest(resources=asked, validate_only=False)
    results = wire.ask(connection, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("name", ["num.partitions", "log.dirs", "log.retention.hours", "retention.ms", "no.such"])
def test_what_a_broker_reads_at_its_start_is_refused(connection, name):
    for whose in ("0", ""):
        assert alter(connection, BROKER, whose, (name, SET, "1"))[0] is ErrorCode.INVALID_REQUEST
        assert replace(connection, BROKER, whose, {name: "1"})[0] is ErrorCode.INVALID_REQUEST
    assert describe(connection, BROKER, "0", "num.partitions")["num.partitions"][0][2]


@pytest.fixture
def alone(tmp_path, chroot):
    """A broker of this test's own."""
    with BrokerHarness(tmp_path, chroot, settings={"log.segment.bytes": "40000"}) as harness:
        yield harness


@pytest.fixture
def alone_and_looking(tmp_path, chroot):
    """One that looks for producers to forget all the time."""
    settings = {"producer.id.expiration.check.interval.ms": "50"}
    with BrokerHarness(tmp_path, chroot, settings=settings) as harness:
        yield harness


def test_a_brokers_settings_lie_over_each_other_and_survive_a_restart(alone):
    with wire.connect(alone.address) as connection:
        assert wire.create_topic(connection, "t", configs={"retention.ms": "1000"})[0] is ErrorCode.NONE
        assert alter(connection, BROKER, "", ("log.segment.bytes", SET, "30000"))[0] is ErrorCode.NONE
        assert alter(connection, BROKER, "0", ("log.segment.bytes", SET, "20000"))[0] is ErrorCode.NONE
        assert alter(connection, BROKER, "", ("message.max.bytes", SET, "200"))[0] is ErrorCode.NONE
        assert alter(connection, TOPIC, "t", ("retention.ms", SET, "2000"))[0] is ErrorCode.NONE
        expect_layers(connection)
    alone.kill()
    alone.start()
    with wire.connect(alone.address) as connection:
        expect_layers(connection)
        assert alter(connection, BROKER, "0", ("log.segment.bytes", DELETE, None))[0] is ErrorCode.NONE
        assert replace(connection, BROKER, "", {})[0] is ErrorCode.NONE
        assert value(connection, BROKER, "0", "log.segment.bytes") == ("40000", STATIC)
        assert describe(connection, BROKER, "") == {}
        assert wire.produce(connection, TopicPartition("t", 0), wire.batch_of(b"x" * 500))[0] is ErrorCode.NONE


def test_a_broker_does_not_start_while_a_topic_has_settings_that_cannot_be_read(alone, chroot):
    """Under other settings its logs could lose records."""
    with wire.connect(alone.address) as connection:
        for topic in ("a", "broken"):
            assert wire.create_topic(connection, topic)[0] is ErrorCode.NONE
            assert wire.produce(connection, TopicPartition(topic, 0), wire.batch_of(b"x"))[0] is ErrorCode.NONE
    alone.kill()
    zk = ZkClient(chroot, session_timeout=10.0, on_session=lambda _: None)
    try:
        path = "/config/topics/broken"
        before, _ = zk.kazoo.get(path)
        zk.kazoo.set(path, b"{")
        with pytest.raises(ConnectionFailed, match=rf"znode {path} does not hold JSON"):
            alone.start()
        zk.kazoo.set(path, before)
    finally:
        zk.close()
    alone.start()
    with wire.connect(alone.address) as connection:
        assert wire.read_all(connection, TopicPartition("a", 0)) == [b"x"]
        assert wire.read_all(connection, TopicPartition("broken", 0)) == [b"x"]


def test_how_long_producers_are_remembered_changes_at_once(alone_and_looking):
    tp = TopicPartition("t", 0)
    request = DescribeProducersRequest(topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])])
    with wire.connect(alone_and_looking.address) as connection:
        assert wire.create_topic(connection, "t")[0] is ErrorCode.NONE

        def remembered():
            (topic,) = wire.ask(connection, ApiKey.DESCRIBE_PRODUCERS, 0, request).topics
            return [each.producer_id for each in topic.partitions[0].active_producers]

        builder = RecordBatchBuilder(producer_id=5, producer_epoch=0, base_sequence=0)
        builder.append(time.time_ns() // 1_000_000, None, b"v")  # a producer is as old as its last record
        assert wire.produce(connection, tp, bytearray(builder.build()))[0] is ErrorCode.NONE
        assert remembered() == [5]
        assert alter(connection, BROKER, "", ("producer.id.expiration.ms", SET, "1"))[0] is ErrorCode.NONE
        eventually(lambda: remembered() == [])
        assert value(connection, BROKER, "0", "producer.id.expiration.ms") == ("1", OF_CLUSTER)


def expect_layers(connection):
    assert describe(connection, TOPIC, "t", "segment.bytes")["segment.bytes"] == (
        ("20000", OF_BROKER, False),
        [("20000", OF_BROKER), ("30000", OF_CLUSTER), ("40000", STATIC), ("1073741824", DEFAULT)],
    )
    assert value(connection, TOPIC, "t", "retention.ms") == ("2000", OF_TOPIC)
    assert value(connection, BROKER, "0", "log.segment.bytes") == ("20000", OF_BROKER)
    assert describe(connection, BROKER, "") == {
        "log.segment.bytes": (("30000", OF_CLUSTER, False), [("30000", OF_CLUSTER)]),
        "message.max.bytes": (("200", OF_CLUSTER, False), [("200", OF_CLUSTER)]),
    }
    assert wire.produce(connection, TopicPartition("t", 0), wire.batch_of(b"x" * 500))[0] is ErrorCode.MESSAGE_TOO_LARGE


def test_a_change_is_kept_and_told_of_as_kafka_does(alone, chroot):
    with wire.connect(alone.address) as connection:
        assert wire.create_topic(connection, "t")[0] is ErrorCode.NONE
        for kind, name, key in (
            (TOPIC, "t", "retention.ms"),
            (BROKER, "0", "log.roll.ms"),
            (BROKER, "", "log.roll.ms"),
        ):
            assert alter(connection, kind, name, (key, SET, "5"))[0] is ErrorCode.NONE
    zk = ZkClient(chroot, session_timeout=10.0, on_session=lambda _: None)
    try:
        raw = {path: zk.kazoo.get(path)[0] for path in ("/config/topics/t", "/config/brokers/0")}
        told = [zk.kazoo.get(f"/config/changes/{each}")[0] for each in sorted(zk.kazoo.get_children("/config/changes"))]
        assert raw["/config/topics/t"] == b'{"version":1,"config":{"retention.ms":"5"}}'
        assert raw["/config/brokers/0"] == b'{"version":1,"config":{"log.roll.ms":"5"}}'
        assert zk.kazoo.get("/config/brokers/<default>")[0] == raw["/config/brokers/0"]
        assert told == [
            b'{"version":2,"entity_path":"topics/t"}',
            b'{"version":2,"entity_path":"brokers/0"}',
            b'{"version":2,"entity_path":"brokers/<default>"}',
        ]
        # And the other way round: what somebody else writes is taken over, known name or not.
        zk.configs.change("topics/t", lambda stored: stored | {"max.message.bytes": "200", "foreign": "1"})
    finally:
        zk.close()
    with wire.connect(alone.address) as connection:
        large = wire.batch_of(b"x" * 500)
        refused = ErrorCode.MESSAGE_TOO_LARGE
        eventually(lambda: wire.produce(connection, TopicPartition("t", 0), bytearray(large))[0] is refused, 60)


def test_every_broker_takes_over_a_change(tmp_path):
    with ClusterHarness(tmp_path, brokers=2) as cluster:
        addresses = [each.address for each in cluster.brokers]
        with wire.connect(addresses[0]) as one, wire.connect(addresses[1]) as two:
            connections = {0: one, 1: two}
            controller = wire.metadata(one).controller_id
            assert wire.create_topic(connections[controller], "t", 2)[0] is ErrorCode.NONE
            for each in (one, two):
                eventually(lambda at=each: set(wire.leaders(at, "t").values()) == {0, 1}, 60)
            (elsewhere,) = (TopicPartition("t", each) for each, leader in wire.leaders(one, "t").items() if leader == 1)
            assert alter(one, TOPIC, "t", ("max.message.bytes", SET, "200"))[0] is ErrorCode.NONE

            def refused():
                return wire.produce(two, elsewhere, wire.batch_of(b"x" * 500))[0] is ErrorCode.MESSAGE_TOO_LARGE

            eventually(refused, 60, "the other broker knows")
            assert alter(two, TOPIC, "t", ("max.message.bytes", DELETE, None))[0] is ErrorCode.NONE
            assert not refused()
            assert alter(one, BROKER, "", ("message.max.bytes", SET, "200"))[0] is ErrorCode.NONE
            eventually(refused, 60, "the cluster's default is the other broker's too")


LOGGER, OF_LOGGER = 8, 6
CLEANING = "sparklog.replica.cleaning"


def logged(broker):
    """The lines of its log, without those that tell its addresses."""
    return [json.loads(line) for line in broker.output().splitlines() if not line.startswith("sparklog broker 0 ")]


def test_levels_of_loggers_change_while_the_broker_runs_and_are_gone_with_it(tmp_path, chroot, monkeypatch):
    monkeypatch.setenv("SPARKLOG_LOG_FORMAT", "json")
    with BrokerHarness(tmp_path, chroot) as broker:
        with wire.connect(broker.address) as connection:
            told = describe(connection, LOGGER, "0")
            assert told["root"] == told[CLEANING] == told["sparklog.replica"] == (("INFO", OF_LOGGER, False), [])
            assert alter(connection, LOGGER, "0", ("sparklog.replica", SET, "ERROR"))[0] is ErrorCode.NONE
            assert value(connection, LOGGER, "0", CLEANING) == ("ERROR", OF_LOGGER)
            (said,) = (each for each in logged(broker) if each["logger"] == "sparklog.broker.handling.loggers")
            assert (said["level"], said["broker"]) == ("WARNING", 0)
            assert said["message"].startswith("the level of logger sparklog.replica is ERROR until")
            assert alter(connection, LOGGER, "0", (CLEANING, SET, "DEBUG"), validate_only=True)[0] is ErrorCode.NONE
            assert value(connection, LOGGER, "0", CLEANING) == ("ERROR", OF_LOGGER)
        broker.restart()
        with wire.connect(broker.address) as connection:
            assert value(connection, LOGGER, "0", CLEANING) == ("INFO", OF_LOGGER)


@pytest.mark.parametrize(
    ("whose", "change", "code", "said"),
    [
        ("0", (CLEANING, SET, "LOUD"), ErrorCode.INVALID_CONFIG, "'LOUD' is no level"),
        ("0", ("no.such", SET, "INFO"), ErrorCode.INVALID_CONFIG, "there is no logger"),
        ("0", ("root", DELETE, None), ErrorCode.INVALID_REQUEST, "not be taken back"),
        ("", (CLEANING, SET, "INFO"), ErrorCode.INVALID_REQUEST, "the loggers of broker 0, not of ''"),
        ("1", (CLEANING, SET, "INFO"), ErrorCode.INVALID_REQUEST, "the loggers of broker 0, not of '1'"),
    ],
)
def test_levels_that_cannot_be_are_refused(connection, whose, change, code, said):
    refused, message = alter(connection, LOGGER, whose, change)
    assert (refused, said in message) == (code, True)


def test_loggers_have_no_old_request(connection):
    assert replace(connection, LOGGER, "0", {CLEANING: "INFO"})[0] is ErrorCode.INVALID_REQUEST


SLOW = "sparklog.slow.request.log.ms"


def test_slow_requests_are_told_from_when_the_setting_says_so(cluster, connection, make_topic):
    name = make_topic()
    assert alter(connection, BROKER, "0", (SLOW, SET, "0"))[0] is ErrorCode.NONE

    def is_told():
        wire.produce(connection, TopicPartition(name, 0), wire.batch_of(b"x"))
        return re.search(
            r"slow: PRODUCE version \d+ of client '[^']*' from 127\.0\.0\.1:\d+, User:ANONYMOUS on PLAINTEXT, "
            r"\d+ bytes: [\d.]+ ms \(waited for its turn [\d.]+, for its answer [\d.]+, until that was sent [\d.]+; ",
            cluster.broker(0).output(),
        )

    try:
        eventually(is_told)
    finally:
        assert alter(connection, BROKER, "0", (SLOW, DELETE, None))[0] is ErrorCode.NONE


@pytest.mark.parametrize(("value", "said"), [("-2", "at least -1"), ("soon", "whole number"), ("1.5", "whole number")])
def test_times_that_are_none_are_refused(connection, value, said):
    code, message = alter(connection, BROKER, "0", (SLOW, SET, value))
    assert (code, said in message) == (ErrorCode.INVALID_REQUEST, True), message
