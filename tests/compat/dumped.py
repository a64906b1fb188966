"""Kafka's DumpLogSegments: what it prints, as values, and what it complains of."""

import re
import subprocess
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from sparklog.local.jars import jar_set
from sparklog.local.java import find_java

_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<timestamp>-?\d+) "
    r"keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+) "
    r"headerKeys: \[(?P<headers>[^\]]*)\](?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?"
)
_BATCH_FIELD = re.compile(r"(\w+): (\S+)")


class DumpedRecord(NamedTuple):
    """A record; DumpLogSegments gives the keys of the headers, not their values."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    header_keys: tuple[str, ...]


class Dumped(NamedTuple):
    """One dumped file: its batches as (name, text) fields, its records, and every line that is neither."""

    batches: list[dict[str, str]]
    records: list[DumpedRecord]
    other: list[str]


def dump(files: Iterable[Path], *options: str) -> tuple[str, list[str]]:
    """What it prints of ``files``, and its complaints: it finds faults on standard error, and exits with 0."""
    command = [str(find_java().executable), "-Xmx512m", "-cp", str(jar_set("kafka")[0].parent / "*")]
    command += ["kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files))]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if not line.startswith("log4j:")]


def by_file(text: str) -> dict[str, Dumped]:
    """File path to what was printed of it."""
    found: dict[str, Dumped] = {}
    current = Dumped([], [], [])
    for line in text.splitlines():
        if line.startswith("Dumping "):
            current = found[line.removeprefix("Dumping ")] = Dumped([], [], [])
        elif line.startswith("baseOffset: "):
            current.batches.append(dict(_BATCH_FIELD.findall(line)))
        elif line.startswith("| offset: "):
            current.records.append(_record(line))
        elif line and not line.startswith("Log starting offset: "):
            current.other.append(line)
    return found


def _record(line: str) -> DumpedRecord:
    found = _RECORD.fullmatch(line)
    assert found, f"not a record as DumpLogSegments 3.9 prints one: {line[:200]}"
    return DumpedRecord(
        int(found["offset"]),
        int(found["timestamp"]),
        _sized(found["key"], int(found["key_size"])),
        _sized(found["value"], int(found["value_size"])),
        tuple(found["headers"].split(",")) if found["headers"] else (),
    )


def _sized(text: str | None, size: int) -> bytes | None:
    """The bytes that were printed as ``text``, which must be as many as the record says; -1 for null."""
    if size < 0:
        assert text is None
        return None
    data = (text or "").encode()
    assert len(data) == size
    return data


def same_in_all(log_dirs: Iterable[Path], topic: str, partitions: int) -> list[list[str]]:
    """By partition the values in its replicas, of which the same batches and records are printed."""
    homes = list(log_dirs)
    directories = [[home / f"{topic}-{number}" for home in homes] for number in range(partitions)]
    text, complaints = dump(chain.from_iterable(map(_segments, chain(*directories))), "--print-data-log")
    assert not complaints
    values = []
    for replicas in directories:
        first, *others = (_printed_of(directory, text) for directory in replicas)
        assert first
        assert others == [first] * len(others)
        values.append(re.findall(r" payload: (.*)", "\n".join(first)))
    return values


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def _printed_of(directory: Path, text: str) -> list[str]:
    """What was printed of the batches and records in a directory, without their places in the files."""
    lines: list[str] = []
    for each in re.split(r"^Dumping ", text, flags=re.MULTILINE)[1:]:
        file, *content = each.splitlines()
        if Path(file).parent == directory:
            lines += [re.sub(r" position: \d+", "", line) for line in content if line.startswith(("base", "| offset"))]
    return lines
