"""``sparklog user``: who authenticates by SCRAM."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from sparklog.cli.connection import administered, bootstrap_option, in_zookeeper
from sparklog.cli.display import confirm, output_option, show_json, show_table

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.zk.client import ZkClient

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def _where(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where users are kept."""
    command = click.option(
        "--zookeeper", metavar="HOST:PORT[/CHROOT]", help="Ask ZooKeeper itself: before the first start."
    )(command)
    return bootstrap_option(command)


def _mechanisms(help_: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--mechanism", "mechanisms", multiple=True, type=click.Choice(_MECHANISMS), help=f"{help_} May be repeated."
    )


@click.group()
def user() -> None:
    """See and change the users that authenticate by SCRAM: docs/security.md.

    \b
    Examples:
      sparklog user add admin --zookeeper localhost:2181
      sparklog user add alice --password-file alice.password
      sparklog user delete alice --yes
    """


@user.command("list", short_help="Show the users that there are.")
@_where
@output_option
def list_(bootstrap: str, zookeeper: str | None, *, as_json: bool) -> None:
    """Show the users that there are, their mechanisms, and of how many iterations each is.

    \b
    Example:
      sparklog user list
    """
    with _users(bootstrap, zookeeper) as users:
        found = users.all()
    rows = [(name, mechanism, number) for name, own in sorted(found.items()) for mechanism, number in own.items()]
    if as_json:
        show_json([dict(zip(("user", "mechanism", "iterations"), row, strict=True)) for row in rows])
    else:
        show_table(["user", "mechanism", "iterations"], rows, right=["iterations"])


@user.command(short_help="Add a user, or give it a new password.")
@click.argument("name")
@_mechanisms("For this mechanism alone.")
@click.option("--iterations", type=click.IntRange(4096, 16384), default=4096, show_default=True, help="Of the hash.")
@click.option(
    "--password-file",
    type=click.File("rb"),
    metavar="FILE",
    help="Its first line is the password; - for standard input.",
)
@click.option("--password-env", metavar="NAME", help="The environment variable that has the password.")
@_where
def add(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: BinaryIO | None,
    password_env: str | None,
    bootstrap: str,
    zookeeper: str | None,
) -> None:
    """Add a user, or give it a new password. Without a file or a variable you are asked for it.

    There is no option for the password itself: whoever lists processes would see it.

    \b
    Examples:
      sparklog user add admin --zookeeper localhost:2181
      sparklog user add alice --mechanism SCRAM-SHA-512 --password-file alice.password
    """
    password = _password(name, password_file, password_env)
    with _users(bootstrap, zookeeper) as users:
        users.add(name, password, mechanisms or _MECHANISMS, iterations)
    click.echo(f"{name}: {', '.join(mechanisms or _MECHANISMS)}")


@user.command(short_help="Delete a user's password.")
@click.argument("name")
@_mechanisms("For this mechanism alone; all if none.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_where
def delete(name: str, mechanisms: tuple[str, ...], bootstrap: str, zookeeper: str | None, *, yes: bool) -> None:
    """Delete a user's password. Connections that it has stay until they end, or must authenticate again.

    \b
    Example:
      sparklog user delete alice --yes
    """
    confirm(f"Delete the password of user {name}?", yes=yes)
    with _users(bootstrap, zookeeper) as users:
        gone = mechanisms or tuple(users.all().get(name, ())) or _MECHANISMS
        users.delete(name, gone)
    click.echo(f"{name}: no {', '.join(gone)} any more")


def _password(name: str, file: BinaryIO | None, variable: str | None) -> str:
    if file is not None and variable is not None:
        raise click.UsageError("give --password-file or --password-env, not both")
    if file is None and variable is None:
        asked: str = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    if variable is not None:
        found = os.environ.get(variable, "")
    else:
        assert file is not None
        found = _text(file.readline()).rstrip("\r\n")
    if not found:
        raise click.UsageError("the password is empty")
    return found


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise click.UsageError("the password is not UTF-8") from None


class _InZooKeeper:
    """Users without a broker."""

    def __init__(self, zk: ZkClient) -> None:
        from sparklog.zk.users import scram_users

        self._zk = zk
        self.all: Callable[[], dict[str, dict[str, int]]] = lambda: zk.lasting(scram_users, zk)

    def add(self, name: str, password: str, mechanisms: tuple[str, ...], iterations: int) -> None:
        from sparklog.security.sasl.scram_credential import SCRAM_MECHANISMS
        from sparklog.zk.users import add_user

        self._zk.lasting(
            add_user, self._zk, name, password, [SCRAM_MECHANISMS[each] for each in mechanisms], iterations
        )

    def delete(self, name: str, mechanisms: tuple[str, ...]) -> None:
        from sparklog.security.sasl.scram_credential import SCRAM_MECHANISMS
        from sparklog.zk.users import delete_user

        self._zk.guarded(delete_user, self._zk, name, [SCRAM_MECHANISMS[each] for each in mechanisms])


class _ByBrokers:
    """Users of a running cluster."""

    def __init__(self, admin: Admin) -> None:
        self._alter = admin.alter_user_scram_credentials
        self.all: Callable[[], dict[str, dict[str, int]]] = admin.describe_user_scram_credentials

    def add(self, name: str, password: str, mechanisms: tuple[str, ...], iterations: int) -> None:
        from sparklog.client.admin.users import UserScramUpsertion

        self._alter([UserScramUpsertion(name, each, password, iterations) for each in mechanisms])

    def delete(self, name: str, mechanisms: tuple[str, ...]) -> None:
        from sparklog.client.admin.users import UserScramDeletion

        self._alter([UserScramDeletion(name, each) for each in mechanisms])


@contextmanager
def _users(bootstrap: str, zookeeper: str | None) -> Iterator[Any]:
    if zookeeper:
        with in_zookeeper(zookeeper) as zk:
            yield _InZooKeeper(zk)
        return
    with administered(bootstrap) as admin:
        yield _ByBrokers(admin)
