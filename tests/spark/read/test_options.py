import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.options.directories import DirectMode
from sparklog.spark.options.limits import Edge, GlobalTimestamp, SpecificOffsets, SpecificTimestamps
from sparklog.spark.options.selection import Assign, Subscribe, SubscribePattern
from sparklog.spark.read.direct_options import DirectOptions
from sparklog.spark.read.options import ReadOptions, wants_headers
from sparklog.spark.write.options import WriteOptions
from sparklog.structs import TopicPartition

_SERVERS = {"kafka.bootstrap.servers": "a:1"}
_TP = TopicPartition("t", 0)


def _batch(**options):
    return ReadOptions.for_batch({**_SERVERS, "subscribe": "t", **_dotted(options)})


def _stream(**options):
    return ReadOptions.for_stream({**_SERVERS, "subscribe": "t", **_dotted(options)})


def _dotted(options):
    return {name.replace("__", "."): str(value) for name, value in options.items()}


def _select(**options):
    return ReadOptions.for_batch({**_SERVERS, **options}).selection


def test_defaults_of_a_batch():
    options = _batch()
    assert (options.starting, options.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert not options.latest_if_no_match
    assert options.min_partitions is options.max_records_per_partition is None


def test_defaults_of_a_stream():
    options = _stream()
    assert options.starting is Edge.LATEST
    assert options.max_offsets_per_trigger is options.min_offsets_per_trigger is None
    assert options.max_trigger_delay_ms == 15 * 60 * 1000


def test_keys_are_looked_up_without_regard_to_case():
    lower = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "failondataloss": "false", "minpartitions": "3"}
    options = ReadOptions.for_batch(lower)
    assert (options.fail_on_data_loss, options.min_partitions) == (False, 3)
    assert ReadOptions.for_batch({"Kafka.Bootstrap.Servers": "a:1", "SUBSCRIBE": "t"}).selection == Subscribe(("t",))


def test_selections():
    assert _select(subscribe=" a, b ,,a") == Subscribe(("a", "b"))
    assert _select(assign='{"b": [1], "a": [2, 0]}') == Assign(
        (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
    )
    pattern = _select(subscribePattern="a.*")
    assert isinstance(pattern, SubscribePattern)
    assert pattern.pattern.fullmatch("abc")


def test_javas_named_groups_are_understood():
    pattern = _select(subscribePattern=r"(?<kind>a|b)-(?<!x)\d+").pattern
    assert pattern.fullmatch("a-12").group("kind") == "a"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "SPARKLOG_MISSING_OPTION"),
        ({"subscribe": "t", "assign": '{"t": [0]}'}, "SPARKLOG_CONFLICTING_OPTIONS"),
        ({"subscribe": "t", "subscribePattern": "t"}, "SPARKLOG_CONFLICTING_OPTIONS"),
        ({"subscribe": " , "}, "SPARKLOG_INVALID_OPTION"),
        ({"subscribePattern": " "}, "SPARKLOG_INVALID_OPTION"),
        ({"subscribePattern": "a("}, "SPARKLOG_INVALID_OPTION"),
        ({"subscribePattern": "[a-z&&[^b]]+"}, "SPARKLOG_INVALID_OPTION"),
        ({"subscribePattern": "^t-[a-c[x-z]]$"}, "SPARKLOG_INVALID_OPTION"),
        ({"assign": "t"}, "SPARKLOG_INVALID_OPTION"),
        ({"assign": "{}"}, "SPARKLOG_INVALID_OPTION"),
        ({"assign": '{"t": 0}'}, "SPARKLOG_INVALID_OPTION"),
        ({"assign": '{"t": ["0"]}'}, "SPARKLOG_INVALID_OPTION"),
        ({"assign": "[1]"}, "SPARKLOG_INVALID_OPTION"),
    ],
)
def test_impossible_selections(options, code):
    with pytest.raises(DataSourceError) as caught:
        _select(**options)
    assert caught.value.error_code == code
    assert any(name in str(caught.value) for name in options or ["subscribe"])


