"""``sparklog token``: delegation tokens, which let a client in without its owner's password."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.connection import administered, bootstrap_option, client_settings
from sparklog.cli.display import confirm, done_option, moment, output_option, say_done, show_json, show_table
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.numbers import WholeNumber

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin, DelegationToken

_COLUMNS = ("token", "owner", "requester", "renewers", "issued", "expires", "lasts until")
_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")


def _period(help_: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--period-ms", type=WholeNumber(0), metavar="MS", help=help_)


@click.group(cls=GuessingGroup)
def token() -> None:
    """Delegation tokens: what a program is given in place of its owner's password. See docs/security.md.

    Brokers give them to clients that came by SASL with a password, or by TLS with a certificate: --command-config says
    how. A token is named by its id; its secret is never an argument, for whoever lists processes would see it.

    \b
    Examples:
      sparklog token create --out job.properties --lifetime-ms 86400000
      sparklog topic list --command-config job.properties
      sparklog token describe
      sparklog token renew 4nXQ0RZlTxyBqcYc3z1tRw
      sparklog token expire 4nXQ0RZlTxyBqcYc3z1tRw --yes
    """


@token.command(short_help="Ask for a token.")
@click.option("--owner", metavar="User:NAME", help="The user that it lets in; you, if it is not given.")
@click.option(
    "--renewer", "renewers", multiple=True, metavar="User:NAME", help="A user that may renew it too. May be repeated."
)
@click.option("--lifetime-ms", type=WholeNumber(1), metavar="MS", help="How long it may last, renewed or not.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write a client's settings that use it.")
@click.option("--force", is_flag=True, help="Write over FILE.")
@click.option(
    "--mechanism", type=click.Choice(_MECHANISMS), default=_MECHANISMS[0], show_default=True, help="For FILE."
)
@output_option
@bootstrap_option
@click.pass_context
def create(
    ctx: click.Context,
    /,
    lifetime_ms: int | None,
    out: Path | None,
    mechanism: str,
    bootstrap: str,
    *,
    force: bool,
    as_json: bool,
    **whose: Any,
) -> None:
    """Ask for a token, and show it with its secret; with --out write the secret to a file that only you can read.

    The file is a --command-config of its own: the brokers, and what TLS needs, are as in the one of this command.

    \b
    Examples:
      sparklog token create --out job.properties
      sparklog token create --owner User:alice --renewer User:scheduler --lifetime-ms 604800000 --output json
    """
    with administered(bootstrap) as admin:
        made = admin.create_delegation_token(max_lifetime_ms=lifetime_ms or -1, **whose)
        if out is None:
            _show([made], as_json=as_json, with_secret=True)
            return
        settings = client_settings(ctx) | {"bootstrap.servers": bootstrap}
        try:
            _write(out, dict(_with(made, mechanism, settings)), force=force)
        except BaseException:
            admin.expire_delegation_token(made.hmac)
            raise
    if as_json:
        show_json({"file": str(out), "token": made.token_id, "owner": made.owner, "expires_ms": made.expires_ms})
    else:
        click.echo(f"{out}: token {made.token_id} of {made.owner}, until {moment(made.expires_ms)}")


@token.command(short_help="Show tokens.")
@click.argument("ids", nargs=-1, metavar="[TOKEN...]")
@click.option("--owner", "owners", multiple=True, metavar="User:NAME", help="Those that concern it. May be repeated.")
@output_option
@bootstrap_option
def describe(ids: tuple[str, ...], owners: tuple[str, ...], bootstrap: str, *, as_json: bool) -> None:
    """Show the tokens that you may see, without their secrets: your own, those that you may renew or have asked for,
    and those that you may describe.

    \b
    Examples:
      sparklog token describe
      sparklog token describe --owner User:alice --output json
    """
    with administered(bootstrap) as admin:
        found = [_found(admin, each) for each in ids] or admin.describe_delegation_tokens(owners or None)
    _show(found, as_json=as_json)


@token.command(short_help="Let a token last longer.")
@click.argument("token_id", metavar="TOKEN")
@_period("For how long from now on; as long as brokers do by themselves, if it is not given.")
@done_option
@bootstrap_option
def renew(token_id: str, period_ms: int | None, bootstrap: str) -> None:
    """Let a token last longer, up to what it may last at all. Its owner may, and its renewers.

    \b
    Example:
      sparklog token renew 4nXQ0RZlTxyBqcYc3z1tRw
    """
    with administered(bootstrap) as admin:
        period = -1 if period_ms is None else period_ms
        expires_ms = admin.renew_delegation_token(_found(admin, token_id).hmac, period)
    say_done(f"{token_id}: until {moment(expires_ms)}", token=token_id, expires_ms=expires_ms)


@token.command(short_help="Let a token end.")
@click.argument("token_id", metavar="TOKEN")
@_period("After this time; at once, if it is not given.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@done_option
@bootstrap_option
def expire(token_id: str, period_ms: int | None, bootstrap: str, *, yes: bool) -> None:
    """Let a token end: connections that came by it are closed. Its owner may, and its renewers.

    \b
    Example:
      sparklog token expire 4nXQ0RZlTxyBqcYc3z1tRw --yes
    """
    confirm(f"Let token {token_id} end?", yes=yes)
    with administered(bootstrap) as admin:
        period = -1 if period_ms is None else period_ms
        ends_ms = admin.expire_delegation_token(_found(admin, token_id).hmac, period)
    words = f"{token_id}: ended" if period_ms is None else f"{token_id}: until {moment(ends_ms)}"
    say_done(words, token=token_id, expires_ms=ends_ms)


def _found(admin: Admin, token_id: str) -> DelegationToken:
    """The token of this id. Raises ApiError where there is none that we may see."""
    from sparklog.errors import ApiError, ErrorCode

    for each in admin.describe_delegation_tokens():
        if each.token_id == token_id:
            return each
    raise ApiError(
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        f'you may see no token {token_id}; "sparklog token describe" says which you may',
    )


def _with(made: DelegationToken, mechanism: str, settings: dict[str, str]) -> Iterator[tuple[str, str]]:
    """A client's settings that use the token, in place of the credentials that these have."""
    for name, value in settings.items():
        if not name.startswith(("sasl.", "ssl.key")) and name != "security.protocol":
            yield name, value
    yield (
        "security.protocol",
        "SASL_SSL" if "SSL" in settings.get("security.protocol", "").upper() else "SASL_PLAINTEXT",
    )
    yield "sasl.mechanism", mechanism
    yield "sasl.jaas.config", made.jaas_config(mechanism)


def _write(out: Path, settings: dict[str, str], *, force: bool) -> None:
    """Raises ConfigError."""
    from sparklog.config.properties import format_properties
    from sparklog.local.private_files import write_file

    write_file(out, format_properties(settings).encode(), force=force)


def _show(tokens: list[DelegationToken], *, as_json: bool, with_secret: bool = False) -> None:
    columns = [*_COLUMNS, *(["hmac"] if with_secret else [])]
    rows = [[*_row(each), *([each.password] if with_secret else [])] for each in tokens]
    if as_json:
        names = [each.replace(" ", "_") for each in columns]
        show_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show_table(columns, rows)


def _row(each: DelegationToken) -> list[str]:
    moments = [moment(ms) for ms in (each.issued_ms, each.expires_ms, each.max_ms)]
    return [each.token_id, each.owner, each.requester, ",".join(each.renewers), *moments]
