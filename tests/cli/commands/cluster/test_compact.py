"""``sparklog compact`` on a real cluster."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest
from cli.conftest import Result

from sparklog.cli import jobs
from sparklog.cli.commands.cluster import compact
from sparklog.client import Consumer, Producer
from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.cluster.session import Session
from sparklog.errors import AuthenticationFailed
from sparklog.protocol.api_key import ApiKey
from sparklog.structs import BrokerId, TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

KEYS, TIMES = 10, 20
LOGGING = Path(__file__).parents[4] / "conf" / "logging.toml"


def create(bootstrap, topic, partitions, replication=1):
    """Nothing of it is due by itself: what is cleaned was asked for."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions, replication, settings)])


@pytest.fixture
def users(bootstrap, topic):
    """A compacted topic of two partitions; in 0 each of ten keys was written twenty times, 1 is empty."""
    create(bootstrap, topic, 2)
    write(bootstrap, topic)
    return topic


def write(bootstrap, topic):
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(KEYS * TIMES):
            producer.send(topic, b"v%d" % number, key=b"k%d" % (number % KEYS), partition=0)


def rows(text):
    lines = [line.split("\t") for line in text.splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def status(here, *topics):
    done = here("compact", "status", *topics, "--output", "json")
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_a_topic_is_cleaned_when_it_is_asked_for(here, users):
    before = status(here, users)["replicas"]
    assert [(each["partition"], each["broker"]) for each in before] == [(0, 0), (1, 0)]
    assert [each["last_run"] for each in before] == [None, None]

    done = here("compact", "run", users)
    assert (done.status, done.err) == (0, "")
    full, empty = rows(done.out)
    assert (full["topic"], full["partition"], full["broker"], full["result"]) == (users, "0", "0", "cleaned")
    assert int(full["records before"]) == KEYS * TIMES
    assert KEYS <= int(full["records after"]) < KEYS * TIMES
    assert int(full["bytes after"]) < int(full["bytes before"])
    assert float(full["reduction %"]) > 0
    assert float(full["seconds"]) >= 0
    assert (empty["partition"], empty["bytes before"], empty["records after"]) == ("1", "-", "-")
    assert empty["result"].startswith("nothing is to be cleaned")

    after = status(here, users)["replicas"][0]
    assert (after["clean_up_to"], after["dirty_percent"], after["cleanable_bytes"]) == (KEYS * TIMES, 0, 0)
    assert after["last_run"]["messages_after"] == int(full["records after"])
    table = here("compact", "status", users)
    replica = rows(table.out[table.out.index("topic") :])[0]
    assert (replica["clean up to"], replica["cleanable up to"]) == (str(KEYS * TIMES), str(KEYS * TIMES))
    assert [line.split("\t")[0] for line in table.out.splitlines()] == ["broker", "0", "topic", users, users]
    read = here("consume", users, "--keys")
    assert sorted({line.split("\t")[0] for line in read.out.splitlines()}) == sorted(f"k{n}" for n in range(KEYS))


def test_a_second_run_has_nothing_to_do_until_something_is_written(here, users, bootstrap):
    assert here("compact", "run", users, "--partition", "0").status == 0
    (again,) = rows(here("compact", "run", users, "--partition", "0").out)
    assert again["result"].startswith("nothing is to be cleaned")
    write(bootstrap, users)
    (third,) = json.loads(here("compact", "run", users, "--partition", "0", "--output", "json").out)
    assert third["result"] == "cleaned"
    assert third["records_before"] > KEYS * TIMES
    assert third["reduction_percent"] > 0


def test_all_topics_are_cleaned(here, users):
    done = here("compact", "run", "--all", "--output", "json")
    assert done.status == 0, done.err
    results = {(each["topic"], each["partition"]): each["result"] for each in json.loads(done.out)}
    assert results[users, 0] == "cleaned"
    assert status(here)["brokers"][0]["threads"] == 1


def test_the_brokers_own_topics_are_shown_when_they_are_asked_for(here, users, bootstrap):
    with Consumer(bootstrap_servers=bootstrap, group_id="reader") as consumer:
        consumer.commit({TopicPartition(users, 0): 1})
    own = "__consumer_offsets\t"
    assert own not in here("compact", "status").out
    assert own in here("compact", "status", "--internal").out
    assert own in here("compact", "status", "__consumer_offsets").out
    assert "__consumer_offsets" in {each["topic"] for each in status(here)["replicas"]}


def test_a_topic_that_is_not_compacted_is_not_cleaned(here, topic):
    here("topic", "create", topic)
    done = here("compact", "run", topic)
    assert done.status == 1
    assert rows(done.out)[0]["result"] == f"not cleaned: {topic}-0: its cleanup.policy is delete"
    assert done.err == f"sparklog: 1 replica not cleaned: {topic}-0: its cleanup.policy is delete\n"
    told = here("compact", "status", topic)
    assert told.status == 1
    assert "--config cleanup.policy=compact" in told.err
    here("topic", "alter", topic, "--config", "cleanup.policy=compact")
    eventually(lambda: here("compact", "status", topic).status == 0)


@pytest.mark.parametrize("command", [["run"], ["status"]])
def test_a_topic_that_there_is_not_is_named(here, command):
    done = here("compact", *command, "no-such-topic")
    assert (done.status, done.out) == (1, "")
    assert "no-such-topic" in done.err


def test_a_partition_that_there_is_not_is_named(here, users):
    done = here("compact", "run", users, "--partition", "7")
    assert (done.status, done.out) == (1, "")
    assert f"topic '{users}' has no partition 7" in done.err


def test_the_admin_client_takes_topics_and_partitions(bootstrap, users):
    with Admin(bootstrap_servers=bootstrap) as admin:
        outcomes = admin.compact([users, TopicPartition(users, 0)])
        assert [(each.tp, each.broker) for each in outcomes] == [(TopicPartition(users, n), 0) for n in (0, 1)]
        full, empty = outcomes.values()
        assert (full.error, full.note, full.run.messages_before) == (None, None, KEYS * TIMES)
        assert (empty.error, empty.run) == (None, None)
        found = admin.describe_compaction([users])
        state = next(iter(found.replicas.values()))
        assert (state.last_run, state.error, state.uncleanable, state.dirty_ratio) == (full.run, None, None, 0)
        assert found.brokers[BrokerId(0)].is_enabled


def test_every_replica_is_cleaned_by_its_broker(run, tmp_path, topic, monkeypatch):
    with ClusterHarness(tmp_path, brokers=2) as pair:
        monkeypatch.setenv("SPARKLOG_BOOTSTRAP", pair.bootstrap_servers)
        create(pair.bootstrap_servers, topic, 1, replication=2)
        write(pair.bootstrap_servers, topic)
        eventually(lambda: are_cleaned(run, topic))  # a follower learns a little later what is replicated
        assert [each["broker"] for each in status(run, topic)["replicas"]] == [0, 1]
        with monkeypatch.context() as patch:
            silence(patch, 1)
            with_one = run("compact", "run", topic)
            told = json.loads(run("compact", "run", topic, "--output", "json").out)
        why = f"{topic}-0: broker 1 does not tell what became of it: its password is another one"
        assert (with_one.status, with_one.err) == (1, f"sparklog: 1 replica not cleaned: {why}\n")
        for found in (rows(with_one.out), told):
            assert [int(each["broker"]) for each in found] == [0, 1]
            assert not found[0]["result"].startswith("not cleaned")
            assert found[1]["result"] == f"not cleaned: {why}"
        pair.stop_broker(1)
        with_one = run("compact", "run", topic)
        assert with_one.status == 1
        assert "broker 1 is not there now" in with_one.err


def silence(monkeypatch, broker):
    """That broker cannot be asked to clean."""
    ask = Session.request

    async def refused(self, asked, api, *rest, **how):
        if (asked, api) == (broker, ApiKey.COMPACT_PARTITIONS):
            raise AuthenticationFailed("its password is another one")
        return await ask(self, asked, api, *rest, **how)

    monkeypatch.setattr(Session, "request", refused)


def are_cleaned(run, topic):
    """Whether both replicas are, when it was asked for."""
    done = run("compact", "run", topic)
    assert (done.status, done.err) == (0, "")
    return all(each["clean_up_to"] == KEYS * TIMES for each in status(run, topic)["replicas"])


def test_a_damaged_log_is_marked_until_it_is_sound_again(run, tmp_path, chroot, monkeypatch):
    monkeypatch.setenv("SPARKLOG_LOGGING", str(LOGGING))
    monkeypatch.chdir(tmp_path)
    with BrokerHarness(tmp_path, chroot) as broker:
        monkeypatch.setenv("SPARKLOG_BOOTSTRAP", broker.address)
        create(broker.address, "users", 1)
        write(broker.address, "users")
        segment = tmp_path / "broker-0" / "users-0" / f"{0:020}.log"
        flip(segment, at=100)
        damaged = run("compact", "run", "users")
        assert damaged.status == 1
        assert "not cleaned: users-0: " in damaged.err
        table = rows(run("compact", "status", "users").out.partition("topic\t")[2].join(["topic\t", ""]))
        assert table[0]["state"].startswith("cannot be cleaned: ")
        (told,) = status(run, "users")["replicas"]
        assert (told["uncleanable_bytes"], told["last_run"]) == (segment.stat().st_size, None)

        flip(segment, at=100)
        assert run("compact", "run", "users").status == 0
        (sound,) = status(run, "users")["replicas"]
        assert (sound["uncleanable"], sound["clean_up_to"]) == (None, KEYS * TIMES)
        written = (tmp_path / "log-cleaner.log").read_text()
    assert "Cleaning log users-0 (" in written
    assert "Log cleaner thread 0 cleaned log users-0 (dirty section = [0, " in written
    assert "\\n" not in written
    assert "cleaned log" not in broker.output()


def flip(path, at):
    """Turn one byte round, or back."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


def test_a_broker_that_cleans_nothing_says_so(run, tmp_path, chroot, monkeypatch):
    with BrokerHarness(tmp_path, chroot, settings={"log.cleaner.enable": "false"}) as broker:
        monkeypatch.setenv("SPARKLOG_BOOTSTRAP", broker.address)
        create(broker.address, "users", 1)
        done = run("compact", "run", "users")
        assert done.status == 1
        assert "log.cleaner.enable is false" in done.err
        (of_broker,) = status(run)["brokers"]
        assert (of_broker["is_enabled"], of_broker["threads"]) == (False, 0)
        assert rows(run("compact", "status").out.partition("\ntopic")[0])[0]["cleans"] == "no"


JOB = """
import sys
print(*sys.argv)
sys.exit(3)
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A checkout whose job says how it was started, and ends with 3; and a log of any size is worth it."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "compact.py").write_text(JOB)
    monkeypatch.setattr(jobs, "checkout", lambda: tmp_path)
    monkeypatch.setattr(compact, "_WORTH_SPARK", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


@pytest.mark.usefixtures("job")
def test_the_job_of_spark_is_started_where_it_is_worth_it(here, users, bootstrap, tmp_path):
    started = f"sparklog compact --bootstrap {bootstrap} --topic={users}\n"
    assert here("compact", "run", users) == Result(3, started, "")
    assert here("compact", "run", users, users, "--by", "spark") == Result(3, started, "")
    for_programs = started.replace(" --topic", " --output json --topic")
    assert here("compact", "run", users, "--by", "spark", "--output", "json") == Result(3, for_programs, "")
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\n")
    done = here("compact", "run", users, "--command-config", file)
    assert done.out == started.replace(" --topic", f" --command-config {file} --topic")
    dashed = f"-{users}"  # to be told from an option
    create(bootstrap, dashed, 1)
    everything = here("compact", "run", "--all")
    assert everything.status == 3
    assert {f"--topic={users}", f"--topic={dashed}"} <= {*everything.out.split()}
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_topics([dashed])


@pytest.mark.usefixtures("job")
def test_the_brokers_clean_what_the_job_is_not_for(here, users, monkeypatch):
    for given in (["--by", "brokers"], ["--partition", "0"], ["--output", "json"]):
        assert here("compact", "run", users, *given).status == 0
    with monkeypatch.context() as one_core:
        one_core.setattr(os, "cpu_count", lambda: 1)
        assert here("compact", "run", users).status == 0
    with monkeypatch.context() as small:
        small.setattr(compact, "_WORTH_SPARK", 1 << 30)
        assert here("compact", "run", users).status == 0
    refused = here("compact", "run", users, "--by", "spark", "--partition", "0")
    assert refused.status == 2
    assert "--by spark does not take --partition" in refused.err


@pytest.mark.usefixtures("job")
def test_without_spark_the_brokers_clean(here, users, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name))
    assert here("compact", "run", users).status == 0
    refused = here("compact", "run", users, "--by", "spark")
    assert refused.status == 1
    assert "this command needs pyspark" in refused.err


@pytest.fixture
def by_spark(spawn, quick_spark, tmp_path):
    """``by_spark(broker, TOPIC...)``: the real job, started by the command in a process of its own; its Result."""

    def ran(broker, *arguments):
        own = {"SPARKLOG_BOOTSTRAP": broker.address, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(tmp_path)}
        command = ("compact", "run", *arguments, "--by", "spark")
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = spawn(*command, environ={**quick_spark, **own}, **pipes)
        out, err = process.communicate(timeout=600)
        return Result(process.returncode, out, err)

    return ran


@pytest.mark.slow  # two starts of Spark
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_the_job_of_spark_cleans_and_comes_back_with_what_became_of_each_log(by_spark, tmp_path, chroot):
    with BrokerHarness(tmp_path, chroot) as broker:
        for topic in ("users", "damaged"):
            create(broker.address, topic, 1)
            write(broker.address, topic)
        cleaned = by_spark(broker, "users")
        assert cleaned.status == 0, cleaned.err
        (line,) = cleaned.out.splitlines()
        assert f" users-0 at broker 0: cleaned up to {KEYS * TIMES}, " in line
        assert f"{KEYS * TIMES} -> {KEYS} records" in line
        with Admin(bootstrap_servers=broker.address) as admin:
            (state,) = admin.describe_compaction(["users"]).replicas.values()
        assert (state.first_dirty_offset, state.last_run.messages_after) == (KEYS * TIMES, KEYS)

        write(broker.address, "users")
        flip(tmp_path / "broker-0" / "damaged-0" / f"{0:020}.log", at=100)
        failed = by_spark(broker, "damaged", "users", "--output", "json")
        assert failed.status == 1, failed.err
        damaged, sound = map(json.loads, failed.out.splitlines())
        assert (damaged["topic"], damaged["is_failure"], damaged["records_after"]) == ("damaged", True, None)
        assert damaged["result"].startswith("not cleaned: ")
        assert (sound["topic"], sound["is_failure"], sound["records_after"]) == ("users", False, KEYS)
        assert f"damaged-0 at broker 0: {damaged['result']}" in failed.err
        with Admin(bootstrap_servers=broker.address) as admin:
            (state,) = admin.describe_compaction(["damaged"]).replicas.values()
        assert state.uncleanable is not None
