"""Keeps the imported modules of Spark's Python workers out of their garbage collections.

Spark's daemon runs a collection after every task of a worker (``pyspark/daemon.py``). It walks all objects of all
imported modules, some 50 ms of a core for pyarrow and pyspark alone: as long as the task of a small micro-batch, and
while Spark commits that batch on the same cores.
"""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"


def freeze_imports() -> None:
    """Exclude all objects that exist now from later collections (``gc.freeze``), once in a worker.

    Call it at the end of a task. It does nothing in any other process. Objects are still freed when nothing refers to
    them, but cycles among those that exist now stay as long as the process.
    """
    if not gc.get_freeze_count() and _is_worker():
        gc.collect()
        gc.freeze()


def _is_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _DAEMON
