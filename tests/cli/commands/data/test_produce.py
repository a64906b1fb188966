"""``sparklog produce`` on a real cluster."""

import json
import os
import signal
import subprocess
from itertools import product

import pytest
from integration.proxy import Proxy

from sparklog.client import NewTopic, Producer
from sparklog.protocol.api_key import ApiKey
from sparklog.testing.eventually import eventually
from sparklog.testing.registry import schema_registry

pytestmark = pytest.mark.integration


def records(here, topic, *options):
    """Partition, key and value of what the topic has."""
    lines = here("consume", topic, "--json", *options).out.splitlines()
    return [(each["partition"], each["key"], each["value"]) for each in map(json.loads, lines)]


def test_each_line_of_standard_input_is_a_record(here, topic):
    result = here("produce", topic, stdin=b"one\n\nthree\nlast without a newline")
    assert (result.status, result.out) == (0, "")
    created, said = result.err.splitlines(keepends=True)
    assert created == f"created topic '{topic}' with 1 partition\n"
    assert said.startswith("produced 4 records, 0.0 MB in ")
    assert said.endswith(f" to {topic}\n")
    assert "created" not in here("produce", topic, stdin=b"").err
    assert records(here, topic) == [(0, None, text) for text in ("one", "", "three", "last without a newline")]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_file_arrives_whole_whatever_the_compression(here, topic, tmp_path, compression):
    text = "".join(f"line {number}\n" for number in range(20_000))
    (tmp_path / "lines").write_text(text)
    assert here("produce", topic, tmp_path / "lines", "--compression", compression).status == 0
    assert here("consume", topic).out == text


def test_keys_choose_the_partition_and_a_line_without_one_has_none(here, topic):
    here("topic", "create", topic, "--partitions", 4)
    text = b"".join(b"k%d:v%d\n" % (number % 10, number) for number in range(100)) + b"no key\n"
    result = here("produce", topic, "--key-separator", ":", stdin=text)
    assert result.status == 0
    assert result.err.endswith("\n1 line without the separator ':': written whole as the value, without a key\n")
    found = records(here, topic)
    assert sorted(value for _, key, value in found if key) == sorted(f"v{number}" for number in range(100))
    assert [value for _, key, value in found if key is None] == ["no key"]
    assert len({(partition, key) for partition, key, _ in found if key}) == 10
    assert len({partition for partition, key, _ in found if key}) > 1
    in_order = [int(value[1:]) for _, key, value in found if key == "k3"]
    assert in_order == sorted(in_order)


def test_a_partition_can_be_chosen(here, topic):
    here("topic", "create", topic, "--partitions", 3)
    assert here("produce", topic, "--partition", 2, stdin=b"a\nb\n").status == 0
    assert records(here, topic) == [(2, None, "a"), (2, None, "b")]
    result = here("produce", topic, "--partition", 3, stdin=b"a\n")
    assert result.status == 2
    assert result.err.endswith(f"--partition: topic '{topic}' has only partitions 0 to 2\n")


@pytest.mark.parametrize("chosen", [("--partition", 0), ("--key-separator", ":")], ids=["partition", "keys"])
def test_lines_are_written_once_and_in_order_while_answers_are_lost(run, bootstrap, monkeypatch, topic, chosen):
    """But for those that another partition may take."""
    lines = [b"k:%d" % number for number in range(3000)]
    with Proxy(int(bootstrap.rpartition(":")[2])) as proxy:
        monkeypatch.setenv("SPARKLOG_BOOTSTRAP", proxy.address)
        run("topic", "create", topic, "--config", "max.message.bytes=1000")
        proxy.lose_answers(ApiKey.PRODUCE, every=7)
        result = run("produce", topic, *chosen, stdin=b"".join(line + b"\n" for line in lines))
        assert result.status == 0, result.err
        assert proxy.lost > 3
        found = [value for _, _, value in records(run, topic)]
    assert [int(value.removeprefix("k:")) for value in found] == list(range(3000))


def test_a_separator_may_be_no_text(here, topic):
    result = here("produce", topic, "--key-separator", os.fsdecode(b"\xff"), stdin=b"a\xffb\nc\n")
    assert result.err.endswith("\n1 line without the separator '\\\\xff': written whole as the value, without a key\n")
    assert records(here, topic) == [(0, "a", "b"), (0, None, "c")]


