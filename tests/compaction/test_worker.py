"""The process that cleans: what it answers, and that it does not outlive whoever began it."""

import errno
import io
import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest
from compaction import ours
from compaction.keyed import fill, leftovers, segment_files, table_of
from compaction.ours import opened

from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import CleaningTask
from sparklog.compaction.worker import serve
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.testing.clock import ManualClock
from sparklog.testing.eventually import eventually, wait_for_death
from sparklog.testing.files import FaultyFiles

NOW_MS = 1_700_000_100_000
CONFIG = parse(TopicConfig, {"cleanup.policy": "compact", "segment.bytes": "1000"})
GO = '{"go": true}'
PROGRAM = [sys.executable, "-m", "sparklog.compaction.worker"]


@pytest.fixture
def log(tmp_path):
    (tmp_path / "t-0").mkdir()
    with closing(opened(tmp_path / "t-0", CONFIG, NOW_MS)) as log:
        fill(log)
        yield log


def task_of(log, **buffers):
    return ours.task_of(log, ours.sections_of(log, None, NOW_MS), NOW_MS, **buffers)


class Incoming:
    """What a broker says: the tasks, and a go for each of so many groups."""

    def __init__(self, tasks, goes):
        self._tasks = tasks
        self._goes = goes

    def __iter__(self):
        return iter(self._tasks)

    def readline(self):
        self._goes -= 1
        return GO + "\n" if self._goes >= 0 else ""


def served(*tasks, goes=100, clock=None):
    outgoing = io.StringIO()
    serve(Incoming([each.to_json() for each in tasks], goes), outgoing, clock or ManualClock())
    return [json.loads(line) for line in outgoing.getvalue().splitlines()]


def test_a_task_travels_as_json(log):
    task = task_of(log)
    assert CleaningTask.from_json(task.to_json()) == task
    config = parse(
        TopicConfig,
        {
            "cleanup.policy": "delete,compact",
            "min.cleanable.dirty.ratio": "0.25",
            "max.compaction.lag.ms": str(2**63 - 1),
        },
    )
    task = replace(task, config=config, last_offsets={2**62: 2**61, 0: -1}, marker_epochs={5: 32767}, name="a.b_c-1")
    again = CleaningTask.from_json(task.to_json())
    assert again == task
    assert type(again.config.cleanup_policy) is type(task.config.cleanup_policy)
    assert "\n" not in task.to_json()


def test_each_group_is_told_and_waits_for_its_go(log):
    names = segment_files(log.directory)
    answers = served(task_of(log))
    assert [next(iter(each)) for each in answers] == ["group"] * (len(answers) - 1) + ["done"]
    assert CleanerStats(**answers[-1]["done"]).end_offset == log.end.segment_base
    assert set(names) <= set(segment_files(log.directory)), "nothing that is there has changed"
    assert leftovers(log.directory) != []


def test_without_a_go_nothing_goes_on(log):
    (answer,) = served(task_of(log), goes=0)
    assert "group" in answer


def test_several_tasks_are_done_one_after_another(log):
    """The second finds what the first wrote, which nobody put in place or removed, and says so."""
    *_, first, second = served(task_of(log), task_of(log))
    assert "done" in first
    assert second["failed"]["kind"] == "disk"
    assert "File exists" in second["failed"]["text"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(errno.ENOSPC, "no room"), (errno.EDQUOT, "no room"), (errno.EIO, "disk"), (errno.EROFS, "disk")],
)
def test_a_disk_that_refuses_is_told_and_nothing_is_left(log, error, kind):
    step = 0
    while True:
        with FaultyFiles(log.directory, fail_at=step, error=error) as files:
            answers = served(task_of(log))
        if files.count <= step:
            break
        failed = [each["failed"] for each in answers if "failed" in each]
        for each in failed:
            assert each["kind"] == kind
            if len(answers) == 1:
                assert leftovers(log.directory) == [], f"step {step}"
        for path in log.directory.glob("*.cleaned"):
            path.unlink()
        step += 1
    assert step > 5


@pytest.mark.parametrize("step", ["write_all", "os.fsync"])
def test_a_full_disk_is_told_with_the_file_that_it_refused(log, monkeypatch, step):
    """A write or a sync is of a descriptor: the system does not name the file."""

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"sparklog.compaction.rewriting.{step}", refuse)
    text = served(task_of(log))[-1]["failed"]["text"]
    assert text.startswith(f"No space left on device ({log.directory}/")
    assert text.endswith(".cleaned)")


def test_a_segment_that_is_gone_is_told(log):
    task = task_of(log)
    os.unlink(log.directory / f"{0:020d}.log")
    (answer,) = served(task)
    assert answer["failed"]["kind"] == "gone"


