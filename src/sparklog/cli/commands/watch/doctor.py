"""``sparklog doctor``: what is wrong with a cluster, and what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import administering, bootstrap_option, client_config, connected
from sparklog.cli.display import counted, output_option, printable, show_json
from sparklog.cli.numbers import WholeNumber

if TYPE_CHECKING:
    from sparklog.cli.doctor.finding import Finding

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command()
@click.option(
    "--max-lag", "lag", type=WholeNumber(0), default=100_000, show_default=True, metavar="RECORDS",
    help="How far a group may be behind.",
)  # fmt: skip
@click.option(
    "--disk", "disk_percent", type=WholeNumber(1, 100), default=85, show_default=True, metavar="PERCENT",
    help="How full a log directory's disk may be; from 95 on it is an error.",
)  # fmt: skip
@click.option(
    "--days", "certificate_days", type=WholeNumber(0), default=30, show_default=True, metavar="DAYS",
    help="How long a certificate should still be good; below 7 it is an error.",
)  # fmt: skip
@click.option(
    "--open-for", "transaction_s", type=WholeNumber(0), default=900, show_default=True, metavar="SECONDS",
    help="How long a transaction may be open; at least the brokers' transaction.max.timeout.ms.",
)  # fmt: skip
@output_option
@bootstrap_option
def doctor(as_json: bool, bootstrap: str, **limits: int) -> None:
    """Say what is wrong with the cluster, how bad it is, where, and what to type.

    It looks at brokers and controllers, partitions, log directories, settings by which records may be lost, groups,
    transactions, compaction, certificates, the brokers' readiness and clocks where they have an HTTP port, and, on a
    machine where a broker runs, at that broker's limits and the kernel's. It changes nothing. What it could not look
    at is a note.

    Exit code 0 if there is no error (warnings and notes are none), 1 if there is one, or if no broker can be reached.

    \b
    Examples:
      sparklog doctor
      sparklog doctor --max-lag 1000000 --disk 80
      sparklog doctor --output json | jq -r '.findings[] | select(.severity == "error") | .advice'
    """
    from sparklog.cli.doctor.examination import Examination, Limits, without_connection
    from sparklog.clock import SystemClock
    from sparklog.errors import AuthenticationFailed

    clock = SystemClock()
    try:
        with connected(bootstrap, isolation_level="read_uncommitted") as cluster, administering(cluster) as admin:
            findings = Examination(admin, cluster.config, clock, Limits(**limits)).run()
    except AuthenticationFailed as error:
        findings = without_connection(client_config(bootstrap), clock, error)
    if as_json:
        show_json({"findings": [each._asdict() for each in findings], "counts": _counts(findings)})
    else:
        _show(findings)
    if _counts(findings)["error"]:
        raise click.exceptions.Exit(1)


def _counts(findings: list[Finding]) -> dict[str, int]:
    return {severity: sum(each.severity == severity for each in findings) for severity in _COLOURS}


def _show(findings: list[Finding]) -> None:
    from sparklog.cli.doctor.finding import named

    for each in findings:
        where = f" ({named(each.where)})" if each.where else ""
        severity = click.style(each.severity, _COLOURS[each.severity], bold=True)
        click.echo(f"{severity}: {printable(each.what + where)}")
        click.echo(f"    {printable(each.advice)}")
    if not findings:
        click.echo("nothing is wrong")
        return
    click.echo(", ".join(counted(number, severity) for severity, number in _counts(findings).items()))
