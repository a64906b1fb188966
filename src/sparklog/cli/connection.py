"""The way from the command line to a cluster: ``--bootstrap``, and errors that say what to type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparklog.errors import ApiError, ConnectionFailed, ErrorCode

if TYPE_CHECKING:
    from sparklog.client.admin import Admin
    from sparklog.client.metadata import ClusterMetadata

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_PATIENCE_MS = "10000"
"""How long a person waits while leaders move: less than a program would."""

_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 'see "sparklog topic list" for what there is',
    ErrorCode.TOPIC_ALREADY_EXISTS: 'delete it first ("sparklog topic delete"), or choose another name',
}


def bootstrap_option(command: F) -> F:
    """Add ``--bootstrap`` to a command."""
    return click.option(
        "-b", "--bootstrap", default=DEFAULT_BOOTSTRAP, show_default=True, envvar="SPARKLOG_BOOTSTRAP",
        metavar="HOST:PORT,...", help="Brokers to ask first (or set SPARKLOG_BOOTSTRAP).",
    )(command)  # fmt: skip


@contextmanager
def connected(bootstrap: str, **properties: str) -> Iterator[ClusterMetadata]:
    """A cluster to talk to; ``properties`` are Kafka's client settings with ``_`` for the dots.

    Fails at once when no broker answers, and adds to the errors of others what the user can do.
    """
    from sparklog.client.config import ClientConfig
    from sparklog.client.metadata import ClusterMetadata

    settings = {
        "bootstrap.servers": bootstrap,
        "default.api.timeout.ms": _PATIENCE_MS,
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    with ClusterMetadata(ClientConfig.from_properties(settings)) as cluster:
        try:
            cluster.pool.give_back(cluster.any_broker())
            yield cluster
        except ConnectionFailed as error:
            raise ConnectionFailed(
                f'{error}; is it running? "sparklog up" starts one here, --bootstrap HOST:PORT names another'
            ) from error
        except ApiError as error:
            advice = _ADVICE.get(error.code)
            raise ApiError(error.code, f"{error}; {advice}" if advice else str(error)) from error


@contextmanager
def administered(bootstrap: str) -> Iterator[Admin]:
    """A cluster to administer; fails as ``connected`` does."""
    from sparklog.client.admin import Admin

    with connected(bootstrap) as cluster, Admin(cluster.config) as admin:
        yield admin
