"""Log directories after SIGKILL, again and again: all that was acknowledged is there, and at most one batch more."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from crash.ledger import check_retry
from crash.workload import PARTITIONS, Workload, let_go
from log.samples import whole

from sparklog.record.records import iter_batches
from sparklog.structs import TopicPartition

WRITER = Path(__file__).with_name("writer.py")


class Told:
    """What the writer said of one partition."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int]] = []
        """First offset, last offset, CRC."""
        self.start = 0
        self.may_start = 0
        self.may_end: int | None = None

    def hear(self, kind: str, numbers: list[int]) -> None:
        if kind in "Tt":  # a batch that holds the offset goes whole: a log that ends before its start begins there
            held = [first for first, last, _ in self.batches if last >= numbers[0]]
            self.start = min([self.start, numbers[0], *held])
        if kind == "a":
            first, last, crc = numbers
            self.batches.append((first, last, crc))
        elif kind == "T":
            self.may_end = numbers[0]
        elif kind == "t":
            self.may_end = None
            self.batches = [batch for batch in self.batches if batch[1] < numbers[0]]
        elif kind == "R":
            self.may_start = max(self.may_start, numbers[0])
        elif kind == "r":
            self.start = self.may_start = max(self.start, numbers[0])

    def check(self, log) -> None:
        views = list(iter_batches(whole(log), partial_tail=False))
        found = [(view.base_offset, view.last_offset, view.crc) for view in views]
        assert self.start <= log.log_start_offset <= self.may_start
        begin = found[0][0] if found else log.log_end_offset
        assert begin <= log.log_start_offset
        kept = [batch for batch in self.batches if batch[0] >= begin]
        least = [batch for batch in kept if self.may_end is None or batch[1] < self.may_end]
        assert found[: len(least)] == least, f"{log.tp} lost something: {found[-3:]}, {least[-3:]}"
        if self.may_end is None:
            assert len(found) <= len(kept) + 1, f"{log.tp} invented something: {found[len(kept) :]}"
        else:
            assert found == kept[: len(found)]
        check_retry(log, [bytes(view.buffer) for view in views])
        self.batches, self.start, self.may_end = found, log.log_start_offset, None
        self.may_start = self.start


def life(home: Path, chance: Random, told: dict[TopicPartition, Told]) -> None:
    """One writer from its start to its death; in a third of the cases that is at a step of its opening."""
    command = [sys.executable, str(WRITER), str(home), str(chance.getrandbits(32))]
    lines = chance.randrange(400)
    if chance.random() < 1 / 3:
        command.append(str(chance.randrange(60)))
        lines = 10**9
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writer:
        try:
            for number, line in enumerate(writer.stdout):
                kind, *rest = line.split()
                if kind != "o":
                    told[TopicPartition(rest[0], int(rest[1]))].hear(kind, [int(each) for each in rest[2:]])
                if number == lines:
                    writer.kill()
        finally:
            writer.kill()
        assert writer.wait() == -9, writer.stderr.read()


def live_and_die(seed: int, rounds: int, home: Path) -> None:
    chance = Random(seed)
    told = {tp: Told() for tp in PARTITIONS}
    for number in range(rounds):
        life(home, chance, told)
        work = Workload(chance)
        manager = work.open(home)
        try:
            assert not manager.unusable
            for tp, log in manager.logs.items():
                told[tp].check(log)
            assert all(tp in manager.logs for tp, each in told.items() if each.batches)
        except BaseException as error:
            error.add_note(f"seed {seed}, round {number}: {home}")
            raise
        finally:
            if chance.random() < 0.2:
                manager.close()
            else:
                let_go(manager)


def test_what_was_acknowledged_outlives_the_process(tmp_path):
    live_and_die(1, 5, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 110))
def test_what_was_acknowledged_outlives_many_processes(seed, tmp_path):
    live_and_die(seed, 30, tmp_path)
