"""Jobs that compact and die at every step, and brokers that die or restart under their grants, beside writers and
direct readers: what is read is the log's table at any time, and the next job cleans the log to its end. No Spark.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from typing import NamedTuple

import pytest
from compaction.tasks_here import TasksHere

from sparklog.client import Admin, Consumer, NewTopic, Producer
from sparklog.compaction.split import IndexStretch, RewriteStretch, TraceStretch
from sparklog.compaction.task import Failure
from sparklog.spark.batch import compact
from sparklog.spark.batch.compact import CompactOptions, run_on
from sparklog.spark.batch.tasks import Look, TaskFailed
from sparklog.spark.read.batch_reader import SparklogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
STEPS = ("granted", "looked", "indexed", "traced", "rewritten", "placed", "all placed", "finished")
HARMS = ("die", "die", "die", "kill the broker", "restart the broker", "lose a task")
KEYS = 9
GRANT_MS = 600
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "3000", "min.cleanable.dirty.ratio": "1"}
"""Nothing is cleaned unless somebody asks for it."""


class Died(BaseException):
    """The driver is dead: nothing more is done in its name."""


class Read(NamedTuple):
    """A record as a reader was given it."""

    offset: int
    key: bytes
    value: bytes | None


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(home):
    with ClusterHarness(home) as harness:
        yield harness


class Log:
    """A topic of one partition; what was committed to it, and what came of it."""

    def __init__(self, servers, home, topic, chance):
        self.tp = TopicPartition(topic, 0)
        self.directory = home / "broker-0" / str(self.tp)
        self.committed: list[Read] = []
        self._servers = servers
        self._chance = chance
        self._numbers = count()
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(topic, 1, 1, SETTINGS)])

    def write(self):
        """A transaction or two of some records, of which one may be aborted."""
        settings = {"bootstrap_servers": self._servers, "transactional_id": f"writer-{self.tp.topic}"}
        with Producer(**settings, linger_ms=0, batch_size=1) as producer:
            producer.init_transactions()
            for _ in range(self._chance.choice((1, 2))):
                producer.begin_transaction()
                records = [self._record() for _ in range(self._chance.randint(20, 60))]
                sent = [producer.send(self.tp.topic, value, key=key, partition=0) for key, value in records]
                producer.flush()
                if self._chance.random() < 0.3:
                    producer.abort_transaction()
                    continue
                producer.commit_transaction()
                self.committed += [Read(at.result().offset, *each) for at, each in zip(sent, records, strict=True)]

    def _record(self):
        key, number = b"k%d" % self._chance.randrange(KEYS), next(self._numbers)
        return key, None if self._chance.random() < 0.1 else b"%d" % number + bytes(40)

    def read(self):
        """All that a consumer is given from the beginning on."""
        settings = {"bootstrap.servers": self._servers, "isolation.level": "read_committed"}
        found = []
        with Consumer(settings) as consumer:
            consumer.assign([self.tp])
            consumer.seek(self.tp, 0)
            (end,) = consumer.end_offsets([self.tp]).values()
            while consumer.position(self.tp) < end:
                found += [Read(each.offset, each.key, each.value) for each in consumer.poll(1)]
        return found

    def direct(self):
        """What Spark's source reads, from the files where it may, piece by piece."""
        given = {"kafka.bootstrap.servers": self._servers, "subscribe": self.tp.topic, "directRead": "auto"}
        given["kafka.isolation.level"] = "read_committed"
        reader = SparklogReader(ReadOptions.for_batch(given), source_schema(include_headers=False))
        for part in reader.partitions():
            for batch in reader.read(part):
                yield from (Read(row["offset"], row["key"], row["value"]) for row in batch.to_pylist())

    def check(self, records, committed):
        """That these are some of the log's, in order, and all that no cleaning takes where so much is committed."""
        offsets = [each.offset for each in records]
        assert offsets == sorted(set(offsets))
        assert set(records) <= set(self.committed)
        assert set(lasting(committed)) <= set(records)

    def leftovers(self):
        ends = (".tmp", ".cleaned", ".swap", ".deleted")
        return [each.name for each in self.directory.iterdir() if each.name.endswith(ends)]