@pytest.mark.parametrize("servers", [{}, {"kafka.bootstrap.servers": " "}])
def test_servers_are_required(servers):
    with pytest.raises(DataSourceError, match=r"SPARKLOG_MISSING_OPTION.*kafka\.bootstrap\.servers"):
        ReadOptions.for_batch({"subscribe": "t", **servers})
    with pytest.raises(DataSourceError, match=r"SPARKLOG_MISSING_OPTION.*kafka\.bootstrap\.servers"):
        WriteOptions.for_batch({"topic": "t", **servers})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, Edge.EARLIEST),
        ({"startingOffsets": " LATEST "}, Edge.LATEST),
        ({"startingOffsets": '{"t": {"0": 23}}'}, SpecificOffsets({_TP: 23})),
        ({"startingOffsets": '{"t": {"0": -2}}'}, SpecificOffsets({_TP: -2})),
        ({"startingOffsets": '{"t": {"0": -1}}'}, SpecificOffsets({_TP: -1})),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 17}}'}, SpecificTimestamps({_TP: 17})),
        ({"startingTimestamp": " 17 "}, GlobalTimestamp(17)),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t": {"0": 1}}'},
            SpecificTimestamps({_TP: 1}),
        ),
        (
            {"startingOffsets": "x", "startingOffsetsByTimestamp": "y", "startingTimestamp": "5"},
            GlobalTimestamp(5),
        ),
    ],
)
def test_where_to_start_and_the_precedence(options, expected):
    assert _stream(**options).starting == expected


def test_where_to_end_and_the_precedence():
    assert _batch(endingOffsets='{"t": {"0": -1}}').ending == SpecificOffsets({_TP: -1})
    assert _batch(endingOffsets="x", endingOffsetsByTimestamp='{"t": {"0": 9}}').ending == SpecificTimestamps({_TP: 9})
    assert _batch(endingOffsets="x", endingOffsetsByTimestamp="y", endingTimestamp="9").ending == GlobalTimestamp(9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"t": {"0": -1}}'),
        ("startingOffsets", '{"t": {"0": -3}}'),
        ("startingOffsets", "soon"),
        ("startingOffsets", '{"t": 5}'),
        ("startingOffsets", '{"t": {"0": "5"}}'),
        ("startingOffsets", '{"t": {"0": 1.5}}'),
        ("startingOffsets", '{"t": {"0": true}}'),
        ("startingOffsets", '{"t": [["0", 5]]}'),
        ("startingOffsets", '{"t": {"x": 5}}'),
        ("startingOffsetsByTimestamp", "earliest"),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", str(2**63)),
        ("startingOffsetsByTimestamp", f'{{"t": {{"0": {2**63}}}}}'),
        ("startingOffsets", f'{{"t": {{"0": {2**63}}}}}'),
        ("startingOffsets", "[" * 100_000),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"t": {"0": -2}}'),
        ("endingTimestamp", "1.5"),
        ("endingTimestamp", "-3"),
        ("startingTimestamp", "-1700000000000"),
        ("startingOffsetsByTimestamp", '{"t": {"0": -3}}'),
        ("endingOffsetsByTimestamp", '{"t": {"0": -3}}'),
    ],
)
def test_impossible_limits_of_a_batch(name, value):
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_INVALID_OPTION.*{name}"):
        _batch(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "twice"),
    [
        ("startingOffsets", '{"t": {"0": 1, "0": 3}}', "partition t-0"),
        ("endingOffsets", '{"t": {"0": 1, "1": 2, "00": 1}}', "partition t-0"),
        ("startingOffsetsByTimestamp", '{"t": {"0": 1, "0": 1}}', "partition t-0"),
        ("startingOffsets", '{"t": {"0": 1}, "t": {"1": 3}}', "topic t"),
        ("endingOffsetsByTimestamp", '{"t": {"0": 1}, "t": {"1": 3}}', "topic t"),
        ("assign", '{"t": [0], "t": [1]}', "topic t"),
    ],
)
def test_what_is_named_twice_is_refused(name, value, twice):
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_INVALID_OPTION.*{name}.*names {twice} twice"):
        ReadOptions.for_batch({**_SERVERS, **({} if name == "assign" else {"subscribe": "t"}), name: value})


