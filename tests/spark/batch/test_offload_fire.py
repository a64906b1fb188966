"""Offloads as their users start them, killed at moments that a seed draws while leaders die and move: each record once.

A job runs on and on, and takes in what a transaction shows it all at once: so the test sees the moments of one commit.
"""

import logging
import os
import random
import re
import signal
import sys
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path

import pytest
from spark.batch.offloaded import Sent, bytes_in_files, in_log, in_parquet, in_table, last_of_each_key, log_bytes

from sparklog.client import Admin, NewTopic, Producer
from sparklog.local.process import ChildProcess
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually, wait_for_death

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(3600)]
_log = logging.getLogger(__name__)
PROGRAM = Path(__file__).parents[3] / "jobs" / "offload.py"
TOPIC, PARTITIONS = "t", 2
PATIENCE_S = 600.0
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "4000"}
MOMENTS = ("shown", "written", "committed", "told")
"""Of a commit: its records are there for readers, a file of them is there, so is the commit, and it is printed."""
VICTIMS = ("driver", "JVM", "both")
_COMMIT = re.compile(r"/(_delta_log|_manifests)/\d+\.json$")
_METADATA = re.compile(r"/(_delta_log|_manifests)/")
_JVM_ENDED = re.compile(r"offload: Spark's JVM has ended, start the job again: |JAVA_GATEWAY_EXITED")
"""While it worked, or before the driver had spoken to it."""
_TOLD = re.compile(r"^version \d+: .*$", re.MULTILINE)


class OffloadProcess:
    """The job in a process of its own, again and again. What it is about is seen from outside."""

    def __init__(self, command, place, log, environment):
        self._command = command
        self._place = place
        self._child = ChildProcess("offload", log, environ=environment)
        self._jvms = []

    def start(self, *how_long):
        self._child.spawn([*map(str, self._command), *how_long])

    @property
    def fate(self):
        return self._child.fate

    def wait(self):
        """Until it ends by itself; how it ended."""
        self._child.reap(PATIENCE_S)
        return self.fate

    def marks(self, moment):
        """What there is that such moments have left."""
        if moment == "told":
            return set(enumerate(_TOLD.findall(self._child.output())))
        files = {f"{root}/{name}" for root, _, names in os.walk(self._place) for name in names}
        if moment == "committed":
            return {each for each in files if _COMMIT.search(each)}
        return {each for each in files if not _METADATA.search(each)}

    def await_another(self, moment, before):
        """Until there is more of it than ``before``."""
        self._await(lambda: self.marks(moment) - before, f"something {moment}")

    def kill_workers(self):
        """All of Spark's Python workers that there are; some, if need be later."""
        for worker in self._await(self._workers, "a worker"):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)

    def kill(self, victim, write):
        """A driver whose JVM was killed says so and ends: one that has nothing to do, with the records of ``write``.

        A JVM whose driver was killed ends too, but not at once.
        """
        jvm = self._jvm()
        self._jvms.append(jvm)
        if victim != "driver":
            os.kill(jvm, signal.SIGKILL)
        if victim != "JVM":
            self._child.kill()
        else:
            write()()
            fate, said = self.wait(), self._child.output()
            assert fate == "exited with status 1", said[-4000:]
            assert _JVM_ENDED.search(said), said[-4000:]

    def close(self):
        """Nothing is left of it."""
        self._jvms += _children(self._child.pid, b"SparkSubmit")
        self._child.kill()
        for jvm in self._jvms:
            wait_for_death(jvm)

    def _await(self, condition, what):
        def now():
            if not self._child.alive:
                raise AssertionError(f"the job {self.fate}, and not {what}: {self._child.output()[-4000:]}")
            return condition()

        return eventually(now, PATIENCE_S, what)

    def _jvm(self):
        return self._await(lambda: _children(self._child.pid, b"SparkSubmit"), "a JVM")[0]

    def _workers(self):
        daemons = _children(self._jvm(), b"pyspark.daemon")
        return [worker for daemon in daemons for worker in _children(daemon, b"pyspark.daemon")]


def _children(pid, word):
    """The children of a process, whichever thread has started them, with this word in their command lines."""
    found = []
    with suppress(OSError):  # one that has ended meanwhile
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(each) for each in path.read_text().split()]
    return [each for each in found if word in _command_line(each)]


