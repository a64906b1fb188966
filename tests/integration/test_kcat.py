"""kcat: librdkafka from the command line, what most people try first."""

import subprocess

import pytest
from fix_programs import lack_of
from integration import wire

from sparklog.structs import TopicPartition

LACK = lack_of("kcat")
pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(LACK), reason=LACK)]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LINES = [f"key-{number}\tvalue {number} of many that look alike" for number in range(500)]


def kcat(*arguments, stdin="", check=True):
    """What kcat prints; its exit status must be 0."""
    done = subprocess.run(["kcat", *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def consume(bootstrap, topic, form, *more):
    """Every record of the topic, printed as ``form`` says."""
    return kcat("-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q", "-f", form, *more)


@pytest.mark.parametrize("codec", CODECS)
def test_what_kcat_writes_it_reads_back(bootstrap, make_topic, codec):
    topic = make_topic()
    lines = "\n".join(LINES) + "\n"
    kcat("-P", "-b", bootstrap, "-t", topic, "-K", "\t", "-z", codec, stdin=lines)
    assert consume(bootstrap, topic, "%k\t%s\n") == lines
    offsets = consume(bootstrap, topic, "%o ").split()
    assert offsets == [str(offset) for offset in range(len(LINES))]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acknowledgement_mode(bootstrap, make_topic, acks):
    topic = make_topic()
    kcat("-P", "-b", bootstrap, "-t", topic, "-X", f"acks={acks}", stdin="one\ntwo\n")
    assert consume(bootstrap, topic, "%s\n") == "one\ntwo\n"


def test_headers_and_null_values(bootstrap, make_topic):
    topic = make_topic()
    kcat("-P", "-b", bootstrap, "-t", topic, "-K", ":", "-Z", "-H", "a=1", "-H", "b=two", stdin="tombstone:\n")
    assert consume(bootstrap, topic, "%h %K %k %S\n") == "a=1,b=two 9 tombstone -1\n"


def test_idempotent_producer(bootstrap, make_topic):
    topic = make_topic()
    kcat("-P", "-b", bootstrap, "-t", topic, "-X", "enable.idempotence=true", stdin="a\nb\nc\n")
    assert consume(bootstrap, topic, "%s") == "abc"


def test_a_group_resumes_where_it_stopped(bootstrap, make_topic):
    topic = make_topic(partitions=2)
    kcat("-P", "-b", bootstrap, "-t", topic, stdin="\n".join(f"first {n}" for n in range(20)) + "\n")
    first = _group(bootstrap, topic, 20)
    kcat("-P", "-b", bootstrap, "-t", topic, stdin="\n".join(f"second {n}" for n in range(20)) + "\n")
    second = _group(bootstrap, topic, 20)
    assert sorted(first) == sorted(f"first {n}" for n in range(20))
    assert sorted(second) == sorted(f"second {n}" for n in range(20))


def _group(bootstrap, topic, count):
    """The next ``count`` values that the group ``GROUP`` gets, one member long."""
    return kcat(
        *("-b", bootstrap, "-q", "-f", "%s\n", "-c", str(count)),
        *("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-G", f"group-of-{topic}", topic),
    ).splitlines()


def test_query_by_time(bootstrap, make_topic, connection):
    topic = make_topic()
    assert wire.produce(connection, TopicPartition(topic, 0), wire.batch_of(b"a", b"b", b"c"))[1] == 0
    answer = kcat("-Q", "-b", bootstrap, "-t", f"{topic}:0:{wire.FIRST_TIMESTAMP + 1}")
    assert answer.split() == [topic, "[0]", "offset", "1"]


def test_metadata_listing(bootstrap, make_topic):
    topic = make_topic(partitions=3)
    listed = kcat("-L", "-b", bootstrap, "-t", topic)
    assert f'topic "{topic}" with 3 partitions' in listed
    assert listed.count("leader 0, replicas: 0, isrs: 0") == 3
    assert "(controller)" in listed


def test_an_unknown_topic_is_made_on_writing(bootstrap, topic):
    kcat("-P", "-b", bootstrap, "-t", topic, stdin="hello\n")
    assert consume(bootstrap, topic, "%s\n") == "hello\n"
