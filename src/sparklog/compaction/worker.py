"""The process in which a broker has logs cleaned, one after another: ``python -m sparklog.compaction.worker PID``.

PID is the broker's.

It speaks in lines of JSON. In: a task, of a cleaning, or ``{"erasure": ...}`` and a line of keys; then, for each group
that it has written, ``{"go": true}`` when the group is in place. Out: ``{"group": {"old": [...], "new": [...]}}`` for
each group, of an erasure ``{"progress": [DONE, TOTAL]}`` too, at the end ``{"done": STATS}``, or ``{"failed": {"kind":
..., "text": ...}}``, after which nothing is left of the group under way.

It ends with its broker, whatever that dies of, so that no two write anew one log. It gives way to other processes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from sparklog.clock import Clock, SystemClock
from sparklog.compaction.cleaner import LogCleaning
from sparklog.compaction.erasure import ErasureTask, LogErasing, Progress
from sparklog.compaction.task import CleaningTask, kind_of, text_of
from sparklog.errors import CorruptRecord, DiskFull

_NICE = 10
_PR_SET_PDEATHSIG = 1


class _Orphaned(Exception):
    """The broker is gone."""


def serve(incoming: TextIO, outgoing: TextIO, clock: Clock, is_wanted: Callable[[], None] = lambda: None) -> None:
    """Do what the lines of ``incoming`` say, until it ends. ``is_wanted`` raises what ends it at once."""
    for line in incoming:
        work = _work_of(line, incoming, clock, is_wanted)
        try:
            for step in work.run():
                if isinstance(step, Progress):
                    _say(outgoing, {"progress": step})
                    continue
                _say(outgoing, {"group": {"old": step.old, "new": step.new}})
                if not incoming.readline():
                    return
        except (CorruptRecord, OSError, MemoryError, DiskFull) as error:
            _say(outgoing, {"failed": {"kind": kind_of(error), "text": text_of(error)}})
        else:
            _say(outgoing, {"done": work.stats.to_dict()})


def _work_of(line: str, incoming: TextIO, clock: Clock, is_wanted: Callable[[], None]) -> LogCleaning | LogErasing:
    seed = os.urandom(16)
    fields = json.loads(line)
    if "erasure" in fields:
        task = ErasureTask.from_lines(fields["erasure"], incoming.readline())
        return LogErasing(task, clock, seed, is_wanted)
    return LogCleaning(CleaningTask.from_json(line), clock, seed, is_wanted)


def _say(outgoing: TextIO, answer: dict[str, Any]) -> None:
    outgoing.write(json.dumps(answer) + "\n")
    outgoing.flush()


def main() -> int:
    """Serve the process that began this one; not at all if that is gone already."""
    parent = int(sys.argv[1])
    with suppress(OSError, AttributeError):  # where there is no such call, the parent's number tells
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; the broker ends this process

    def is_wanted() -> None:
        if os.getppid() != parent:
            raise _Orphaned

    with suppress(_Orphaned, BrokenPipeError):
        is_wanted()
        serve(sys.stdin, sys.stdout, SystemClock(), is_wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
