"""Which modules are compiled by mypyc, and whether their compiled form may be used.

They are the broker's path of a Produce and a Fetch, and a record's way into the producer's batches. Each stays a Python
module like any other, and is read as one where it cannot be compiled. ``setup.py`` takes the list from here.

Invariants: all of them are used compiled or none, for compiled modules call each other without looking at what Python
would find; none where the record codec is not compiled. Compiled code older than its source is never used; of an
installed package it is as old as the end of the installation, for installers write files in any order, and RECORD last.
``SPARKLOG_IMPL=python`` chooses the source, for these modules as for the record codec (``record/_impl``); ``native``
insists on the compiled form.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

VARIABLE: Final = "SPARKLOG_IMPL"

GROUPS: Final = {
    "sparklog_store": (
        "sparklog.log.durability",
        "sparklog.log.file_records",
        "sparklog.log.log",
        "sparklog.log.producer_state",
        "sparklog.log.segment",
        "sparklog.log.segments",
        "sparklog.log.validator",
        "sparklog.record.batch",
        "sparklog.record.records",
        "sparklog.replica.caught_up_state",
        "sparklog.replica.manager",
        "sparklog.replica.partition",
        "sparklog.replica.purgatory",
        "sparklog.replica.traffic",
    ),
    "sparklog_serve": (
        "sparklog.broker.apis.records.fetch",
        "sparklog.broker.apis.records.produce",
        "sparklog.broker.dispatch",
        "sparklog.broker.fetch_sessions",
        "sparklog.net.channel",
        "sparklog.net.request_meter",
        "sparklog.net.slow_requests",
        "sparklog.protocol.connection",
        "sparklog.protocol.frame",
        "sparklog.protocol.hot.fetch",
        "sparklog.protocol.hot.produce",
        "sparklog.protocol.wire",
    ),
    "sparklog_send": (
        "sparklog.client.producer.accumulator",
        "sparklog.client.producer.appender",
        "sparklog.client.producer.batch",
        "sparklog.client.producer.router",
    ),
}
"""Modules by the library that they are compiled into: two of about the same size, so that two cores can share the work,
and a small one.

What is a named tuple, an enumeration or an asynchronous generator in the main cannot be compiled well.
"""
MODULES: Final = tuple(name for modules in GROUPS.values() for name in modules)
CODEC: Final = "sparklog.record._impl._codec"
"""The record codec, which is written in Cython. It has a Python form too, and ``record/_impl`` chooses between them."""

NOTHING: Final = "it was built without a C compiler, or not built at all"
"""Why a form is not compiled of which there is no part."""

_SOURCES: Final = Path(__file__).parent.parent


def source_of(module: str) -> Path:
    """Where the source of ``module`` is, below the directory of all."""
    return Path(*module.split(".")).with_suffix(".py")


def why_not(root: Path = _SOURCES) -> str | None:
    """Why the compiled form below ``root`` may not be used; None if it may."""
    suffix = next((each for each in EXTENSION_SUFFIXES if "-" in each), EXTENSION_SUFFIXES[0])
    binaries = {
        name: (root / source_of(name)).with_suffix(suffix)
        for name in (CODEC, *(f"{group}__mypyc" for group in GROUPS), *MODULES)
    }
    missing = [name for name, binary in binaries.items() if not binary.exists()]
    if missing:
        return f"{missing[0]} is not compiled" if len(missing) < len(binaries) else NOTHING
    installed_at = _installed_at(root)
    for name in MODULES:
        if max(binaries[name].stat().st_mtime, installed_at) < (root / source_of(name)).stat().st_mtime:
            return f"{name} has changed since it was compiled"
    return None


def _installed_at(root: Path) -> float:
    """When an installer had written all below ``root``, in seconds; 0 where none has."""
    return max((each.stat().st_mtime for each in root.glob("sparklog-*.dist-info/RECORD")), default=0.0)


class _FromSource:
    """Finds the source of the modules of the list, which would otherwise be found in their compiled form."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        from importlib.util import spec_from_file_location  # not for every import of this package

        source = _SOURCES / source_of(fullname)
        return spec_from_file_location(fullname, source) if source.exists() else None


def choose(wanted: str | None) -> str | None:
    """Have the modules imported in the form that is ``wanted``, by default compiled where that may be used.

    Returns why they are not compiled, None if they are. Raises ImportError if ``native`` is wanted and cannot be had.
    """
    reason = f"{VARIABLE}=python" if wanted == "python" else why_not()
    if reason is None:
        return None
    if wanted == "native":
        raise ImportError(f"{VARIABLE}=native, but {reason}; build it with 'python setup.py build_ext --inplace'")
    sys.meta_path.insert(0, _FromSource())
    return reason


if __name__ == "__main__":  # for the Makefile, before anything is installed
    sys.stdout.write(" ".join(str(source_of(name)) for name in MODULES))
