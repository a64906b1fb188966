"""A home of Spark for tests, whose Python workers start in a fraction of the processor time.

An installed PySpark gives its workers an archive of its source to import it from, and each process compiles that anew:
0.7 s of a core. And Spark's daemon, which forks the workers, imports next to nothing before it does: each worker
imports the rest of PySpark, Arrow and sparklog for itself, 0.6 s. A run of all tests starts some two hundred of them.

This home is the installed one, file by file, but for the archives: the workers import the same PySpark from where it is
installed. Where they would be is a module that Python runs at its start (``sitecustomize``): of a daemon it imports
what the workers will.

Invariant: a worker runs the same code. It differs in its ``__file__``\\ s, and in when it imports.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sparklog.local.jars import pyspark_jars

_ARCHIVE = Path("python", "lib", "pyspark.zip")
"""Spark puts it at the front of its workers' path, whatever it is; here a directory."""
_AT_START = """\
import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    from sparklog.testing.spark_home import import_for_workers

    import_for_workers(sys.orig_argv[3:4])
"""
_OF_ALL = (
    "pyspark.sql.worker.plan_data_source_read",
    "sparklog.spark.source",
    "sparklog.spark.read.batch_reader",
    "sparklog.spark.read.direct",
    "sparklog.spark.stream.reader",
    "sparklog.spark.write.writer",
    "sparklog.spark.write.attempt",
)
"""What most workers import; it imports the rest."""


def make_spark_home(directory: Path) -> Path:
    """Make it in ``directory``, which is there and empty, and return it: the value of ``SPARK_HOME``."""
    for each in pyspark_jars().parent.iterdir():
        if each.name != _ARCHIVE.parts[0]:
            (directory / each.name).symlink_to(each)
    start = directory / _ARCHIVE / "sitecustomize.py"
    start.parent.mkdir(parents=True)
    start.write_text(_AT_START)
    return directory


def import_for_workers(modules: Sequence[str]) -> None:
    """In a daemon: ``modules`` are those that its workers run.

    What cannot be imported is left to the workers, which say so. The daemon forks: numpy's library of linear algebra is
    told to start no threads, and Python does not warn of the one of Arrow's allocator, which is prepared for a fork.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork", DeprecationWarning)
    for each in (*modules, *_OF_ALL):
        with suppress(ImportError):
            importlib.import_module(each)
