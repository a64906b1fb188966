"""``sparklog erase``: remove every record of some keys from a topic, on every replica, and prove it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.connection import administered, bootstrap_option
from sparklog.cli.display import confirm, counted, in_words, output_option, show_json, show_table
from sparklog.cli.erasure_report import (
    KnownErasure,
    default_path,
    document_of,
    read_report,
    reserved,
    write_report,
)
from sparklog.cli.internal import is_internal_topic
from sparklog.cli.key_file import SPELLINGS, read_keys
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import Number, WholeNumber
from sparklog.config.job_clients import ERASE
from sparklog.errors import SparklogError

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.erasure import ErasedReplica, ErasureProgress, ErasureReport
    from sparklog.client.admin.log_dirs import Replica

_COLUMNS = (
    "partition", "broker", "up to", "records scanned", "bytes scanned", "erased", "left", "result",
)  # fmt: skip


@click.command()
@click.argument("topic", type=TOPIC)
@click.option("--keys", "key_file", required=True, metavar="FILE", help="The keys, one a line; - reads standard input.")
@click.option(
    "--keys-as", "spelling", type=click.Choice([*SPELLINGS]), default="utf8", show_default=True,
    help="How the file spells them.",
)  # fmt: skip
@click.option(
    "-p", "--partition", "partitions", type=WholeNumber(0), multiple=True,
    help="Only this partition; may be repeated.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only search: say what there is, and erase nothing.")
@click.option(
    "--check", "checked", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="REPORT",
    help="Search again what a report is of, and compare the keys with it.",
)  # fmt: skip
@click.option(
    "--report", "report_path", type=click.Path(path_type=Path), metavar="FILE",
    help="Where the report is written, as JSON.  [default: erasure-TOPIC-TIME.json]",
)  # fmt: skip
@click.option(
    "--wait", "patience", type=Number(0), default=30.0, show_default=True, metavar="SECONDS",
    help="How long to wait for replicas that are away, lag, or have a transaction open.",
)  # fmt: skip
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@output_option
@bootstrap_option
def erase(topic: str, **options: Any) -> None:
    """Remove every record of the keys in FILE from TOPIC, for good: on every replica, in every segment.

    What is meant is all that is in the topic when the command begins: values, tombstones, records of aborted
    transactions. All other records stay as they are, with their offsets. When all replicas have erased, all are
    searched again. The report says what was looked at, with the SHA-256 of each file; "--check REPORT" searches once
    more. What is written under these keys later is another matter: first stop whoever writes it.

    Exit code 1 if a replica was not reached, or not finished in time: the report says which, and the same command again
    goes on. What lies beyond the topic (backups, what consumers have made of the records) is not covered:
    docs/erasure.md.

    \b
    Examples:
      sparklog erase users --keys forget.txt --dry-run
      sparklog erase users --keys forget.txt --report proof.json
      sparklog erase users --keys forget.txt --check proof.json
      printf '00ff17' | sparklog erase users --keys - --keys-as hex --yes --wait 600
    """
    _run(topic, _Options(**options))


@dataclass(frozen=True, slots=True)
class _Options:
    """What was given beside the topic."""

    key_file: str
    spelling: str
    partitions: tuple[int, ...]
    dry_run: bool
    checked: Path | None
    report_path: Path | None
    patience: float
    yes: bool
    as_json: bool
    bootstrap: str

    @property
    def only_searches(self) -> bool:
        return self.dry_run or self.checked is not None


def _run(topic: str, options: _Options) -> None:
    keys = read_keys(options.key_file, options.spelling)
    if options.checked is not None and (options.dry_run or options.partitions):
        raise click.UsageError("--check searches what the report is of: it takes no --dry-run and no --partition")
    known = None if options.checked is None else _compared(options.checked, topic, keys)
    path = options.report_path if options.only_searches else options.report_path or default_path(topic)
    with nullcontext() if path is None else reserved(path):
        report = _report(topic, keys, known, options)
        if path is not None:
            _write(path, report)
    _show(report, options)
    if path is not None:
        click.echo(f"the report: {path}", err=True)
    _judge(report, is_dry_run=options.dry_run)


def _report(topic: str, keys: list[bytes], known: KnownErasure | None, options: _Options) -> ErasureReport:
    """Erase, or only search, when the user has been asked."""
    with administered(options.bootstrap, [topic], job=ERASE) as admin:
        if is_internal_topic(admin.describe_topics([topic])[topic]):
            raise click.UsageError(f"{topic} is internal: nothing is erased from it")
        if not options.only_searches:
            _ask(topic, keys, options)
        return _erased(admin, topic, keys, known, options)


def _write(path: Path, report: ErasureReport) -> None:
    """Where that fails the report is shown in full: nothing else tells of what was erased."""
    try:
        write_report(path, report)
    except OSError as error:
        show_json(document_of(report))
        why = f"the report could not be written to {path}: {in_words(error)}"
        raise SparklogError(f"{why}; it is what standard output has") from error


def _compared(path: Path, topic: str, keys: list[bytes]) -> KnownErasure:
    """The report, if it is of this topic and these keys. Raises click.UsageError."""
    from sparklog.compaction.erased_keys import digest_of, pack_keys

    known = read_report(path)
    if known.topic != topic:
        raise click.UsageError(f"{path} is of topic {known.topic}, not of {topic}")
    if (known.key_count, known.keys_sha256) != (len(keys), digest_of(pack_keys(keys)).hex()):
        raise click.UsageError(
            f"{path} is of other keys: of {counted(known.key_count, 'key')} with SHA-256 {known.keys_sha256}"
        )
    return known


def _ask(topic: str, keys: list[bytes], options: _Options) -> None:
    where = f"topic {topic}"
    if options.partitions:
        where = f"partitions {', '.join(map(str, sorted(set(options.partitions))))} of {where}"
    question = f"Erase every record of {counted(len(keys), 'key')} from {where}, on every replica, for good?"
    confirm(question, yes=options.yes)


def _erased(
    admin: Admin, topic: str, keys: list[bytes], known: KnownErasure | None, options: _Options
) -> ErasureReport:
    return admin.erase(
        topic,
        keys,
        partitions=options.partitions or None,
        scan_only=options.only_searches,
        up_to=None if known is None else known.ends,
        topic_id=None if known is None else known.topic_id,
        patience=options.patience,
        listener=_say if sys.stderr.isatty() else None,
    )


def _say(progress: ErasureProgress) -> None:
    click.echo(f"{progress.replica.tp} on broker {progress.replica.broker}: {progress.what}", err=True)


def _show(report: ErasureReport, options: _Options) -> None:
    if options.as_json:
        show_json(document_of(report))
        return
    rows = [_row(replica, each, options.dry_run) for replica, each in report.replicas.items()]
    show_table(_COLUMNS, rows, right=_COLUMNS[:-1])


def _row(replica: Replica, each: ErasedReplica, is_dry_run: bool) -> list[object]:
    if each.obstacle is not None:
        result = f"not finished: {each.obstacle}"
    elif is_dry_run or each.left:
        result = f"{counted(each.left, 'record')} to erase"
    else:
        result = "nothing left"
    numbers = [each.records_scanned, each.bytes_scanned, each.erased, each.left]
    known = [None if number < 0 else number for number in numbers]
    return [replica.tp.partition, replica.broker, each.up_to_offset, *known, result]


def _judge(report: ErasureReport, *, is_dry_run: bool) -> None:
    """Raises SparklogError where what was asked for has not been done."""
    unfinished = [(replica, each) for replica, each in report.replicas.items() if each.obstacle is not None]
    if unfinished:
        replica, each = unfinished[0]
        what = counted(len(unfinished), "replica")
        raise SparklogError(
            f"{what} not finished, first {replica.tp} on broker {replica.broker}: {each.obstacle};"
            " the same command again goes on, and --wait gives it longer"
        )
    left = sum(each.left for each in report.replicas.values())
    if left and not is_dry_run:
        raise SparklogError(f"{counted(left, 'record')} of these keys left, counting every replica: erase again")
