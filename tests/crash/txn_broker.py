"""A broker that kills itself on the way through a transaction: python txn_broker.py ARMED_FILE broker ...

ARMED_FILE, once it is there, names the step before which the broker dies (and is removed then, so it dies once):
``prepare record``, ``first marker``, ``second marker``, ``complete record``.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from sparklog.broker.coordinator_log import CoordinatorLog
from sparklog.broker.txn_markers import TransactionMarkers
from sparklog.cli.main import main
from sparklog.record.records import iter_batches, iter_records
from sparklog.txn.records import read_value
from sparklog.txn.state import COMPLETION, TransactionState

ARMED = Path(sys.argv[1])
_append_record, _append_marker = CoordinatorLog.append, TransactionMarkers._append
_markers = 0


def reach(step: str) -> None:
    if ARMED.exists() and ARMED.read_text() == step:
        ARMED.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def state_in(batch: bytes) -> TransactionState | None:
    for each in iter_batches(batch):
        for record in iter_records(each):
            if record.value is not None:
                return read_value("", record.value).state
    return None


async def append_record(self: CoordinatorLog, partition: int, batch: bytes) -> None:
    if self._topic == "__transaction_state":
        state = state_in(batch)
        if state in COMPLETION:
            reach("prepare record")
        elif state in COMPLETION.values():
            reach("complete record")
    await _append_record(self, partition, batch)


async def append_marker(self: TransactionMarkers, *asked: Any) -> Any:
    global _markers
    _markers += 1
    reach("first marker" if _markers == 1 else "second marker")
    return await _append_marker(self, *asked)


CoordinatorLog.append = append_record  # type: ignore[method-assign]
TransactionMarkers._append = append_marker  # type: ignore[method-assign]
del sys.argv[1]
main()
