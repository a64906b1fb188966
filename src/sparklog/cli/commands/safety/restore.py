"""``sparklog restore``: make topics of a backup."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.connection import bootstrap_option, connected
from sparklog.cli.display import advance_bytes, counted, output_option, printable, progress, show_json
from sparklog.cli.numbers import Copies, WholeNumber
from sparklog.config.job_clients import RESTORE
from sparklog.errors import ConfigError

if TYPE_CHECKING:
    from sparklog.backup.restoring import Restored, RestoreOptions


@click.command()
@click.argument("dest", required=False)
@click.option("--from-table", "table", metavar="TABLE", help="A Delta table of an offload, in place of a backup.")
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this one; may be repeated.")
@click.option("--to", "name", metavar="NAME", help="Another name for the one --topic.")
@click.option("--at", "number", type=WholeNumber(0), metavar="BACKUP", help="Which backup.  [default: the last]")
@click.option("--no-groups", is_flag=True, help="Leave groups' offsets as they are.")
@click.option(
    "--replication", "--replication-factor", type=Copies(), metavar="N",
    help="Copies of each partition.  [default: as many as it had, or as there are brokers]",
)  # fmt: skip
@output_option
@bootstrap_option
def restore(dest: str | None, table: str | None, as_json: bool, bootstrap: str, **wanted: Any) -> None:
    """Make topics of a backup in DEST: settings, records under the same offsets, groups' offsets.

    All of what is restored is read and checked first: if a file of it is damaged or missing, nothing is restored. A
    topic that is there is refused. The records are written into the log directories of the brokers that lead the
    partitions, so these must be visible here; the command does what it can, says what is left, and goes on where it was
    when it is given again, here or on another machine. Groups' offsets are set last; these groups must have no members.

    With --from-table the records are those of a raw table that "sparklog offload" has written, under the same offsets;
    a table has no settings and no groups. A topic that is there is filled if it is empty: make it first to choose its
    settings.

    \b
    Examples:
      sparklog restore /backup/shop
      sparklog restore /backup/shop --topic clicks --to clicks-restored --no-groups
      sparklog restore webhdfs://namenode:9870/backup/shop --at 3
      sparklog restore --from-table /data/clicks --topic clicks
    """
    if (dest is None) == (table is None):
        raise click.UsageError("say where from: DEST, or --from-table TABLE")
    if table is not None and (wanted["number"] is not None or wanted["no_groups"]):
        raise click.UsageError("--at and --no-groups mean nothing with --from-table: a table has no groups")
    options = _options(**wanted)
    run = _from_backup(dest) if table is None else _from_table(table)
    with connected(bootstrap, job=RESTORE) as cluster, progress("restore", None, "bytes") as advance:
        made = run(
            cluster.config,
            options,
            listener=partial(advance_bytes, advance),
            warn=lambda said: click.echo(f"warning: {printable(said)}", err=True),
        )
    if as_json:
        show_json({"backup": made.number, "topics": made.topics, "groups": made.groups})
        return
    named = ", ".join(source if source == new else f"{source} as {new}" for source, new in made.topics.items())
    if table is not None:
        click.echo(f"restored from table {table}: {named}")
    else:
        click.echo(f"restored from backup {made.number}: {named}; {counted(made.groups, 'group')}")


def _options(
    topics: tuple[str, ...], name: str | None, number: int | None, no_groups: bool, replication: int | None
) -> RestoreOptions:
    from sparklog.backup.restoring import RestoreOptions

    if name is not None and len(topics) != 1:
        raise click.UsageError("--to needs the one --topic that it is for")
    names = {} if name is None else {topics[0]: name}
    return RestoreOptions(number, topics, names, replication, not no_groups)


def _from_backup(dest: str | None) -> Callable[..., Restored]:
    from sparklog.backup.restoring import restore as restore_backup
    from sparklog.storage.place import open_place

    assert dest is not None
    place = open_place(dest)
    return lambda config, options, **more: restore_backup(config, place, options, **more)


def _from_table(table: str) -> Callable[..., Restored]:
    from sparklog.local.extras import install_line

    try:
        from sparklog.backup.table_restore import restore_table
    except ImportError as error:
        line = install_line("spark")
        raise ConfigError(f"--from-table needs the packages of Spark and Delta; type: {line}") from error
    return lambda config, options, **more: restore_table(config, table, options, **more)