def test_a_separator_that_no_line_has_is_told(here, topic):
    result = here("produce", topic, "-k", "\\t", stdin=b"a b\n" * 1000)
    assert result.err.endswith(
        r"1,000 lines without the separator '\t': written whole as the value, without a key" + "\n"
    )
    assert "without" not in here("produce", topic, "-k", "\\t", stdin=b"a\tb\n").err


def test_an_empty_value_becomes_null_where_asked(here, topic):
    here("produce", topic, "-k", "=", "--null-empty", stdin=b"a=1\na=\n")
    assert records(here, topic) == [(0, "a", "1"), (0, "a", None)]


def test_a_line_too_large_is_refused_with_the_setting_to_change(here, topic):
    here("topic", "create", topic)
    result = here("produce", topic, stdin=b"x" * 2_000_000)
    assert (result.status, result.out, result.err.count("\n")) == (1, "", 2)
    assert "MESSAGE_TOO_LARGE" in result.err
    assert "raise the topic's max.message.bytes" in result.err
    assert records(here, topic) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_leaves_word_of_what_is_written(here, spawn, topic, number):
    writer = spawn("produce", topic, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    writer.stdin.write(b"one\ntwo\n")
    writer.stdin.flush()
    eventually(lambda: here("consume", topic).out == "one\ntwo\n")
    writer.send_signal(number)
    assert b"2 lines surely written before that\n" in writer.stderr.read()
    assert writer.wait() == 130


def test_a_line_in_a_pipe_does_not_wait_for_the_next(here, spawn, topic):
    here("topic", "create", topic)
    reader = spawn("consume", topic, "--follow", stdout=subprocess.PIPE)
    writer = spawn("produce", topic, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    writer.stdin.write(b"first\n")
    writer.stdin.flush()
    assert reader.stdout.readline() == b"first\n"
    assert writer.poll() is None
    _, said = writer.communicate(b"second\n", timeout=60)
    assert reader.stdout.readline() == b"second\n"
    assert said.startswith(b"produced 2 records")


def test_a_line_too_large_for_any_request_is_refused_at_once_by_its_number(here, topic):
    """Brokers hang up on such a request, which looks like one that died."""
    here("topic", "create", topic, "--config", "max.message.bytes=500000000")
    result = here("produce", topic, stdin=b"one\ntwo\n" + b"x" * 110_000_000 + b"\nfour\n")
    assert (result.status, result.err.splitlines()[0]) == (1, "2 lines written before it")
    assert "line 3 makes a batch of 110," in result.err
    assert "raise the brokers' socket.request.max.bytes" in result.err
    assert [value for _, _, value in records(here, topic)] == ["one", "two"]


@pytest.mark.parametrize("ending", [b"", b"\nfour\n"])
def test_a_line_that_is_too_large_is_not_read_to_its_end(here, topic, ending):
    here("topic", "create", topic)
    result = here("produce", topic, stdin=b"one\ntwo\n" + b"x" * 30_000_000 + ending)
    assert (result.status, result.err.splitlines()[0]) == (1, "2 lines written before it")
    assert "line 3 " in result.err
    assert "MESSAGE_TOO_LARGE" in result.err
    assert "takes 1,048,588: raise the topic's max.message.bytes" in result.err


def test_a_large_line_that_compression_makes_small_is_written(here, topic):
    here("topic", "create", topic)
    assert here("produce", topic, "-z", "zstd", stdin=b"x" * 30_000_000).status == 0
    assert [len(value) for _, _, value in records(here, topic)] == [30_000_000]


def test_small_limits_of_a_topic_divide_batches(here, topic):
    here("topic", "create", topic, "--config", "max.message.bytes=200")
    assert here("produce", topic, stdin=b"a line\n" * 100).status == 0
    assert len(records(here, topic)) == 100


def test_a_line_without_a_key_for_a_compacted_topic_is_named(here, topic):
    here("topic", "create", topic, "--config", "cleanup.policy=compact", "--partitions", 3)
    result = here("produce", topic, "-k", ":", stdin=b"a:1\nb:2\nno key\nc:3\n")
    assert (result.status, result.err.splitlines()[0]) == (1, "2 lines written before it")
    assert "line 3 has no ':', so no key" in result.err
    assert {key for _, key, _ in records(here, topic)} == {"a", "b"}
    result = here("produce", topic, stdin=b"a:1\n")
    assert result.err.splitlines()[0] == "0 lines written before it"
    assert "line 1 has no key" in result.err
    assert "give --key-separator" in result.err


def test_one_line_is_one_record(here, topic):
    assert "produced 1 record, " in here("produce", topic, stdin=b"one\n").err


FULL = (
    '{"topic": "a", "partition": 1, "offset": 7, "timestamp": 1700000000000, "key": "k", "value": "v",'
    ' "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": null}, {"key": "a", "value_base64": "/w=="}]}'
)


def test_records_that_consume_printed_are_written_again_byte_for_byte(here, topic, bootstrap, admin):
    copy = f"{topic}-copy"
    admin.create_topics([NewTopic(topic, 3, 1), NewTopic(copy, 3, 1)])
    kinds = [None, b"", b"text", "é\u2028\n\0".encode(), b"\xff\x00"]
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number, (key, value) in enumerate(product(kinds, kinds)):
            headers = [("name", value), ("é", key), ("name", b"again")] if number % 3 else []
            producer.send(
                topic, value, key=key, partition=number % 3, headers=headers, timestamp=1_700_000_000_000 - number
            )
    printed = here("consume", topic, "--output", "json").out
    done = here("produce", copy, "--input", "json", stdin=printed.encode())
    assert (done.status, done.err[:19]) == (0, "produced 25 records")
    assert here("consume", copy, "--output", "json").out == printed.replace(f'"{topic}"', f'"{copy}"')


def test_a_json_line_says_where_it_goes_or_its_key_does(here, topic):
    here("topic", "create", topic, "--partitions", 3)
    lines = [FULL, '{"value": "one", "key": "k"}', '{"value": "two", "key": "k", "partition": 2}', '{"value": null}']
    assert here("produce", topic, "--input", "json", stdin="\n".join(lines).encode()).status == 0
    found = [json.loads(line) for line in here("consume", topic, "--json").out.splitlines()]
    by_value = {each["value"]: each for each in found}
    assert by_value["v"] == {**json.loads(FULL), "topic": topic, "offset": by_value["v"]["offset"]}
    assert by_value["two"]["partition"] == 2
    assert by_value["one"]["timestamp"] > by_value["v"]["timestamp"]
    keyed = f"{topic}-keyed"
    here("topic", "create", keyed, "--partitions", 3)
    here("produce", keyed, "--key-separator", ":", stdin=b"k:v\n")
    assert by_value["one"]["partition"] == records(here, keyed)[0][0]
    assert here("produce", topic, "--input", "json", "--partition", 0, stdin=FULL.encode()).status == 0
    assert records(here, topic, "--partition", 0)[-1] == (0, "k", "v")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("plain", "line 3 is no JSON object: Expecting value, character 1"),
        ('{"value": "v", "header": []}', "line 3 has 'header', which is none of"),
        ('{"value": "v", "partition": 5}', "line 3 names partition 5, and topic '{}' has only 0 to 0"),
    ],
)
def test_a_json_line_that_is_no_record_is_refused_by_its_number(here, topic, line, why):
    here("topic", "create", topic)
    lines = ['{"value": "one"}', '{"value": "two"}', line, '{"value": "four"}']
    result = here("produce", topic, "--input", "json", stdin="\n".join(lines).encode())
    assert (result.status, result.err.splitlines()[0]) == (1, "2 lines written before it")
    assert why.replace("{}", topic) in result.err
    assert [value for _, _, value in records(here, topic)] == ["one", "two"]


