"""``sparklog writes``: what Spark jobs that write exactly once have open, and how to finish it for dead ones."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import administered, bootstrap_option, connected
from sparklog.cli.display import show_table
from sparklog.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from sparklog.spark.leftovers import OpenWrite


@click.group()
def writes() -> None:
    """See what Spark jobs have written and not yet made visible, and finish it for those that died.

    Jobs that write exactly once (the default of format("sparklog")) keep what a batch writes in open transactions until
    all of it is there. One that died leaves them open, and read_committed readers wait there: start it again, or finish
    what it left.

    A SCOPE is what one job writes under: a streaming query's id, a batch write's txnAppId@topic, or else write-..., as
    "list" shows it.

    \b
    Examples:
      sparklog writes list
      sparklog writes list --open-for 3600
      sparklog writes finish 6a1c8a4e-9c67-4d3c-a1d5-0f7a7d1c5c11 --yes
    """


@writes.command("list", short_help="List what is open, in these scopes or in all.")
@click.argument("scopes", nargs=-1, metavar="[SCOPE]...")
@click.option(
    "--open-for", type=click.IntRange(0), default=0, metavar="SECONDS", help="Only what has been open for longer."
)
@bootstrap_option
def list_writes(scopes: tuple[str, ...], open_for: int, bootstrap: str) -> None:
    """List the open transactions of these SCOPEs, or of all; those of jobs that are at work just now are among them.

    A transaction is decided when its job has found the whole batch written: then it will be committed, and the number
    of the batch is shown. Any other is committed or aborted by its job, or aborted by "sparklog writes finish".

    \b
    Examples:
      sparklog writes list
      sparklog writes list daily-import@orders --open-for 3600
    """
    show_table(
        ["scope", "batch", "decided", "open for s", "partition", "transactional id", "topics' partitions"],
        [_row(each) for each in _found(scopes, open_for, bootstrap)],
        right=("batch", "open for s", "partition"),
    )


@writes.command(short_help="Finish what dead jobs left, in these scopes or in all.")
@click.argument("scopes", nargs=-1, metavar="[SCOPE]...")
@click.option(
    "--open-for",
    type=click.IntRange(0),
    default=0,
    metavar="SECONDS",
    help="Only scopes with something open for longer.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@bootstrap_option
def finish(scopes: tuple[str, ...], open_for: int, yes: bool, bootstrap: str) -> None:
    """Finish what dead jobs left, in these SCOPEs or in all: commit what is decided, abort the rest.

    Do so for jobs that nobody will start again. One that still runs loses the batch that it is at, and fails;
    restarted, it writes that batch again. Exit code 1, and nothing is finished, where a SCOPE is none.

    \b
    Examples:
      sparklog writes finish daily-import@orders --yes
    """
    _check_known(scopes, bootstrap)
    found = _found(scopes, open_for, bootstrap)
    names = sorted({each.scope for each in found})
    if not names:
        click.echo("nothing is open")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody is there to ask: add --yes")
        click.confirm(f"Finish {len(found)} open transactions of {', '.join(names)}?", abort=True)
    from sparklog.spark.leftovers import finish_scope

    with connected(bootstrap) as cluster:
        for name in names:
            committed, aborted = finish_scope(cluster.config, name)
            click.echo(f"{name}: {committed} committed, {aborted} aborted")


def _check_known(scopes: tuple[str, ...], bootstrap: str) -> None:
    from sparklog.spark.leftovers import unknown_scopes

    if not scopes:
        return
    with administered(bootstrap) as admin:
        unknown = unknown_scopes(admin, scopes)
    if unknown:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"nobody has written under {', '.join(map(repr, unknown))}, or not for a long time;"
            ' "sparklog writes list" shows what is open',
        )


def _found(scopes: tuple[str, ...], open_for: int, bootstrap: str) -> list[OpenWrite]:
    from sparklog.spark.leftovers import open_writes

    with connected(bootstrap) as cluster, administered(bootstrap) as admin:
        found = open_writes(cluster, admin, scopes)
    return [each for each in found if each.open_for_s >= open_for]


def _row(each: OpenWrite) -> list[object]:
    places = ", ".join(map(str, each.partitions))
    batch = each.batch if each.is_decided else None
    word = "yes" if each.is_decided else "no"
    return [each.scope, batch, word, f"{each.open_for_s:.0f}", each.task, each.transactional_id, places]
