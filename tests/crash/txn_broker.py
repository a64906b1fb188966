"""A broker that kills itself on the way through a transaction: python txn_broker.py ARMED_FILE broker ...

ARMED_FILE, once it is there, names the step before which the broker dies (and is removed then, so it dies once), here
in the order of a transaction's life. Of the coordinator's records: ``empty record`` (a producer's epoch),
``ongoing record`` (its first partition), ``kept record`` (a successor has it), ``prepare record``. Between records:
``first batch`` (the first partition is known to the coordinator). Of markers: ``first marker``, ``second marker``,
``third marker``. Then ``complete record``.

ARMED_FILE.later, where there is one at the start, holds how many milliseconds this broker's clock is ahead.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sparklog.broker.coordinator_log import CoordinatorLog
from sparklog.broker.txn.markers import Begun, TransactionMarkers
from sparklog.cli.main import main
from sparklog.clock import SystemClock
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition
from sparklog.txn.markers import Marker
from sparklog.txn.records import read_value

ARMED = Path(sys.argv[1])
LATER = ARMED.with_suffix(".later")
_append_record, _begin_marker = CoordinatorLog.append, TransactionMarkers._begin
_now_ms = SystemClock.now_ms
_markers = 0


def reach(step: str) -> None:
    if ARMED.exists() and ARMED.read_text() == step:
        ARMED.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def step_of(batch: bytes) -> str:
    """What the coordinator is about to write."""
    for each in iter_batches(batch):
        for record in iter_records(each):
            if record.value is not None:
                written = read_value("", record.value)
                if written.is_kept:
                    return "kept record"
                return f"{written.state.name.split('_')[0].lower()} record"
    return "tombstone"


async def append_record(self: CoordinatorLog, partition: int, batch: bytes) -> None:
    is_transaction = self._topic == "__transaction_state"
    step = step_of(batch) if is_transaction else ""
    reach(step)
    await _append_record(self, partition, batch)
    if step == "ongoing record":
        reach("first batch")


async def begin_marker(self: TransactionMarkers, marker: Marker, tp: TopicPartition) -> Begun:
    global _markers
    _markers += 1
    reach(f"{('first', 'second', 'third')[min(_markers, 3) - 1]} marker")
    return await _begin_marker(self, marker, tp)


if LATER.exists():
    ahead_ms = int(LATER.read_text())
    SystemClock.now_ms = lambda self: _now_ms(self) + ahead_ms
CoordinatorLog.append = append_record
TransactionMarkers._begin = begin_marker
del sys.argv[1]
main()