def lasting(committed):
    """The last record of each key, deletions too, which are younger than ``delete.retention.ms``."""
    return sorted({each.key: each for each in committed}.values())


class Job:
    """A run to which something happens at a step, when it has been spared ``spared`` times."""

    def __init__(self, cluster, log, step, harm, spared):
        self._cluster = cluster
        self._log = log
        self._step = step
        self._harm = harm
        self._spared = spared
        self.readers: list[tuple[list[Read], Iterator[Read], list[Read]]] = []

    def run(self, grant_ms):
        """The report; None of a job that died."""
        options = CompactOptions(
            self._cluster.bootstrap_servers,
            (self._log.tp.topic,),
            parallelism=2,
            stretch_bytes=4000,
            grant_ms=grant_ms,
            client={"default.api.timeout.ms": "20000"},
        )
        with pytest.MonkeyPatch.context() as self._patch:
            for name, step in (("begin_cleanings", "granted"), ("put_in_place", "placed"), ("finish_cleaning", None)):
                self._wrap(name, step)
            with suppress(Died):
                return run_on(lambda cluster_id: Tasks(cluster_id, self), options)
        return None

    def _wrap(self, name, step):
        real = getattr(compact, name)

        def stepped(*arguments, **more):
            if step is None:
                self.comes_to("all placed")
            outcome = real(*arguments, **more)
            self.comes_to(step or "finished")
            return outcome

        self._patch.setattr(compact, name, stepped)

    def comes_to(self, step):
        """Whether what has been done here is lost. Raises Died."""
        if step != self._step:
            return False
        if self._spared:
            self._spared -= 1
            return False
        self._step = None
        self._look_on()
        if self._harm == "die":
            self._patch.setattr(compact, "give_up_cleaning", lambda *_: None)  # the dead give nothing back
            raise Died
        if self._harm == "kill the broker":
            self._cluster.kill_broker(0)
            self._cluster.start_broker(0)
        if self._harm == "restart the broker":
            self._cluster.stop_broker(0)
            self._cluster.start_broker(0)
        return self._harm == "lose a task"

    def _look_on(self):
        """A reader begins here, and goes on when the job is over."""
        reading = self._log.direct()
        self.readers.append(([*islice(reading, 1)], reading, [*self._log.committed]))


class Tasks(TasksHere):
    """Something may come when one is done."""

    def __init__(self, cluster_id, job):
        super().__init__(cluster_id)
        self._job = job

    def perform(self, task):
        outcome = super().perform(task)
        steps = {Look: "looked", IndexStretch: "indexed", TraceStretch: "traced", RewriteStretch: "rewritten"}
        is_lost = self._job.comes_to(steps.get(type(task), "room"))
        return TaskFailed(Failure.GONE, "its task died") if is_lost else outcome


def quick(seeds):
    """Of which all but the first are left to the soak."""
    return [pytest.param(seed, marks=[pytest.mark.slow] if number else []) for number, seed in enumerate(seeds)]


@pytest.mark.parametrize("seed", quick(range(30)))
def test_whatever_dies_the_log_is_read_as_it_was_written_and_is_cleaned_in_the_end(cluster, home, seed):
    chance = random.Random(seed)
    log = Log(cluster.bootstrap_servers, home, f"table-{seed}", chance)
    for _ in range(3):
        log.write()
        job = Job(cluster, log, chance.choice(STEPS), chance.choice(HARMS), chance.choice((0, 0, 1, 3)))
        job.run(GRANT_MS)
        for first, rest, committed in job.readers:
            log.check([*first, *rest], committed)
        log.check(log.read(), log.committed)
    log.write()
    eventually(lambda: is_cleaned(cluster, log), what="the grants of the dead lapse, and a job cleans the log")
    assert log.read() == lasting(log.committed)
    eventually(lambda: log.leftovers() == [], what="what the dead have left is removed")


def is_cleaned(cluster, log):
    report = Job(cluster, log, None, None, 0).run(60_000)
    if "being cleaned already" in str(report):
        return False
    assert not report.has_failed, str(report)
    return True