def test_start_and_end_must_name_the_same_partitions():
    with pytest.raises(DataSourceError, match="t-1"):
        _batch(startingOffsets='{"t": {"0": 1}}', endingOffsets='{"t": {"0": 5, "1": 5}}')
    with pytest.raises(DataSourceError, match="t-1"):
        _batch(startingOffsetsByTimestamp='{"t": {"0": 1}}', endingOffsetsByTimestamp='{"t": {"0": 5, "1": 5}}')


def test_start_must_not_lie_after_the_end():
    with pytest.raises(DataSourceError, match="t-0"):
        _batch(startingOffsets='{"t": {"0": 6}}', endingOffsets='{"t": {"0": 5}}')
    assert _batch(startingOffsets='{"t": {"0": 6}}', endingOffsets='{"t": {"0": -1}}')


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name):
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_UNSUPPORTED_OPTION.*{name}"):
        _stream(**{name: "latest"})


@pytest.mark.parametrize(
    ("name", "field", "good", "value", "bad"),
    [
        ("minPartitions", "min_partitions", "4", 4, ["0", "-1", "many", "1.5", ""]),
        ("maxRecordsPerPartition", "max_records_per_partition", "9", 9, ["0", "x"]),
        ("maxOffsetsPerTrigger", "max_offsets_per_trigger", "9", 9, ["0", "x"]),
        ("minOffsetsPerTrigger", "min_offsets_per_trigger", "9", 9, ["0", "x"]),
        ("maxBytesPerTrigger", "max_bytes_per_trigger", "64M", 64 << 20, ["0", "-1", "x", "1.5g", "m"]),
        ("maxBytesPerTrigger", "max_bytes_per_trigger", " 5 ", 5, []),
        ("maxBytesPerPartition", "max_bytes_per_partition", "1gb", 1 << 30, ["0k"]),
        ("commitToGroup", "commit_to_group", " mine ", "mine", ["", " "]),
        ("maxTriggerDelay", "max_trigger_delay_ms", "2m", 120_000, ["soon", "-1s", "5 fortnights"]),
        ("maxTriggerDelay", "max_trigger_delay_ms", "500ms", 500, []),
        ("maxTriggerDelay", "max_trigger_delay_ms", "7", 7, []),
        ("failOnDataLoss", "fail_on_data_loss", "False", False, ["no", ""]),
        ("includeHeaders", "include_headers", "TRUE", True, ["yes"]),
        ("startingOffsetsByTimestampStrategy", "latest_if_no_match", "Latest", True, ["earliest"]),
        ("startingOffsetsByTimestampStrategy", "latest_if_no_match", "error", False, []),
        ("fetchOffset.numRetries", "offset_retries", "0", 0, ["-1", "x"]),
        ("fetchOffset.retryIntervalMs", "offset_retry_interval_ms", "10", 10, ["-1"]),
    ],
)
def test_single_values(name, field, good, value, bad):
    assert getattr(_stream(**{name: good}), field) == value
    for text in bad:
        with pytest.raises(DataSourceError, match=rf"SPARKLOG_INVALID_OPTION.*{name}"):
            _stream(**{name: text})


def test_the_least_may_not_exceed_the_most():
    with pytest.raises(DataSourceError, match="minOffsetsPerTrigger"):
        _stream(minOffsetsPerTrigger=10, maxOffsetsPerTrigger=9)


def test_the_poll_timeout_is_how_long_a_read_is_retried():
    assert _batch(kafkaConsumer__pollTimeoutMs=1234).client.api_timeout_ms == 1234
    with pytest.raises(DataSourceError, match=r"kafkaConsumer\.pollTimeoutMs"):
        _batch(kafkaConsumer__pollTimeoutMs="x")


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitToGroup"]
)
def test_a_batch_warns_of_what_means_nothing_to_it(name, caplog):
    _batch(**{name: "5"})
    assert name in caplog.text


def test_a_misspelled_option_is_pointed_out(caplog):
    _batch(startingOffset="earliest")
    assert "did you mean 'startingOffsets'" in caplog.text


