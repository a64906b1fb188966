"""``sparklog user``: who authenticates by SCRAM."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from getpass import GetPassWarning
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import click

from sparklog.cli.connection import administered, bootstrap_option, in_zookeeper, zookeeper_options
from sparklog.cli.display import confirm, done_option, output_option, say_done, show_json, show_table
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.numbers import WholeNumber
from sparklog.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.zk.client import ZkClient

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_SEEN = (
    "a password on the command line is seen by everybody who lists processes: choose another one now; leave it out to"
    " be asked for it, or give --password-file FILE (- for standard input)"
)


class _Where(NamedTuple):
    """Where users are kept."""

    bootstrap: str
    zookeeper: str | None
    zookeeper_tls: Path | None


def _where(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where users are kept."""
    return bootstrap_option(zookeeper_options(command))


def _mechanisms(help_: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--mechanism", "mechanisms", multiple=True, type=click.Choice(_MECHANISMS), help=f"{help_} May be repeated."
    )


def _refuse(_: click.Context, __: click.Parameter, password: str | None) -> None:
    if password is not None:
        raise click.UsageError(_SEEN)


def _password_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the password is."""
    command = click.option("--password", hidden=True, expose_value=False, callback=_refuse)(command)
    return click.option(
        "--password-file",
        type=click.File("rb"),
        metavar="FILE",
        help="Its first line is the password; - for standard input. Without it you are asked.",
    )(command)


@click.group(cls=GuessingGroup)
def user() -> None:
    """See and change the users that authenticate by SCRAM: docs/security.md.

    \b
    Examples:
      sparklog user add admin --zookeeper localhost:2181
      sparklog user add alice --password-file alice.password
      sparklog user set-password alice
      sparklog user delete alice --yes
    """


@user.command("list", short_help="Show the users that there are.")
@_where
@output_option
def list_(*, as_json: bool, **where: Any) -> None:
    """Show the users that there are, their mechanisms, and of how many iterations each is.

    \b
    Example:
      sparklog user list
    """
    with _users(_Where(**where)) as users:
        found = users.all()
    rows = [(name, mechanism, number) for name, own in sorted(found.items()) for mechanism, number in own.items()]
    if as_json:
        show_json([dict(zip(("user", "mechanism", "iterations"), row, strict=True)) for row in rows])
    else:
        show_table(["user", "mechanism", "iterations"], rows, right=["iterations"])


@user.command(short_help="Add a user.")
@click.argument("name")
@_mechanisms("For this mechanism; both if none is said.")
@click.option("--iterations", type=WholeNumber(4096, 16384), default=4096, show_default=True, help="Of the hash.")
@_password_options
@done_option
@_where
def add(name: str, mechanisms: tuple[str, ...], iterations: int, password_file: BinaryIO | None, **where: Any) -> None:
    """Add a user, or a mechanism to one that there is. What a user has already is not changed.

    \b
    Examples:
      sparklog user add admin --zookeeper localhost:2181
      sparklog user add alice --mechanism SCRAM-SHA-512 --password-file alice.password
    """
    wanted = mechanisms or _MECHANISMS
    with _users(_Where(**where)) as users:
        if there := [each for each in wanted if each in users.of(name)]:
            advice = f'"sparklog user set-password {name}" gives it another password'
            raise ApiError(ErrorCode.DUPLICATE_RESOURCE, f"user {name!r} has {', '.join(there)} already; {advice}")
        users.set_password(name, _password(name, password_file), dict.fromkeys(wanted, iterations))
    say_done(f"{name}: {', '.join(wanted)}", user=name, added=wanted)


@user.command(short_help="Give a user another password.")
@click.argument("name")
@_mechanisms("For this mechanism; all that the user has if none is said.")
@click.option("--iterations", type=WholeNumber(4096, 16384), help="Of the hash; as before if not said.")
@_password_options
@done_option
@_where
def set_password(
    name: str, mechanisms: tuple[str, ...], iterations: int | None, password_file: BinaryIO | None, **where: Any
) -> None:
    """Give a user that there is another password. The next authentication needs it; connections stay.

    \b
    Example:
      sparklog user set-password alice
    """
    with _users(_Where(**where)) as users:
        found = users.of(name)
        changed = {each: iterations or found[each] for each in mechanisms or found if each in found}
        if not changed or any(each not in found for each in mechanisms):
            advice = f'"sparklog user add {name}" adds it, "sparklog user list" shows who there is'
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND, f"user {name!r} has no password for {_said(mechanisms)}; {advice}"
            )
        users.set_password(name, _password(name, password_file), changed)
    say_done(f"{name}: {', '.join(changed)}", user=name, changed=[*changed])


@user.command(short_help="Delete a user's password.")
@click.argument("name")
@_mechanisms("For this mechanism; all that the user has if none is said.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@done_option
@_where
def delete(name: str, mechanisms: tuple[str, ...], *, yes: bool, **where: Any) -> None:
    """Delete a user's password. Connections that it has stay until they end, or must authenticate again.

    \b
    Example:
      sparklog user delete alice --yes
    """
    confirm(f"Delete the password of user {name}?", yes=yes)
    with _users(_Where(**where)) as users:
        gone = mechanisms or tuple(users.of(name)) or _MECHANISMS
        users.delete(name, gone)
    say_done(f"{name}: no {', '.join(gone)} any more", user=name, deleted=gone)


def _said(mechanisms: tuple[str, ...]) -> str:
    return ", ".join(mechanisms) or "SCRAM"


def _password(name: str, file: BinaryIO | None) -> str:
    """Raises UsageError for an empty one, and where there is no terminal to ask at."""
    if file is None:
        return _typed(f"Password of {name}")
    found = _text(file.readline()).rstrip("\r\n")
    if not found:
        raise click.UsageError("the password is empty")
    return found


def _typed(question: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)  # it would show what is typed
        try:
            typed: str = click.prompt(question, hide_input=True, confirmation_prompt=True, err=True)
        except GetPassWarning:
            raise click.UsageError("no terminal to ask at: give --password-file FILE (- for standard input)") from None
    return typed


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise click.UsageError("the password is not UTF-8") from None


class _Users(Protocol):
    """The users, wherever they are kept; what they have is how many iterations each mechanism takes."""

    def all(self) -> Mapping[str, Mapping[str, int]]: ...

    def of(self, name: str) -> Mapping[str, int]: ...

    def set_password(self, name: str, password: str, iterations: Mapping[str, int]) -> None: ...

    def delete(self, name: str, mechanisms: tuple[str, ...]) -> None: ...


class _InZooKeeper:
    """Users without a broker."""

    def __init__(self, zk: ZkClient) -> None:
        from sparklog.security.sasl.scram_credential import SCRAM_MECHANISMS
        from sparklog.zk import users

        self._zk, self._stored, self._mechanisms = zk, users, SCRAM_MECHANISMS

    def all(self) -> Mapping[str, Mapping[str, int]]:
        return self._zk.lasting(self._stored.scram_users, self._zk)

    def of(self, name: str) -> Mapping[str, int]:
        return self._zk.lasting(self._stored.iterations_of, self._zk, name)

    def set_password(self, name: str, password: str, iterations: Mapping[str, int]) -> None:
        numbers = {self._mechanisms[each]: number for each, number in iterations.items()}
        self._zk.lasting(self._stored.set_password, self._zk, name, password, numbers)

    def delete(self, name: str, mechanisms: tuple[str, ...]) -> None:
        self._zk.guarded(self._stored.delete_password, self._zk, name, [self._mechanisms[each] for each in mechanisms])


class _ByBrokers:
    """Users of a running cluster."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def all(self) -> Mapping[str, Mapping[str, int]]:
        return self._admin.describe_user_scram_credentials()

    def of(self, name: str) -> Mapping[str, int]:
        try:
            return self._admin.describe_user_scram_credentials([name])[name]
        except ApiError as error:
            if error.code == ErrorCode.RESOURCE_NOT_FOUND:
                return {}
            raise

    def set_password(self, name: str, password: str, iterations: Mapping[str, int]) -> None:
        from sparklog.client.admin.users import UserScramUpsertion

        changes = [UserScramUpsertion(name, each, password, number) for each, number in iterations.items()]
        self._admin.alter_user_scram_credentials(changes)

    def delete(self, name: str, mechanisms: tuple[str, ...]) -> None:
        from sparklog.client.admin.users import UserScramDeletion

        self._admin.alter_user_scram_credentials([UserScramDeletion(name, each) for each in mechanisms])


@contextmanager
def _users(where: _Where) -> Iterator[_Users]:
    if where.zookeeper or where.zookeeper_tls:
        with in_zookeeper(where.zookeeper, where.zookeeper_tls) as zk:
            yield _InZooKeeper(zk)
        return
    with administered(where.bootstrap) as admin:
        yield _ByBrokers(admin)
