"""``sparklog backup``: make backups of topics, list them, read them again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import bootstrap_option, connected
from sparklog.cli.display import (
    advance_bytes,
    counted,
    moment,
    output_option,
    printable,
    progress,
    show_json,
    show_table,
)
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import Number, WholeNumber
from sparklog.config.job_clients import BACKUP
from sparklog.errors import SparklogError

if TYPE_CHECKING:
    from sparklog.backup.manifest import Backup, Backups, Unseen

_COLUMNS = ("backup", "made", "topics", "partitions", "records", "bytes", "groups", "consistent")
_RIGHT = "An administrator gives the right: sparklog acl add --allow-principal User:NAME --operation Describe"


class _Commands(GuessingGroup):
    """Takes the name of a topic where a command stands for "run"."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Commands)
def backup() -> None:
    """Back topics up while the cluster runs: records, settings, groups' offsets, as of one moment.

    "sparklog backup TOPIC... --dest DEST" makes a backup; it is short for "sparklog backup run". DEST is a directory,
    or webhdfs://NAMENODE:9870/PATH. A further backup to the same DEST copies what is new. "sparklog restore" makes
    topics of one.

    \b
    Examples:
      sparklog backup clicks users --dest /backup/shop
      sparklog backup list /backup/shop
      sparklog backup verify /backup/shop
      sparklog restore /backup/shop --topic clicks --to clicks-restored
    """


@backup.command(short_help="Back topics up.")
@click.argument("topics", type=TOPIC, nargs=-1, required=True, metavar="TOPIC...")
@click.option("--dest", required=True, metavar="DEST", help="A directory, or webhdfs://NAMENODE:9870/PATH.")
@click.option(
    "--wait", "patience", type=Number(0), default=5.0, show_default=True, metavar="SECONDS",
    help="How long to look for a moment in which no transaction ends.",
)  # fmt: skip
@click.option("--anew", is_flag=True, help="Copy everything, as after an erasure; use no file of an earlier backup.")
@output_option
@bootstrap_option
def run(topics: tuple[str, ...], dest: str, patience: float, anew: bool, as_json: bool, bootstrap: str) -> None:
    """Back the TOPICs up as they are now.

    The ends of all partitions are read at one moment: the backup has what a read_committed reader could see then.
    Groups' offsets are read just before, so a restored group reads on where it was. A run that was killed leaves
    nothing that counts, and the next one goes on where it was.

    \b
    Examples:
      sparklog backup clicks users --dest /backup/shop
      sparklog backup run list --dest webhdfs://namenode:9870/backup/shop
    """
    from sparklog.backup.making import BackupOptions, make_backup
    from sparklog.storage.place import open_place

    place = open_place(dest)
    with connected(bootstrap, topics, job=BACKUP) as cluster, progress("backup", None, "bytes") as advance:
        options = BackupOptions(topics, patience, anew=anew)
        made = make_backup(cluster.config, place, options, listener=partial(advance_bytes, advance))
    if as_json:
        show_json(_document(made.number, made.backup) | {"copied_bytes": made.copied_bytes})
    else:
        show_table(_COLUMNS, [_row(made.number, made.backup)], right=_COLUMNS[2:-1])
        copied = f"{made.copied_bytes:,} bytes were copied" if made.copied_bytes else "nothing was copied"
        click.echo(f"{copied}; what an earlier backup had was not copied again", err=True)
    for line in _warnings(made.backup.unseen):
        click.echo(printable(line), err=True)
    if not made.backup.is_consistent and not made.backup.unseen.transactions:
        click.echo(
            "transactions ended all the while: one may be in the backup in some partitions and not in others;"
            " --wait gives it longer to find a quiet moment",
            err=True,
        )


@backup.command(name="list", short_help="List the backups in a place.")
@click.argument("dest")
@output_option
def list_backups(dest: str, as_json: bool) -> None:
    """List the backups in DEST, the oldest first.

    \b
    Examples:
      sparklog backup list /backup/shop
      sparklog backup list webhdfs://namenode:9870/backup/shop --output json
    """
    found = _found(dest)
    if as_json:
        show_json([_document(number, each) for number, each in found.items()])
    else:
        show_table(_COLUMNS, [_row(number, each) for number, each in found.items()], right=_COLUMNS[2:-1])


