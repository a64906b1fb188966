"""``sparklog writes``: what Spark jobs that write exactly once have open, and how to finish it for dead ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import TRANSACTIONAL_IDS, administered, bootstrap_option, connected, say_if_partial
from sparklog.cli.display import (
    confirm,
    counted,
    done_option,
    output_option,
    printable_lines,
    say_done,
    show_json,
    show_table,
)
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.numbers import WholeNumber
from sparklog.errors import ApiError, DataSourceError, ErrorCode

if TYPE_CHECKING:
    from sparklog.spark.write.open_writes import OpenWrite


@click.group(cls=GuessingGroup)
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
    "--open-for", type=WholeNumber(0), default=0, metavar="SECONDS", help="Only what has been open for longer."
)
@output_option
@bootstrap_option
def list_writes(scopes: tuple[str, ...], open_for: int, as_json: bool, bootstrap: str) -> None:
    """List the open transactions of these SCOPEs, or of all; those of jobs that are at work just now are among them.

    A transaction is decided when its job has found the whole batch written: then it will be committed, and the number
    of the batch is shown. Any other is committed or aborted by its job, or aborted by "sparklog writes finish".

    \b
    Examples:
      sparklog writes list
      sparklog writes list daily-import@orders --open-for 3600
    """
    columns = ["scope", "batch", "decided", "open for s", "partition", "transactional id", "topics' partitions"]
    found = _found(scopes, open_for, bootstrap)
    if as_json:
        show_json([_document(each) for each in found])
    else:
        show_table(columns, [_row(each) for each in found], right=("batch", "open for s", "partition"))


@writes.command(short_help="Finish what dead jobs left, in these scopes or in all.")
@click.argument("scopes", nargs=-1, metavar="[SCOPE]...")
@click.option(
    "--open-for",
    type=WholeNumber(0),
    default=0,
    metavar="SECONDS",
    help="Only scopes with something open for longer.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@done_option
@bootstrap_option
def finish(scopes: tuple[str, ...], open_for: int, yes: bool, bootstrap: str) -> None:
    """Finish what dead jobs left, in these SCOPEs or in all: commit what is decided, abort the rest.

    Do so for jobs that will not be started again. One that still runs loses the batch that it is at, and fails;
    restarted, it writes that batch again. Exit code 1, and nothing is finished, where a SCOPE is none. A scope whose
    decision cannot be read is left as it is, and the others are finished; the exit code is 1 then.

    \b
    Examples:
      sparklog writes finish daily-import@orders --yes
    """
    _check_known(scopes, bootstrap)
    found = _found(scopes, open_for, bootstrap)
    names = sorted({each.scope for each in found})
    if not names:
        say_done("nothing is open")
        return
    confirm(f"Finish {counted(len(found), 'open transaction')} of {', '.join(names)}?", yes=yes)
    from sparklog.spark.write.open_writes import finish_scope

    refused: list[DataSourceError] = []
    with connected(bootstrap) as cluster:
        for name in names:
            try:
                committed, aborted = finish_scope(cluster.config, name)
            except DataSourceError as error:  # of this scope alone
                refused.append(error)
            else:
                words = f"{name}: {committed} committed, {aborted} aborted"
                say_done(words, scope=name, committed=committed, aborted=aborted)
    for each in refused[1:]:
        click.echo(f"sparklog: {printable_lines(str(each))}", err=True)
    if refused:
        raise refused[0]


@writes.command(short_help="Say which batch of a scope was the last one, where that is lost.")
@click.argument("scope")
@click.option(
    "--last-batch",
    type=WholeNumber(-1),
    required=True,
    metavar="BATCH",
    help="The last batch that counts as written; -1 for none.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@click.option("--force", is_flag=True, help="Though nothing is known of such a scope.")
@done_option
@bootstrap_option
def declare(scope: str, last_batch: int, yes: bool, force: bool, bootstrap: str) -> None:
    """Have BATCH count as the last one that SCOPE has written, with nothing of it left to commit.

    For a job that stops with an error whose message has this command, and for nothing else. After
    SPARKLOG_DECISION_LOST or SPARKLOG_DECISION_UNPROVEN the record of what it decided is gone. Then commit first what
    belongs to a batch that was written ("sparklog writes list", "sparklog txn commit"): what the scope has open
    afterwards is aborted by its next batch. The job's next batch must have a greater number, and a batch of this number
    is not written again. A SCOPE of which the cluster knows nothing is refused, since it is mostly misspelt; --force
    declares it all the same.

    \b
    Examples:
      sparklog writes declare daily-import@orders --last-batch 20261121 --yes
    """
    from sparklog.spark.write.open_writes import declare_last_batch, is_known

    if not force:
        with connected(bootstrap) as cluster, administered(bootstrap) as admin:
            if not is_known(cluster, admin, scope):
                raise _unknown([scope], "check how it is spelt, or add --force to declare it all the same")
    confirm(f"Have {last_batch} count as the last batch of {scope}?", yes=yes)
    with connected(bootstrap) as cluster:
        declare_last_batch(cluster.config, scope, last_batch)
    say_done(f"{scope}: batch {last_batch} is the last one", scope=scope, last_batch=last_batch)


def _check_known(scopes: tuple[str, ...], bootstrap: str) -> None:
    from sparklog.spark.write.open_writes import unknown_scopes

    if not scopes:
        return
    with administered(bootstrap) as admin:
        unknown = unknown_scopes(admin, scopes)
    if unknown:
        raise _unknown(unknown, "check how it is spelt")


def _unknown(scopes: list[str], advice: str) -> ApiError:
    return ApiError(
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        f"nobody has written under {', '.join(map(repr, scopes))}, or not for a long time: {advice};"
        ' "sparklog writes list" shows what is open',
    )


def _found(scopes: tuple[str, ...], open_for: int, bootstrap: str) -> list[OpenWrite]:
    from sparklog.spark.write.open_writes import open_writes

    with connected(bootstrap) as cluster, administered(bootstrap) as admin:
        found = open_writes(cluster, admin, scopes)
        say_if_partial(admin, TRANSACTIONAL_IDS)
    return [each for each in found if each.open_for_s >= open_for]


def _document(each: OpenWrite) -> dict[str, object]:
    return {
        "scope": each.scope,
        "batch": each.batch if each.is_decided else None,
        "decided": each.is_decided,
        "open_for_s": round(each.open_for_s),
        "partition": each.task,
        "transactional_id": each.transactional_id,
        "written": [tp._asdict() for tp in each.partitions],
    }


def _row(each: OpenWrite) -> list[object]:
    places = ", ".join(map(str, each.partitions))
    batch = each.batch if each.is_decided else None
    word = {True: "yes", False: "no", None: "unknown"}[each.is_decided]
    return [each.scope, batch, word, f"{each.open_for_s:.0f}", each.task, each.transactional_id, places]
