"""Recovery of a partition after a crash, by ``LogManager`` and by Apache Kafka 3.9.1, each of its own copy.

Nothing is known to be flushed: no marker of a clean stop, no recovery point. So all of it is read (from the page
cache), every batch's CRC-32C checked and both indexes made anew, by one thread on either side. Kafka's time is what it
says itself of the log, so without the start of its JVM; the JVM is a new one each time, as it is after a crash.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from benchmarks.comparison import Comparison
from benchmarks.loads.records import batch_of
from benchmarks.peers import KAFKA_JVM
from sparklog.clock import SystemClock
from sparklog.config.topic import TopicConfig
from sparklog.log.checkpoints import LOG_START_OFFSETS, META_PROPERTIES, RECOVERY_POINTS
from sparklog.log.directories.manager import LogManager
from sparklog.log.files import CLEAN_SHUTDOWN_MARKER, SNAPSHOT_SUFFIX
from sparklog.log.log import Log
from sparklog.record import layout
from sparklog.structs import TopicPartition
from sparklog.testing.kafka import KafkaBroker

ROUNDS = 2
TURNS_A_ROUND = 3
"""Of ours, whose start costs nothing; the best one counts."""
TOTAL_BYTES = 2_000_000_000
SHAPES = [
    ("1 KB in 16 KB batches", 1000, 16_000),
    ("1 KB in 1 MB batches", 1000, 1_000_000),
    ("100 B in 16 KB batches", 100, 16_000),
]
PARTITION = TopicPartition("bench", 0)
_KAFKA_SETTINGS = {"num.recovery.threads.per.data.dir": 1, "log.retention.ms": -1}
_COMPLETED = re.compile(r"Completed load of Log\(.* with (\d+) segments.* log-end-offset (\d+) in (\d+)ms")
_LOADED_ALL = re.compile(r"Loaded (\d+) logs in (\d+)ms")


class Recovery(NamedTuple):
    """One recovery of the partition."""

    seconds: float
    end_offset: int


def run(directory: Path, zookeeper: str, say: Callable[[str], None], scale: float) -> list[Comparison]:
    """GB/s and seconds, beside Kafka."""
    compared = []
    for number, (name, record_size, batch_bytes) in enumerate(SHAPES):
        say(f"log: recovery, {name}")
        data, records = batch_of(record_size, batch_bytes)
        batches = int(TOTAL_BYTES * scale) // len(data)
        rate = Comparison(f"recovery, {name}", "GB/s", "Kafka")
        cost = Comparison(f"recovery, {name}", "us a batch", "Kafka")
        ours, theirs = directory / "recovered", directory / "recovered-by-kafka"
        write_partition(ours / str(PARTITION), data, batches)
        copy(ours, theirs)
        for round_number in range(ROUNDS):
            # Tree and cluster are new each time: a killed broker's session outlives it by a while.
            own = f"recovery-{number}-{round_number}"
            kafka = Kafka(theirs, directory / own, f"{zookeeper}/{own}")
            for side, found in (
                ("ours", min(recover(ours) for _ in range(TURNS_A_ROUND))),
                ("theirs", kafka.recover()),
            ):
                if found.end_offset != batches * records:
                    raise RuntimeError(f"{side}: ends at {found.end_offset}, not at {batches * records}")
                getattr(rate, side).append(batches * len(data) / found.seconds / 1e9)
                getattr(cost, side).append(found.seconds / batches * 1e6)
        shutil.rmtree(ours)
        shutil.rmtree(theirs)
        compared += [rate, cost]
    return compared


def write_partition(directory: Path, data: bytes, batches: int) -> None:
    """A partition of so many times ``data``, left as a crash leaves it, but on the disk."""
    directory.mkdir(parents=True)
    log = Log(directory, PARTITION, TopicConfig(), SystemClock(), lambda _: None)
    view = memoryview(bytearray(data))
    for _ in range(batches):
        layout.INT64.pack_into(view, layout.BASE_OFFSET, 0)
        log.append_as_leader(view, 0)
    log.abandon()


def copy(source: Path, target: Path) -> None:
    """Holes stay holes. All is on the disk then, so that no later measurement pays for it."""
    subprocess.run(["cp", "--archive", "--sparse=always", source, target], check=True)
    subprocess.run(["sync", "--file-system", target], check=True)


def recover(directory: Path) -> Recovery:
    """By us. The directory is as after a crash again then."""
    clock = SystemClock()
    with ThreadPoolExecutor(1) as executor:
        manager = LogManager([directory], TopicConfig(), clock, executor)
        start = clock.monotonic()
        manager.load({})
        seconds = clock.monotonic() - start
        log = manager.logs[PARTITION]
        if log.scanned_bytes != log.size:
            raise RuntimeError(f"{log.scanned_bytes} of {log.size} bytes were scanned")
        manager.close()
    forget_the_stop(directory)
    return Recovery(seconds, log.log_end_offset)


def forget_the_stop(directory: Path) -> None:
    """Nothing in the log directory says what of it is flushed, nor whose it is."""
    for name in (CLEAN_SHUTDOWN_MARKER, RECOVERY_POINTS, LOG_START_OFFSETS, META_PROPERTIES):
        (directory / name).unlink(missing_ok=True)
    for snapshot in directory.glob(f"*/*{SNAPSHOT_SUFFIX}"):
        snapshot.unlink()


@dataclass(frozen=True)
class Kafka:
    """Kafka 3.9.1 on log directory ``logs``, started once a call; ``own`` is for its own files."""

    logs: Path
    own: Path
    zookeeper: str

    def recover(self) -> Recovery:
        """The directory is as after a crash again then."""
        self._run(lambda broker: broker.kill())
        found = _COMPLETED.search(self._said())
        if found is None:
            raise RuntimeError(f"Kafka does not say how long it took:\n{self._said()[-2000:]}")
        forget_the_stop(self.logs)
        return Recovery(int(found[3]) / 1000, int(found[2]))

    def open_all(self, logs: int) -> float:
        """Seconds that it takes to open all ``logs``; stopped in order then."""
        self._run(lambda broker: broker.stop())
        found = _LOADED_ALL.findall(self._said())
        if not found or int(found[-1][0]) != logs:
            raise RuntimeError(f"Kafka did not load {logs} logs: {found}")
        return int(found[-1][1]) / 1000

    def _run(self, end: Callable[[KafkaBroker], None]) -> None:
        broker = KafkaBroker(self.own, self.zookeeper, extra_props={"log.dirs": self.logs, **_KAFKA_SETTINGS})
        with patch.dict(os.environ, {"JDK_JAVA_OPTIONS": KAFKA_JVM}):
            broker.start()
        end(broker)

    def _said(self) -> str:
        return (self.own / "kafka.log").read_text()
