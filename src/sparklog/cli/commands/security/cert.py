"""``sparklog cert``: a certificate authority of one's own, and the certificates of brokers and clients."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.display import output_option, printable, show_json
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.paths import PathTo
from sparklog.errors import ConfigError

if TYPE_CHECKING:
    from sparklog.security.certificates import CertificateAuthority, Description

_AUTHORITY = "ca"
_directory = PathTo(file_okay=False)


@click.group(cls=GuessingGroup)
def cert() -> None:
    """Make certificates for TLS, and see what is in one: docs/security.md.

    Files are PEM, as Kafka's tools, librdkafka, Python and Spark read them. A private key is in a file that only its
    owner may read.
    """


def _force_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--force", is_flag=True, help="Write over files that are there.")(command)


@cert.command()
@click.argument("directory", type=_directory)
@click.option("--name", default="sparklog CA", show_default=True, help="The authority's common name.")
@click.option("--days", type=WholeNumber(1, 36_500), default=3650, show_default=True, help="How long it is good.")
@_force_option
def ca(directory: Path, name: str, days: int, *, force: bool) -> None:
    """Make an authority: ca.pem, which everybody is given, and ca.key, which stays where it is.

    \b
    sparklog cert ca /etc/sparklog/ca
    """
    from sparklog.local.private_files import PUBLIC, write_file
    from sparklog.security.certificates import CertificateAuthority

    _make_directory(directory)
    made = CertificateAuthority.make(name, _now(), days).credential
    key, certificate = _authority_files(directory)
    if certificate.exists() and not force:
        raise ConfigError(f"{certificate} is there already, and is not written over; choose another, or --force")
    write_file(key, made.key, force=force)
    write_file(certificate, made.certificate, mode=PUBLIC, force=force)
    click.echo(f"{certificate}: give it to every broker and client\n{key}: keep it here, and safe")


@cert.command()
@click.argument("name")
@click.option("--ca", "authority", type=_directory, required=True, help="Directory of ca.pem and ca.key.")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Host name or address of a broker; may be repeated."
)
@click.option("--client", is_flag=True, help="For a client, which has no host name.")
@click.option("--out", type=_directory, default=Path(), help="Where NAME.pem goes; default: here.")
@click.option("--days", type=WholeNumber(1, 3650), default=397, show_default=True, help="How long it is good.")
@_force_option
def issue(
    name: str, authority: Path, hosts: tuple[str, ...], out: Path, days: int, *, client: bool, force: bool
) -> None:
    """Make a key and a certificate, both in NAME.pem: ssl.keystore.location, with ssl.keystore.type=PEM.

    \b
    sparklog cert issue broker-1 --ca /etc/sparklog/ca --host log1.example.org --host 10.0.0.11
    sparklog cert issue alice --ca /etc/sparklog/ca --client
    """
    from sparklog.local.private_files import write_file

    if client == bool(hosts):
        raise click.UsageError("give --host for a broker, or --client for a client")
    if Path(name).name != name or name.startswith("."):
        raise click.BadParameter(f"{name!r} is no name for a file", param_hint="NAME")
    signer = _authority(authority)
    made = signer.issue_client(name, _now(), days) if client else signer.issue_broker(name, hosts, _now(), days)
    path = out / f"{name}.pem"
    _make_directory(out)
    write_file(path, made.key_store, force=force)
    click.echo(f"{path}: {_summary(made.certificate)}")


@cert.command()
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--ca", "authority", type=_directory, required=True, help="Directory of ca.pem and ca.key.")
@click.option("--days", type=WholeNumber(1, 3650), default=397, show_default=True, help="How long it is good.")
def renew(path: Path, authority: Path, days: int) -> None:
    """Make the key and the certificate in FILE anew, for the same names, in one step.

    A broker takes the new file up while it runs.

    \b
    sparklog cert renew broker-1.pem --ca /etc/sparklog/ca
    """
    from sparklog.local.private_files import read_private, write_file

    made = _authority(authority).renew(read_private(path), _now(), days)
    write_file(path, made.key_store, force=True)
    click.echo(f"{path}: {_summary(made.certificate)}")


@cert.command()
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@output_option
def show(path: Path, *, as_json: bool) -> None:
    """Say whose the certificates in FILE are, by which names, and until when. A private key in it is not looked at."""
    from sparklog.security.certificates import describe

    try:
        found = describe(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if as_json:
        show_json([_fields(each) for each in found])
        return
    for description in found:
        for name, value in _fields(description).items():
            shown = ", ".join(value) if isinstance(value, list) else str(value)
            click.echo(f"{name.replace('_', ' '):<12} {printable(shown)}")


def _fields(found: Description) -> dict[str, Any]:
    return {
        "subject": found.subject,
        "issuer": found.issuer,
        "names": list(found.names),
        "for": ["authority"] if found.is_authority else list(found.usages),
        "from": found.not_before.isoformat(),
        "until": found.not_after.isoformat(),
        "days_left": (found.not_after - _now()).days,
        "serial": found.serial,
        "sha256": found.fingerprint,
    }


def _summary(certificate: bytes) -> str:
    from sparklog.security.certificates import describe

    found = describe(certificate)[0]
    return f"{found.subject}, for {', '.join(found.names or found.usages)}, until {found.not_after:%Y-%m-%d}"


def _authority_files(directory: Path) -> tuple[Path, Path]:
    return directory / f"{_AUTHORITY}.key", directory / f"{_AUTHORITY}.pem"


def _authority(directory: Path) -> CertificateAuthority:
    from sparklog.local.private_files import read_private
    from sparklog.security.certificates import CertificateAuthority, Credential

    key, certificate = _authority_files(directory)
    try:
        return CertificateAuthority(Credential(read_private(key), certificate.read_bytes()))
    except OSError as error:
        raise ConfigError(f"cannot read {certificate}: {error.strerror}; make it with: sparklog cert ca") from error


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {directory}: {error.strerror}") from error


def _now() -> datetime:
    from sparklog.clock import SystemClock
    from sparklog.security.certificates import utc_now

    return utc_now(SystemClock().now_ms())
