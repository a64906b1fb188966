"""Opening a log directory of many small partitions, after a crash and after a clean stop, in a process of its own.

``python -m benchmarks.opening STEP DIRECTORY PARTITIONS`` does one step and prints what it measured as JSON. ``write``
makes the partitions, of two segments each, the first flushed and checkpointed, and ends like a killed broker; the
others open all of them and, but for ``crash``, close them in order. Kafka 3.9.1 opens a copy.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import machine, recovery
from benchmarks.comparison import Comparison
from benchmarks.loads.records import batch_of
from sparklog.clock import SystemClock
from sparklog.config.topic import TopicConfig
from sparklog.log.directories.manager import LogManager
from sparklog.record import layout
from sparklog.structs import TopicPartition

ROUNDS = 3
PARTITIONS = 1000
_BATCHES_A_SEGMENT = 2
_TIMEOUT_S = 120

Figures = dict[str, float]


def run(directory: Path, zookeeper: str, say: Callable[[str], None], scale: float) -> list[Comparison]:
    """Seconds after a crash and after a clean stop, beside Kafka; what an open partition costs."""
    partitions = max(int(PARTITIONS * scale), 10)
    say(f"log: opening {partitions} partitions")
    logs, copied = directory / "many", directory / "many-of-kafka"
    _step("write", logs, partitions)
    recovery.copy(logs, copied)
    kafka = recovery.Kafka(copied, directory / "kafka-many", f"{zookeeper}/many")
    name = f"open {partitions} partitions"
    crashed = Comparison(f"{name} after a crash", "s", "Kafka", theirs=[kafka.open_all(partitions)])
    clean = Comparison(f"{name} after a clean stop", "s", "Kafka", theirs=[kafka.open_all(partitions)])
    shutil.rmtree(copied)
    crashed.ours = [_step("crash", logs, partitions)["s"] for _ in range(ROUNDS)]
    _step("stop", logs, partitions)
    found = [_step("stop", logs, partitions) for _ in range(ROUNDS)]
    clean.ours = [each["s"] for each in found]
    closing = Comparison(f"close {partitions} partitions", "s", ours=[each["s to close"] for each in found])
    traced = _step("trace", logs, partitions)
    shutil.rmtree(logs)
    resident = Comparison("an open partition of two segments", "KB of memory", ours=[each["KB"] for each in found])
    heap = Comparison("an open partition of two segments", "KB of Python objects", ours=[traced["KB of objects"]])
    files = Comparison("an open partition of two segments", "descriptors", ours=[found[0]["descriptors"]])
    return [crashed, clean, closing, resident, heap, files]


def _step(step: str, logs: Path, partitions: int) -> Figures:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.opening", step, str(logs), str(partitions)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{step} failed:\n{done.stderr}")
    figures: Figures = json.loads(done.stdout)
    return figures


def _write(manager: LogManager, partitions: int) -> None:
    data, _ = batch_of(1000, 0)
    view = memoryview(bytearray(data))
    for number in range(partitions):
        log = manager.get_or_create(TopicPartition("many", number), None, None)
        for batch in range(2 * _BATCHES_A_SEGMENT):
            if batch == _BATCHES_A_SEGMENT:
                log.roll()
            layout.INT64.pack_into(view, layout.BASE_OFFSET, 0)
            log.append_as_leader(view, 0)


def _open(manager: LogManager, partitions: int) -> Figures:
    """Seconds that it takes, and what a partition costs then."""
    clock = SystemClock()
    gc.collect()
    resident, descriptors, objects = machine.resident_bytes(os.getpid()), _descriptors(), _traced_bytes()
    start = clock.monotonic()
    manager.load({})
    seconds = clock.monotonic() - start
    gc.collect()
    if len(manager.logs) != partitions or any(log.segment_count != 2 for log in manager.logs.values()):
        raise RuntimeError(f"{len(manager.logs)} logs were opened, {partitions} of two segments were written")
    return {
        "s": seconds,
        "KB": (machine.resident_bytes(os.getpid()) - resident) / partitions / 1000,
        "KB of objects": (_traced_bytes() - objects) / partitions / 1000,
        "descriptors": (_descriptors() - descriptors) / partitions,
    }


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _traced_bytes() -> int:
    return tracemalloc.get_traced_memory()[0]


def _main(step: str, directory: Path, partitions: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    clock, figures = SystemClock(), Figures()
    if step == "trace":
        tracemalloc.start()
    executor = ThreadPoolExecutor(1)
    manager = LogManager([directory], TopicConfig(), clock, executor)
    if step == "write":
        _write(manager, partitions)
        executor.shutdown()  # every flush has been made
        manager.checkpoint()
    else:
        figures = _open(manager, partitions)
    if step in ("stop", "trace"):
        start = clock.monotonic()
        manager.close()
        figures["s to close"] = clock.monotonic() - start
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
    os._exit(0)  # nothing that has been left open is closed in order


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
