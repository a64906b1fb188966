"""``sparklog produce`` on a real cluster."""

import json
import os
import signal
import subprocess

import pytest
from integration.proxy import Proxy

from sparklog.protocol.api_key import ApiKey
from sparklog.testing.eventually import eventually

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