def _command_line(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class Fire:
    """Kills a broker that leads, starts it again, and moves leaders to where they belong, in turn."""

    def __init__(self, cluster, admin, chance):
        self._cluster = cluster
        self._admin = admin
        self._chance = chance

    def step(self):
        if not all(each.alive for each in self._cluster.brokers):
            self.mend()
            return
        leader = self._admin.describe_topics([TOPIC])[TOPIC].partitions[self._chance.randrange(PARTITIONS)].leader
        _log.info("broker %d is killed", leader)
        self._cluster.kill_broker(leader)

    def mend(self):
        for broker in self._cluster.brokers:
            if not broker.alive:
                broker.start()
        eventually(self._is_in_sync, PATIENCE_S, "all replicas in sync")
        _log.info("all brokers are there, and leaders move")
        self._admin.elect_leaders()

    def _is_in_sync(self):
        topics = self._admin.list_topics(internal=True)
        return all(len(each.isr) == len(each.replicas) for topic in topics for each in topic.partitions)


class Drill:
    """Lives and deaths of a job under fire, and the records that it has to offload."""

    def __init__(self, chance, job, fire, producers, sent):
        self.acknowledged = []
        """Partition, key and value of each record that counts, in the order of their offsets."""
        self._chance = chance
        self._job = job
        self._fire = fire
        self._plain, self._transactional = producers
        self._sent = sent

    def live_and_die(self, moment, victim):
        self._job.start("--freshness", "1s")
        for _ in range(self._chance.randrange(3)):
            self._maybe(self._fire.step)
            if self._chance.random() < 0.5:
                self._lose_workers(self._chance.choice(MOMENTS[:2]))
            else:
                self._write_and_await("told")
        self._maybe(self._fire.step)
        self._write_and_await(moment)
        _log.info("%s: %s killed", moment, victim)
        self._job.kill(victim, self._write)
        self._maybe(self._fire.step)

    def _lose_workers(self, moment):
        """The job goes on without them."""
        told = self._job.marks("told")
        self._write_and_await(moment)
        _log.info("%s: workers killed", moment)
        self._job.kill_workers()
        self._job.await_another("told", told)
        self._write_and_await("told")

    def finish(self):
        """It is started until it ends well."""
        self._fire.mend()
        if self._chance.random() < 0.5:
            self._write()()
            self._job.start("--once")
            self._job.kill_workers()
            _log.info("it %s without its workers", self._job.wait())
        for _ in range(3):
            self._job.start("--once")
            if self._job.wait() == "exited with status 0":
                return
        raise AssertionError(f"the job {self._job.fate}")

    def _maybe(self, act):
        if self._chance.random() < 0.5:
            act()

    def _write_and_await(self, moment):
        commit = self._write()
        before = self._job.marks(moment)
        commit()
        if moment != "shown":
            self._job.await_another(moment, before)

    def _write(self):
        """Records of all kinds, the last of them in a transaction; what is returned commits it."""
        self.acknowledged += self._sent.write(self._plain)
        if self._chance.random() < 0.3:
            self._transactional.begin_transaction()
            self._sent.write(self._transactional)
            self._transactional.abort_transaction()
        self._transactional.begin_transaction()
        self.acknowledged += self._sent.write(self._transactional, least=5)
        return self._transactional.commit_transaction


PLACES = {
    "raw": ("--table", "--partition-by", "partition"),
    "upsert": ("--table", "--upsert"),
    "parquet": ("--files",),
    "segments": ("--files", "--format", "segments"),
}
SEEDS = [("raw", 3), ("raw", 49), ("upsert", 9), ("upsert", 52), ("parquet", 21), ("segments", 53)]
"""They draw each moment with each victim, but one; half of them start the program, the others the command."""
LIVES = 3


@pytest.fixture
def cluster(tmp_path):
    """Three brokers, which may be harmed."""
    with ClusterHarness(tmp_path / "cluster", 3, settings={"log.cleaner.backoff.ms": 200}) as harness:
        yield harness


@pytest.fixture
def admin(cluster):
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as found:
        yield found


@pytest.fixture
def begin(cluster, admin, quick_spark, tmp_path):
    """``begin(kind, seed, chance)``: a drill whose place is ``tmp_path / "place"``."""
    servers, place = {"bootstrap.servers": cluster.bootstrap_servers}, tmp_path / "place"
    with (
        Producer(servers) as plain,
        Producer({**servers, "transactional.id": "drill"}) as transactional,
        ExitStack() as end,
    ):

        def begun(kind, seed, chance):
            settings = {"retention.ms": "-1", "min.insync.replicas": "2", **(COMPACTED if kind == "upsert" else {})}
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, settings)])
            transactional.init_transactions()
            started = (PROGRAM,) if seed % 3 == 0 else ("-m", "sparklog.cli.main", "offload")
            where, *how = PLACES[kind]
            command = (sys.executable, *started, "-b", cluster.bootstrap_servers, "--topic", TOPIC, where, place, *how)
            environment = {**quick_spark, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(tmp_path / "local")}
            job = OffloadProcess(command, place, tmp_path / "job.log", environment)
            end.callback(job.close)
            sent = Sent(chance, TOPIC, PARTITIONS, keys=20 if kind == "upsert" else None)
            return Drill(chance, job, Fire(cluster, admin, chance), (plain, transactional), sent)

        yield begun


@pytest.mark.parametrize(("kind", "seed"), SEEDS)
def test_each_record_is_there_once(spark, interpreted, delta_jars, cluster, admin, begin, tmp_path, kind, seed):
    del interpreted, delta_jars
    chance, place = random.Random(seed), str(tmp_path / "place")
    drill = begin(kind, seed, chance)
    for moment, victim in chance.sample([*product(MOMENTS, VICTIMS)], LIVES):
        drill.live_and_die(moment, victim)
    drill.finish()
    log = in_log(spark, cluster.bootstrap_servers, TOPIC)
    if kind == "upsert":
        rows = in_table(spark, place)
        assert rows == last_of_each_key(log)
        last = {(partition, key): value for partition, key, value in drill.acknowledged}
        there = ((*which, value) for which, value in last.items() if value is not None)
        assert _told(rows) == sorted(there, key=repr)
        return
    assert _told(log) == sorted(drill.acknowledged, key=repr)
    if kind == "segments":
        for each in admin.describe_topics([TOPIC])[TOPIC].partitions:
            tp = TopicPartition(TOPIC, each.partition)
            assert bytes_in_files(place, tp) == log_bytes(cluster, tp, each.leader)
    else:
        assert (in_parquet if kind == "parquet" else in_table)(spark, place) == log


def _told(rows):
    """Partition, key and value of each."""
    return sorted(((row[0], bytes(row[2]), row[3] and bytes(row[3])) for row in rows), key=repr)
