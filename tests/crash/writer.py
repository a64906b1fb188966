"""A process that works in a log directory until it is killed: python writer.py HOME SEED [STEP_OF_DEATH].

What it does it says on standard output, a line each, capitals before and small letters after the deed:
``a TOPIC PARTITION FIRST LAST CRC`` appended; ``T`` or ``t TOPIC PARTITION END`` truncated; ``R`` or ``r TOPIC
PARTITION START`` beginning given up, ``o`` directory opened. With STEP_OF_DEATH it kills itself at that step on the
disk, of the opening at the earliest.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from crash.ledger import last_producer, unique_batch
from crash.workload import DEFAULTS, PARTITIONS, TOPICS

from sparklog.clock import SystemClock
from sparklog.log.directories.manager import LogManager
from sparklog.log.log import Log
from sparklog.record.batch import RecordBatch
from sparklog.structs import TopicPartition
from sparklog.testing.files import FaultyFiles


class Writer:
    """One life."""

    def __init__(self, home: Path, chance: Random) -> None:
        self._chance = chance
        self._number = chance.getrandbits(40)
        self._manager = LogManager([home], DEFAULTS, SystemClock(), ThreadPoolExecutor(1))
        self._manager.own("cluster", 1)
        self._manager.load(TOPICS)
        self._producers = {tp: last_producer(log) for tp, log in self._manager.logs.items()}
        self._epochs = {tp: max(log.epochs.latest or (0,)) for tp, log in self._manager.logs.items()}
        say("o")

    def work(self) -> None:
        kinds = [self._append] * 40 + [self._truncate, self._retain, self._advance_start, self._checkpoint, self._flush]
        while True:
            tp = self._chance.choice(PARTITIONS)
            log = self._manager.get_or_create(tp, TOPICS[tp.topic], None)
            self._chance.choice(kinds)(tp, log)

    def _append(self, tp: TopicPartition, log: Log) -> None:
        self._number += 1
        count, size = self._chance.randint(1, 3), self._chance.choice((20, 100, 600))
        id_, sequence = self._producers.get(tp) or (self._number, 0)
        records = unique_batch(self._number, count, size, (id_, sequence))
        epoch = self._epochs[tp] = self._epochs.get(tp, 0) + (self._chance.random() < 0.02)
        appended = log.append_as_leader(records, epoch)
        self._producers[tp] = (id_, sequence + count)
        say("a", tp, appended.first_offset, appended.last_offset, RecordBatch(records).crc)

    def _truncate(self, tp: TopicPartition, log: Log) -> None:
        offset = self._chance.randint(max(log.log_start_offset, log.log_end_offset - 10), log.log_end_offset)
        say("T", tp, offset)
        self._manager.truncate_to(tp, offset)
        say("t", tp, log.log_end_offset)
        self._producers[tp] = None

    def _retain(self, tp: TopicPartition, log: Log) -> None:
        say("R", tp, log.log_end_offset)
        self._manager.delete_old_segments(tp, log.log_end_offset)
        say("r", tp, log.log_start_offset)

    def _advance_start(self, tp: TopicPartition, log: Log) -> None:
        offset = self._chance.randint(log.log_start_offset, log.log_end_offset)
        say("R", tp, offset)
        self._manager.advance_start(tp, offset)
        self._manager.checkpoint()
        say("r", tp, offset)

    def _checkpoint(self, tp: TopicPartition, log: Log) -> None:
        self._manager.checkpoint()

    def _flush(self, tp: TopicPartition, log: Log) -> None:
        log.flush()


def say(kind: str, tp: TopicPartition | None = None, *numbers: int) -> None:
    """One write of one line, which a pipe takes whole or not at all."""
    os.write(1, " ".join(map(str, (kind, *(tp or ()), *numbers))).encode() + b"\n")


def main(home: Path, seed: int, step_of_death: int | None) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    death = FaultyFiles(home, crash_at=step_of_death, half=True, strike=die) if step_of_death is not None else None
    with death or nullcontext():
        Writer(home, Random(seed)).work()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
