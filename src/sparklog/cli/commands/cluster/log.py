"""``sparklog log``: look into the files of a log directory, with or without a broker on it; move partitions of one."""

from __future__ import annotations

import json
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.connection import administered, bootstrap_option, raise_refusal
from sparklog.cli.display import (
    counted,
    done_option,
    in_words,
    json_lines_option,
    output_option,
    path_text,
    printable,
    progress,
    say_done,
    show_json,
    show_table,
)
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.paths import PathTo
from sparklog.errors import ErrorCode, SparklogError

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.log_dirs import LogDir, Replica
    from sparklog.log.inspection.dump_batches import Entry
    from sparklog.log.inspection.findings import Finding
    from sparklog.log.inspection.verify import Summary
    from sparklog.structs import BrokerId

SOUND, DAMAGED, UNREADABLE = 0, 1, 2
"""Exit codes."""

_ROW = 16
_LOOK_AGAIN_S = 0.5
_PATHS = PathTo()


@click.group(cls=GuessingGroup)
def log() -> None:
    """Look into the files of a log directory, ours or a Kafka's. Nothing is changed; a broker may be at work there.

    "dirs" and "move" ask the brokers themselves: where their partitions lie, and to have them lie elsewhere.

    \b
    Examples:
      sparklog log dirs
      sparklog log move clicks --partition 0 --broker 1 --to /disk2/sparklog
      sparklog log verify sparklog-data/broker-0
      sparklog log dump sparklog-data/broker-0/clicks-0
      sparklog log dump --records clicks-0/00000000000000000000.log
    """


