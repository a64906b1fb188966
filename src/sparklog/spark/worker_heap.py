"""Keeps what a Python worker of Spark has imported out of its garbage collections.

Spark's daemon collects after every task that a worker has done (``pyspark/daemon.py``). Beside what the task left, that
walks over all objects of all imported modules, some 50 ms of a core for pyarrow and pyspark alone: as long as the task
of a small micro-batch, and at the very time when Spark commits it on the same cores.
"""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"


def freeze_imports() -> None:
    """Once in a worker, at the end of its first task: what lives by then is not looked at again (``gc.freeze``).

    Nothing is done in any other process. Objects are still freed as soon as nothing refers to them; but cycles among
    those that live now stay for as long as the process.
    """
    if not gc.get_freeze_count() and _is_worker():
        gc.collect()
        gc.freeze()


def _is_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _DAEMON