@backup.command(short_help="Read backups again, every byte.")
@click.argument("dest")
@click.option("--at", "number", type=WholeNumber(0), metavar="BACKUP", help="Only this one.  [default: the last]")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@output_option
def verify(dest: str, number: int | None, everything: bool, as_json: bool) -> None:
    """Read the last backup in DEST again: SHA-256 of each file, CRC of each batch, the order of offsets.

    Exit code 1 if anything is damaged or missing: each such file is named.

    \b
    Examples:
      sparklog backup verify /backup/shop
      sparklog backup verify /backup/shop --all
    """
    from sparklog.backup.verifying import verify as verify_backup
    from sparklog.storage.place import open_place

    if everything and number is not None:
        raise click.UsageError("--at and --all exclude each other")
    place, problems = open_place(dest), []
    chosen = _found(dest) if everything else _chosen(dest, number)
    for at, each in chosen.items():
        with progress(f"backup {at}", each.nbytes, "bytes") as advance:
            problems += verify_backup(place, each, listener=partial(advance_bytes, advance))
    told = list(dict.fromkeys(problems))
    if as_json:
        show_json({"backups": list(chosen), "problems": told})
    for problem in () if as_json else told:
        click.echo(printable(problem))
    if told:
        raise SparklogError(f"{counted(len(told), 'file')} damaged or missing in {dest}")
    if not as_json:
        click.echo(f"{counted(len(chosen), 'backup')} whole: {', '.join(map(str, chosen))}")


def _found(dest: str) -> dict[int, Backup]:
    """Every backup there, by its number. Raises SparklogError where there is none."""
    backups = _backups(dest)
    return {number: backups.read(number) for number in backups.numbers()}


def _backups(dest: str) -> Backups:
    from sparklog.backup.manifest import Backups
    from sparklog.storage.place import open_place

    found = Backups(open_place(dest))
    if not found.numbers():
        raise SparklogError(f'there is no backup in {dest}; "sparklog backup TOPIC... --dest {dest}" makes one')
    return found


def _chosen(dest: str, number: int | None) -> dict[int, Backup]:
    """That one, or the last; no other is looked at, for it may be damaged."""
    backups = _backups(dest)
    numbers = backups.numbers()
    at = numbers[-1] if number is None else number
    if at not in numbers:
        raise SparklogError(f"there is no backup {at} in {dest}, only 0 to {numbers[-1]}")
    return {at: backups.read(at)}


def _warnings(unseen: Unseen) -> list[str]:
    """What is to be said of a backup whose user might not see everything: what may be missing, and the right for it."""
    said = []
    if unseen.refused:
        said.append(f"not in the backup: groups {', '.join(unseen.refused)}, which this user may not DESCRIBE")
    if unseen.groups:
        said.append(
            "groups that this user may not DESCRIBE are not in the backup; brokers do not tell whether there are any."
            f" {_RIGHT} --group '*'"
        )
    if unseen.transactions:
        said.append(
            "transactions that this user may not DESCRIBE may have ended meanwhile: one may be in the backup in some"
            f" partitions and not in others. {_RIGHT} --transactional-id '*'"
        )
    return [f"warning: {each}" for each in said]


def _row(number: int, backup: Backup) -> list[object]:
    return [
        number,
        moment(backup.made_ms),
        ", ".join(backup.topics),
        sum(len(each.partitions) for each in backup.topics.values()),
        _records(backup),
        backup.nbytes,
        f"{len(backup.groups)}{', not all' if backup.unseen.groups or backup.unseen.refused else ''}",
        "yes" if backup.is_consistent else "perhaps not",
    ]


def _records(backup: Backup) -> int:
    return sum(file.records for _, each in backup.partitions() for file in each.files)


def _document(number: int, backup: Backup) -> dict[str, object]:
    topics = {
        name: {
            "topic_id": str(topic.topic_id),
            "settings": topic.settings,
            "partitions": [{"start": each.start, "end": each.end} for each in topic.partitions],
        }
        for name, topic in backup.topics.items()
    }
    return {
        "backup": number,
        "made_ms": backup.made_ms,
        "cluster_id": backup.cluster_id,
        "records": _records(backup),
        "bytes": backup.nbytes,
        "is_consistent": backup.is_consistent,
        "topics": topics,
        "groups": sorted(backup.groups),
        "unseen": backup.unseen._asdict(),
    }