def test_damage_is_told_with_the_file(log):
    path = log.directory / f"{0:020d}.log"
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff")
    (answer,) = served(task_of(log))
    assert answer["failed"]["kind"] == "corrupt"
    assert leftovers(log.directory) == []


def test_files_of_another_cleaning_are_not_written_over(log):
    """Two that clean one log at once would each leave the other's half."""
    other = log.directory / f"{0:020d}.log.cleaned"
    other.write_bytes(b"another's")
    (answer,) = served(task_of(log))
    assert "failed" in answer
    assert other.read_bytes() == b"another's"


def test_a_map_without_room_is_no_damage(log):
    (answer,) = served(task_of(log, buffer_bytes=1))
    assert answer["failed"]["kind"] == "no room"
    assert "log.cleaner.dedupe.buffer.size" in answer["failed"]["text"]


def test_what_is_read_and_written_takes_the_time_that_the_rate_gives_it(log):
    clock, task, rate = ManualClock(), task_of(log), 250.0
    *_, told = served(replace(task, buffers=replace(task.buffers, bytes_per_second=rate)), clock=clock)
    done = CleanerStats(**told["done"])
    paid = done.map_bytes_read + done.bytes_read + done.bytes_written
    assert paid > 3000
    assert clock.monotonic() == pytest.approx(paid / rate)


def test_a_worker_gives_way_to_other_processes(log):
    with subprocess.Popen(
        [*PROGRAM, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        worker.stdin.write(task_of(log).to_json() + "\n")
        worker.stdin.flush()
        assert "group" in json.loads(worker.stdout.readline())
        niceness = os.getpriority(os.PRIO_PROCESS, worker.pid)
        worker.kill()
    assert niceness == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)


def test_a_worker_without_its_broker_does_nothing(log):
    """The broker may die before the worker has asked to be told."""
    names = segment_files(log.directory)
    done = subprocess.run(
        [*PROGRAM, "1"], input=task_of(log).to_json() + "\n", text=True, capture_output=True, check=True
    )
    assert done.stdout == ""
    assert segment_files(log.directory) == names


_BROKER = """
import os, subprocess, sys
worker = subprocess.Popen(sys.argv[1:] + [str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
worker.stdin.write(sys.stdin.readline())
worker.stdin.flush()
print(worker.pid, worker.stdout.readline(), flush=True)
sys.stdin.readline()
"""


def test_a_worker_dies_with_its_broker(log):
    with subprocess.Popen(
        [sys.executable, "-c", _BROKER, *PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as broker:
        broker.stdin.write(task_of(log).to_json() + "\n")
        broker.stdin.flush()
        pid, _, answer = broker.stdout.readline().partition(" ")
        assert "group" in json.loads(answer)
        broker.kill()
        wait_for_death(int(pid))


def test_a_worker_that_is_killed_while_it_writes_parts_leaves_nothing_after_a_restart(tmp_path):
    (tmp_path / "t-0").mkdir()
    config = replace(CONFIG, compaction_strategy="timestamp")
    with closing(opened(tmp_path / "t-0", config, NOW_MS)) as log:
        fill(log, keys=20)
        table, names = table_of(log), segment_files(log.directory)
        task = task_of(log, buffer_bytes=32 * 4)
        task = replace(task, buffers=replace(task.buffers, bytes_per_second=3000))
        with subprocess.Popen([*PROGRAM, str(os.getpid())], stdin=subprocess.PIPE, text=True) as worker:
            worker.stdin.write(task.to_json() + "\n")
            worker.stdin.flush()
            eventually(lambda: [*log.directory.glob("keys-*.draft.tmp")])
            worker.kill()
    with closing(opened(tmp_path / "t-0", config, NOW_MS)) as log:
        assert [path.name for path in log.directory.iterdir() if path.suffix == ".tmp"] == []
        assert segment_files(log.directory) == names
        assert table_of(log) == table


def test_a_worker_ends_with_its_input(log):
    table = table_of(log)
    done = subprocess.run(
        [*PROGRAM, str(os.getpid())],
        input=task_of(log).to_json() + "\n" + GO,
        text=True,
        capture_output=True,
        check=True,
    )
    assert "group" in json.loads(done.stdout.splitlines()[0])
    assert done.stderr == ""
    assert table_of(log) == table


def test_it_starts_without_arrow():
    """Which would take more time and memory than all the rest of it."""
    program = "import sys, sparklog.compaction.worker; print([name for name in sys.modules if name == 'pyarrow'])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"