@pytest.mark.parametrize(
    "name",
    ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"],
)
def test_client_settings_that_are_refused_for_reading(name):
    with pytest.raises(DataSourceError, match=f"SPARKLOG_UNSUPPORTED_OPTION.*kafka.{name}"):
        ReadOptions.for_stream({**_SERVERS, "subscribe": "t", f"kafka.{name}": "x"})


def test_client_settings_reach_the_client():
    options = {**_SERVERS, "subscribe": "t", "kafka.isolation.level": "read_committed", "kafka.client.id": "me"}
    client = ReadOptions.for_batch(options).client
    assert (client.isolation, client.client_id) == ("read_committed", "me")
    with pytest.raises(DataSourceError, match=r"SPARKLOG_INVALID_OPTION.*isolation\.level"):
        ReadOptions.for_batch({**options, "kafka.isolation.level": "x"})
    with pytest.raises(DataSourceError, match=r"SPARKLOG_INVALID_OPTION.*bootstrap\.servers"):
        ReadOptions.for_batch({"kafka.bootstrap.servers": "nowhere", "subscribe": "t"})


def test_headers_in_the_schema():
    assert not wants_headers({})
    assert wants_headers({"includeheaders": "true"})


def test_segment_files_are_read_where_they_are_visible_unless_said_otherwise():
    assert _batch().direct == _stream().direct == DirectOptions(DirectMode.AUTO, ())
    assert _batch(directRead="NEVER").direct.mode is DirectMode.NEVER
    assert _stream(directRead="always").direct.mode is DirectMode.ALWAYS
    with pytest.raises(DataSourceError, match=r"'directRead' cannot be 'yes': it must be auto or never or always"):
        _batch(directRead="yes")


def test_the_longest_mapping_of_a_directory_counts():
    direct = _batch(directReadMapping="/a=/x, /a/b = /y ,").direct
    assert direct.mapped("/a/b/t-0/0.log") == ("/y/t-0/0.log", "/y")
    assert direct.mapped("/a/bc/0.log") == ("/x/bc/0.log", "/x")
    assert direct.mapped("/b/0.log") is direct.mapped("/ab/0.log") is None


@pytest.mark.parametrize("text", ["/a", "/a=b", "a=/b", "=/b", "/a="])
def test_a_mapping_of_another_form_is_refused(text):
    with pytest.raises(DataSourceError, match=r"SPARKLOG_INVALID_OPTION.*directReadMapping.*both absolute"):
        _batch(directReadMapping=text)


def test_log_directories_need_no_servers():
    options = ReadOptions.for_batch({"path": "/a, file:///b,file:/c", "subscribe": "t", "kafka.acks": "0"})
    assert options.directories == ("/a", "/b", "/c")
    assert options.client.isolation == "read_uncommitted"
    committed = ReadOptions.for_batch({"path": "/a", "subscribe": "t", "kafka.isolation.level": "read_committed"})
    assert committed.client.isolation == "read_committed"
    with pytest.raises(DataSourceError, match=r"SPARKLOG_INVALID_OPTION.*isolation\.level"):
        ReadOptions.for_batch({"path": "/a", "subscribe": "t", "kafka.isolation.level": "none"})
    assert _batch().directories == ()


@pytest.mark.parametrize("options", [ReadOptions.for_batch, ReadOptions.for_stream, WriteOptions.for_batch])
@pytest.mark.parametrize(
    "given",
    [
        {"kafka.ssl.truststore.location": "/x"},
        {"kafka.sasl.jaas.config": "x"},
        {"kafka.Security.Providers": "x"},
    ],
    ids=lambda each: min(each),
)
def test_security_that_is_not_asked_for_whole_is_refused_by_name(options, given):
    name = sorted(given)[-1].lower()
    selection = {"topic": "t"} if options == WriteOptions.for_batch else {"subscribe": "t"}
    expected = rf"\[SPARKLOG_INVALID_OPTION\] option {name}\b.*security.protocol is not set"
    with pytest.raises(DataSourceError, match=expected):
        options({**_SERVERS, **selection, **given})
