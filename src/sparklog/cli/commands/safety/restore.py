"""``sparklog restore``: make topics of a backup."""

from __future__ import annotations

from functools import partial

import click

from sparklog.cli.connection import bootstrap_option, connected
from sparklog.cli.display import advance_bytes, counted, output_option, progress, show_json


@click.command()
@click.argument("dest")
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this one; may be repeated.")
@click.option("--to", "name", metavar="NAME", help="Another name for the one --topic.")
@click.option("--at", "number", type=click.IntRange(0), metavar="BACKUP", help="Which backup.  [default: the last]")
@click.option("--no-groups", is_flag=True, help="Leave groups' offsets as they are.")
@click.option(
    "--replication", type=click.IntRange(1, 32767), metavar="N",
    help="Copies of each partition.  [default: as many as it had, or as there are brokers]",
)  # fmt: skip
@output_option
@bootstrap_option
def restore(
    dest: str,
    topics: tuple[str, ...],
    name: str | None,
    number: int | None,
    no_groups: bool,
    replication: int | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Make topics of a backup in DEST: settings, records under the same offsets, groups' offsets.

    All of what is restored is read and checked first: if a file of it is damaged or missing, nothing is restored. A
    topic that is there is refused. The records are written into the log directories of the brokers that lead the
    partitions, so these must be visible here; the command does what it can, says what is left, and goes on where it was
    when it is given again, here or on another machine. Groups' offsets are set last; these groups must have no members.

    \b
    Examples:
      sparklog restore /backup/shop
      sparklog restore /backup/shop --topic clicks --to clicks-restored --no-groups
      sparklog restore webhdfs://namenode:9870/backup/shop --at 3
    """
    from sparklog.backup.restoring import RestoreOptions
    from sparklog.backup.restoring import restore as restore_backup
    from sparklog.storage.place import open_place

    if name is not None and len(topics) != 1:
        raise click.UsageError("--to needs the one --topic that it is for")
    names = {} if name is None else {topics[0]: name}
    options = RestoreOptions(number, topics, names, replication, not no_groups)
    place = open_place(dest)
    with connected(bootstrap) as cluster, progress("restore", None, "bytes") as advance:
        made = restore_backup(
            cluster.config,
            place,
            options,
            listener=partial(advance_bytes, advance),
            warn=lambda said: click.echo(f"warning: {said}", err=True),
        )
    if as_json:
        show_json({"backup": made.number, "topics": made.topics, "groups": made.groups})
        return
    named = ", ".join(source if source == new else f"{source} as {new}" for source, new in made.topics.items())
    click.echo(f"restored from backup {made.number}: {named}; {counted(made.groups, 'group')}")