@log.command(short_help="Show what segments, indexes, snapshots and checkpoints hold.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=_PATHS)
@click.option("-r", "--records", is_flag=True, help="Show the records too: keys, values, headers, markers.")
@click.option("--from-offset", type=WholeNumber(0), help="Only batches with this offset or later ones.")
@click.option("--to-offset", type=WholeNumber(0), help="Only batches with this offset or earlier ones.")
@click.option("-n", "--max-batches", type=WholeNumber(0), help="Show at most so many batches of each .log file.")
@json_lines_option
def dump(
    files: tuple[Path, ...],
    records: bool,
    from_offset: int | None,
    to_offset: int | None,
    max_batches: int | None,
    as_json: bool,
) -> int:
    """Show what FILEs hold: segments of any format, indexes, snapshots, checkpoints; of a directory, all its files.

    Fields have the names that Kafka's DumpLogSegments uses. Every CRC is checked, indexes are held against their
    segment; bytes that are no batch are shown. In text, what is not UTF-8 or not printable is escaped; in JSON, what is
    not UTF-8 is {"base64": "..."}.

    Exit code: 0 nothing wrong, 1 damage shown, 2 a file cannot be read.

    \b
    Examples:
      sparklog log dump clicks-0/00000000000000000000.log --records --from-offset 1000 --max-batches 1
      sparklog log dump clicks-0/00000000000000000000.index
      sparklog log dump --json clicks-0 | jq 'select(.kind == "batch") | .size'
    """
    from sparklog.log.inspection.dump_batches import DumpOptions
    from sparklog.record.layout import MAX_INT64

    options = DumpOptions(records, from_offset or 0, MAX_INT64 if to_offset is None else to_offset, max_batches)
    write = _write_json if as_json else _write_text
    return max([_dump(each, options, write) for each in files])


def _dump(path: Path, options: Any, write: Any) -> int:
    """Show one file or directory; returns the exit code that it deserves."""
    from sparklog.errors import LogError
    from sparklog.log.inspection.dump import dump_file, expand

    status = SOUND
    try:
        for file in expand(path):
            if write is _write_text:
                _say(f"Dumping {path_text(file)}")
            for entry in dump_file(file, options):
                write(file, entry)
                status = max(status, DAMAGED if entry.is_damage else SOUND)
    except (LogError, OSError) as failure:
        if isinstance(failure, BrokenPipeError):
            raise
        click.echo(f"sparklog: {in_words(failure)}", err=True)
        return UNREADABLE
    return status


def _say(line: str) -> None:
    """A line on standard output, not flushed: there may be millions."""
    sys.stdout.write(f"{line}\n")


def _write_json(file: Path, entry: Entry) -> None:
    _say(json.dumps({"kind": entry.kind, "file": str(file), **_jsonable(entry.fields)}))


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _jsonable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(each) for each in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    return value


def _write_text(_file: Path, entry: Entry) -> None:
    fields = dict(entry.fields)
    if entry.kind == "damage":
        good = fields["nextGood"]
        behind = "" if good is None else f"; the next good batch is at position {good}"
        _say(f"Found {fields['size']} invalid bytes at position {fields['position']}: {fields['what']}{behind}")
        _say("\n".join(_hexdump(fields["head"], fields["position"])))
        return
    if entry.kind == "problem":
        severity, what = fields.pop("severity"), fields.pop("what")
        where = "".join(f" ({name} {value})" for name, value in fields.items())
        _say(f"{severity}: {what}{where}")
        return
    if entry.kind == "record":
        headers = fields.get("headers", [])
        fields["headers"] = "[" + ",".join(f"{_text(name)}={_text(value)}" for name, value in headers) + "]"
        fields = {name: value for name, value in fields.items() if value is not None}
    line = " ".join(f"{name}: {_text(value)}" for name, value in fields.items())
    _say(f"| {line}" if entry.kind == "record" else line)


def _text(value: Any) -> str:
    """One line of printable text, whatever it is."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    return printable(str(value))


def _hexdump(data: bytes, position: int) -> list[str]:
    rows = [(at, data[at : at + _ROW]) for at in range(0, len(data), _ROW)]
    return [
        f"  {position + at:012d}  {row.hex(' '):<47}  {''.join(chr(b) if 32 <= b < 127 else '.' for b in row)}"
        for at, row in rows
    ]


@log.command(short_help="Check every file, batch, CRC and index of log directories.")
@click.argument("directories", nargs=-1, required=True, metavar="DIR...", type=_PATHS)
@click.option("-r", "--records", is_flag=True, help="Decode the records of every batch too, and count them.")
@click.option(
    "--threads", type=WholeNumber(1, 256), default=1, show_default=True, help="Check so many segments at a time."
)
@json_lines_option
def verify(directories: tuple[Path, ...], records: bool, threads: int, as_json: bool) -> int:
    """Check log directories, or single partitions' directories: every file, every batch, every CRC, every index.

    Errors and warnings are problems; a note tells what is unusual and sound, such as an index that will be rebuilt. A
    batch that is only half there is a note where a broker is at work in the directory, and an error elsewhere.

    Exit code: 0 sound, 1 problems found, 2 a directory cannot be read.

    \b
    Examples:
      sparklog log verify sparklog-data/broker-0
      sparklog log verify /var/lib/kafka/clicks-0 /var/lib/kafka/clicks-1 --threads 4
    """
    from sparklog.clock import SystemClock
    from sparklog.errors import LogError
    from sparklog.log.inspection.verify import Verification

    clock = SystemClock()
    started = clock.monotonic()
    verification = Verification(directories, records, threads)
    try:
        size = verification.prepare()
    except (LogError, OSError) as failure:
        click.echo(f"sparklog: {in_words(failure)}", err=True)
        return UNREADABLE
    with progress("verifying", size, "bytes") as advance:
        verification.advance = advance
        for finding in verification.run():
            click.echo(json.dumps(_finding_fields(finding)) if as_json else _finding_text(finding))
    seconds = max(clock.monotonic() - started, 1e-6)
    click.echo(_summary(verification.summary, seconds, as_json))
    return SOUND if verification.summary.is_sound else DAMAGED


def _finding_fields(finding: Finding) -> dict[str, Any]:
    return {
        "severity": str(finding.severity),
        "path": str(finding.path),
        "position": finding.position,
        "offset": finding.offset,
        "what": finding.what,
        "advice": finding.advice,
    }


def _finding_text(finding: Finding) -> str:
    places = (("position", finding.position), ("offset", finding.offset))
    where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
    at = f" ({where})" if where else ""
    first = f"{finding.severity}: {path_text(finding.path)}{at}: {printable(finding.what)}"
    return f"{first}\n  {printable(finding.advice)}"


def _summary(summary: Summary, seconds: float, as_json: bool) -> str:
    rate = summary.size / 1e6 / seconds
    if as_json:
        counts = {name: getattr(summary, name) for name in summary.__slots__}
        return json.dumps({"summary": {**counts, "seconds": round(seconds, 3), "megabytesPerSecond": round(rate, 1)}})
    verdict = "sound" if summary.is_sound else "PROBLEMS FOUND"
    checked = (
        counted(summary.partitions, "partition"),
        counted(summary.segments, "segment"),
        counted(summary.batches, "batch", "batches"),
        counted(summary.records, "record"),
        f"{summary.size:,} bytes in {seconds:.2f} s ({rate:,.0f} MB/s)",
    )
    found = (counted(summary.errors, "error"), counted(summary.warnings, "warning"), counted(summary.notes, "note"))
    return f"{verdict}: {', '.join(checked)}; {', '.join(found)}"


@log.command(short_help="Show the brokers' log directories, and how full they are.")
@click.option("-t", "--topic", "topics", type=TOPIC, multiple=True, help="Each replica of this topic; may be repeated.")
@output_option
@bootstrap_option
def dirs(topics: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """Show every broker's log directories: partitions, their bytes, free bytes, and what is wrong with one.

    With --topic: every replica of that topic, where it lies, and its bytes.

    \b
    Examples:
      sparklog log dirs
      sparklog log dirs --topic clicks
    """
    with administered(bootstrap, topics) as admin:
        found, failures = admin.reachable_log_dirs()
        raise_refusal(failures)
    for error in failures.values():
        click.echo(f"{error}: its directories are not shown", err=True)
    if topics:
        _show_replicas(found, topics, as_json)
        return
    columns = ["broker", "directory", "partitions", "bytes", "free", "error"]
    rows = [
        [broker, each.path, len(each.sizes), sum(each.sizes.values()), each.usable_bytes, each.error]
        for broker, directories in sorted(found.items())
        for each in sorted(directories)
    ]
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(columns, rows, right=("broker", "partitions", "bytes", "free"))


def _show_replicas(found: dict[BrokerId, list[LogDir]], topics: tuple[str, ...], as_json: bool) -> None:
    columns = ["topic", "partition", "broker", "directory", "bytes"]
    rows = sorted(
        (tp.topic, tp.partition, broker, each.path, size)
        for broker, directories in found.items()
        for each in directories
        for tp, size in each.sizes.items()
        if tp.topic in topics
    )
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(columns, rows, right=("partition", "broker", "bytes"))


@log.command(short_help="Move a broker's partitions to another of its log directories.")
@click.argument("topic", type=TOPIC)
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Which; may be repeated. Default: all.")
@click.option("--broker", type=int, required=True, help="The broker whose replicas are moved.")
@click.option("--to", "path", required=True, metavar="DIRECTORY", help='A log directory of it, as "dirs" shows it.')
@click.option("--no-wait", is_flag=True, help="Begin, and do not wait for the end.")
@done_option
@bootstrap_option
def move(topic: str, partitions: tuple[int, ...], broker: int, path: str, no_wait: bool, bootstrap: str) -> None:
    """Move the replicas of TOPIC that a broker has to another log directory of that broker, and wait for the end.

    They are served all the time. Ctrl-C ends the waiting, not the move; to name the directory where a replica lies
    cancels it. How fast it may go: replica.alter.log.dirs.io.max.bytes.per.second.

    \b
    Examples:
      sparklog log move clicks --broker 1 --to /disk2/sparklog
      sparklog log move clicks --partition 0 --broker 1 --to /disk2/sparklog --no-wait
    """
    from sparklog.client.admin.log_dirs import Replica
    from sparklog.structs import BrokerId, TopicPartition

    with administered(bootstrap, [topic]) as admin:
        found = admin.describe_topics([topic])[topic].partitions
        here = {each.partition for each in found if broker in each.replicas}
        missing = sorted(set(partitions) - here)
        if missing or not here:
            raise SparklogError(f"broker {broker} has no replica of {topic} {', '.join(map(str, missing))}".rstrip())
        replicas = [Replica(TopicPartition(topic, each), BrokerId(broker)) for each in sorted(partitions or here)]
        refused = [error for error in admin.alter_replica_log_dirs(dict.fromkeys(replicas, path)).values() if error]
        if refused:
            hint = (
                '; "sparklog log dirs" shows its directories' if refused[0].code is ErrorCode.LOG_DIR_NOT_FOUND else ""
            )
            raise SparklogError(f"{refused[0]}{hint}")
        done = {"broker": broker, "directory": path, "replicas": [each.tp._asdict() for each in replicas]}
        if no_wait:
            say_done(f"moving {counted(len(replicas), 'replica')} to {path}", moved=False, **done)
            return
        _wait_until_moved(admin, replicas, path)
    say_done(f"{counted(len(replicas), 'replica')} of broker {broker} in {path} now", moved=True, **done)


def _wait_until_moved(admin: Admin, replicas: list[Replica], path: str) -> None:
    """Raises SparklogError if one of them is not on its way any more."""
    total: int | None = None
    done = 0
    with progress("moving", len(replicas), "replicas") as advance:
        while total != 0:
            places = admin.describe_replica_log_dirs(replicas)
            for each, place in places.items():
                if path not in (place.path, place.future_path):
                    raise SparklogError(f"{each.tp} is not on its way to {path} any more; the broker's log says why")
            total = sum(place.path != path for place in places.values())
            advance(len(replicas) - total - done)
            done = len(replicas) - total
            if total:
                time.sleep(_LOOK_AGAIN_S)