def test_a_json_line_without_a_key_is_refused_by_a_compacted_topic(here, topic):
    here("topic", "create", topic, "--config", "cleanup.policy=compact")
    lines = b'{"value": "one", "key": "a"}\n{"value": "two"}\n'
    result = here("produce", topic, "--input", "json", stdin=lines)
    assert (result.status, result.err.splitlines()[0]) == (1, "1 line written before it")
    assert "line 2 has no key, and topic" in result.err
    assert "--key-separator" not in result.err


def test_headers_a_key_and_a_time_are_of_all_lines(here, topic):
    given = ["-H", "source=a=b", "--header", "none", "-H", "empty=", "--key", "k", "--timestamp", "2013-07-04T12:00"]
    assert here("produce", topic, *given, stdin=b"one\ntwo\n").status == 0
    headers = [{"key": "source", "value": "a=b"}, {"key": "none", "value": None}, {"key": "empty", "value": ""}]
    found = [json.loads(line) for line in here("consume", topic, "--json").out.splitlines()]
    assert [(each["key"], each["value"], each["headers"]) for each in found] == [
        ("k", "one", headers),
        ("k", "two", headers),
    ]
    assert {each["timestamp"] for each in found} == {1_372_939_200_000}
    assert here("produce", topic, "--timestamp", "1700000000000", "-k", ":", "-H", "a=1", stdin=b"x:y\n").status == 0
    last = json.loads(here("consume", topic, "--json").out.splitlines()[-1])
    assert (last["key"], last["timestamp"], last["headers"]) == ("x", 1_700_000_000_000, [{"key": "a", "value": "1"}])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--key", "a", "--key-separator", ":"], "--key is the key of all lines: leave out --key-separator"),
        (["--input", "json", "--key", "a"], "--input json says all of a record: leave out --key"),
        (["--input", "json", "-k", ":"], "leave out --key-separator"),
        (["--input", "json", "-H", "a=1"], "leave out --header"),
        (["--input", "json", "--timestamp", "1"], "leave out --timestamp"),
        (["--input", "json", "--null-empty"], "leave out --null-empty"),
        (["--input", "xml"], "--input"),
        (["--header", "=x"], "'=x' is no header: NAME=VALUE, or NAME for one whose value is null"),
        (["--timestamp", "soon"], "'soon' is no time"),
        (["--timestamp", "-5"], "'-5' is no time"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_fit_together_is_refused(run, options, told):
    result = run("produce", "any", *options)
    assert (result.status, result.out) == (2, "")
    assert told in result.err.splitlines()[-1]


TRIP = {
    "type": "record",
    "name": "Trip",
    "fields": [{"name": "place", "type": "string"}, {"name": "km", "type": "long"}],
}


@pytest.fixture
def registry():
    """The URL of a registry, and what it knows."""
    pytest.importorskip("fastavro")
    with schema_registry() as served:
        yield served


def test_values_are_written_by_a_schema_of_a_registry_and_what_is_printed_is_written_again(
    here, topic, registry, tmp_path
):
    (tmp_path / "trip.avsc").write_text(json.dumps(TRIP))
    first = b'a:{"place": "Zug", "km": 7}\nb:\n'
    by_schema = ("--registry", registry[0], "--schema", tmp_path / "trip.avsc")
    assert here("produce", topic, "-k", ":", "--null-empty", *by_schema, stdin=first).status == 0
    assert (
        here("produce", topic, "--key", "c", "--registry", registry[0], stdin=b'{"km": 8, "place": "Chur"}').status == 0
    )
    printed = here("consume", topic, "--keys", "--registry", registry[0]).out
    assert printed == 'a\t{"place": "Zug", "km": 7}\nb\t\\N\nc\t{"place": "Chur", "km": 8}\n'
    with schema_registry() as (other, _):
        as_json = here("consume", topic, "--output", "json", "--registry", registry[0]).out
        into_other = ("--registry", other, "--schema", tmp_path / "trip.avsc")
        copied = here("produce", f"{topic}-copy", "--input", "json", *into_other, stdin=as_json.encode())
        assert copied.status == 0, copied.err
        assert here("consume", f"{topic}-copy", "--keys", "--registry", other).out == printed


def test_a_line_that_is_no_value_of_the_schema_ends_it_with_its_number(here, topic, registry, tmp_path):
    (tmp_path / "trip.avsc").write_text(json.dumps(TRIP))
    lines = b'{"place": "Zug", "km": 7}\n{"place": "Chur", "km": "8"}\n{"place": "Bern", "km": 9}\n'
    result = here("produce", topic, "--registry", registry[0], "--schema", tmp_path / "trip.avsc", stdin=lines)
    assert result.status == 1
    assert "line 2 has a value that cannot be written: km: '8' is not of Avro's long" in result.err
    assert "1 line written before it" in result.err
    assert here("consume", topic, "--registry", registry[0]).out == '{"place": "Zug", "km": 7}\n'
