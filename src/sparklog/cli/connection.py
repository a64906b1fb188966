"""The way from the command line to a cluster: ``--bootstrap``, ``--command-config``, errors that say what to type."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from sparklog.cli.existing import require_topics
from sparklog.cli.rights import needed
from sparklog.config.command_config import BROKERS, DEFAULT_BOOTSTRAP, ENVIRONMENT, command_settings
from sparklog.config.job_clients import COMMAND, RIGHTS, of_job
from sparklog.errors import ApiError, ConfigError, ConnectionFailed, ErrorCode, PeerSilent, SparklogError
from sparklog.structs import BrokerId, bracketed

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.cluster.config import ClientConfig
    from sparklog.client.cluster.metadata import ClusterMetadata
    from sparklog.client.zookeeper.registry import GroupRegistry
    from sparklog.zk.client import ZkClient

F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = f"{__name__}.settings"
_FILE = f"{__name__}.file"
"""Where click's context keeps a command's settings of the client."""
_AWAY = 'is it running? "sparklog up" starts one here, --bootstrap HOST:PORT names another'
_OPEN = "; for brokers that ask for TLS or SASL, --command-config FILE has the settings"
_PATIENCE_MS = "10000"
"""How long a person waits while leaders move: less than a program would."""
_SETUP_MS = "3000"
"""How long one broker may take to say hello: a frozen one accepts, and then says nothing."""

_OF_ALL = "read_uncommitted"
_ZK_SESSION_S = 10.0

TOPICS, GROUPS, TRANSACTIONAL_IDS = "topics", "groups", "transactional ids"
"""What brokers list, and leave out in silence where the user may not describe it."""

_REFUSALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
_NAMES_IT = " needs "
"""In the words of a broker that has named the right itself."""
_RIGHTS_PAGE = 'see docs/security.md, "What each request needs", and "sparklog acl list"'
_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 'see "sparklog topic list" for what there is',
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker cannot write to its log directory: free space there; its log says where",
    ErrorCode.GROUP_ID_NOT_FOUND: 'see "sparklog group list" for what there is',
    ErrorCode.NON_EMPTY_GROUP: "stop its members first, or wait until their session timeout has passed",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read it first",
    ErrorCode.LEADER_NOT_AVAILABLE: 'start the broker that has it; "sparklog topic describe" says which',
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer copies are in sync than min.insync.replicas: start their brokers",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "tokens are for those that came by SASL with a password, or by TLS"
    " with a certificate: --command-config FILE says how to",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "set delegation.token.secret.key on every broker",
    **dict.fromkeys(_REFUSALS, f"the user lacks a right: {_RIGHTS_PAGE}"),
    ErrorCode.TOPIC_ALREADY_EXISTS: 'delete it first ("sparklog topic delete"), or choose another name',
}


def advised(error: SparklogError, job: str = COMMAND) -> str:
    """What went wrong, and what the user of ``job``, or of the running command, can do about it."""
    advice = _ADVICE.get(error.code) if isinstance(error, ApiError) else None
    if is_refusal(error) and job in RIGHTS:
        advice = f"its user needs {RIGHTS[job]} (docs/security.md: What Spark needs)"
    elif is_refusal(error) and (right := needed()) and _NAMES_IT not in str(error):
        advice = f"the user needs {right}: {_RIGHTS_PAGE}"
    return f"{error}; {advice}" if advice else str(error)


def may_pass(error: SparklogError) -> bool:
    """A topic that stays unknown is gone, and what comes under its name is another."""
    from sparklog.client.cluster.retry import is_retriable

    is_gone = isinstance(error, ApiError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return is_retriable(error) and not is_gone


def is_refusal(error: SparklogError) -> bool:
    """Whether the user lacks a right."""
    return isinstance(error, ApiError) and error.code in _REFUSALS


def raise_refusal(failures: Mapping[BrokerId, SparklogError]) -> None:
    """Raise what a broker answered; one that did not answer is left to the command, which shows the others."""
    for error in failures.values():
        if isinstance(error, ApiError):
            raise error


def bootstrap_option(command: F) -> F:
    """Add ``--bootstrap`` and ``--command-config`` to a command. It has the brokers as ``bootstrap``.

    The file's settings are for the connections that ``connected`` and ``administered`` make for the command.
    """
    return click.option(
        "-b", "--bootstrap", "--bootstrap-server", envvar=BROKERS, metavar="HOST:PORT,...", callback=_take_bootstrap,
        help=f"Brokers to ask first (or set {BROKERS}).  [default: {DEFAULT_BOOTSTRAP}]",
    )(command_config_option(command))  # fmt: skip


def command_config_option(command: F) -> F:
    """Add ``--command-config`` alone; ``client_settings`` has what is in the file."""
    return click.option(
        "--command-config", type=click.Path(path_type=Path), envvar=ENVIRONMENT, metavar="FILE", is_eager=True,
        expose_value=False, callback=_take_file,
        help=f"Settings of the client: security.protocol, ssl.*, sasl.* (or set {ENVIRONMENT}).",
    )(command)  # fmt: skip


def _take_file(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    try:
        ctx.meta[_SETTINGS], ctx.meta[_FILE] = command_settings(path, None), path
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def _take_bootstrap(ctx: click.Context, _: click.Parameter, bootstrap: str | None) -> str:
    """The brokers that were named, or those in the file: it is read before."""
    if bootstrap and not ctx.resilient_parsing:
        from sparklog.client.cluster.config import parse_bootstrap

        try:
            parse_bootstrap(bootstrap)
        except ConfigError as error:
            raise click.BadParameter(str(error).removeprefix("bootstrap.servers: ")) from error
    return bootstrap or client_settings(ctx)["bootstrap.servers"]


def client_settings(ctx: click.Context | None) -> dict[str, str]:
    """What the file of a command has, by Kafka's names; nothing where there is no command."""
    return {} if ctx is None else dict(ctx.meta.get(_SETTINGS, {}))


def job_arguments(ctx: click.Context, bootstrap: str) -> list[str]:
    """What a job is told of the cluster that the command has: its brokers, and its file."""
    path = ctx.meta.get(_FILE)
    return ["--bootstrap", bootstrap, *(["--command-config", str(path)] if path is not None else [])]


def client_config(bootstrap: str, *, job: str = COMMAND, **properties: str) -> ClientConfig:
    """How ``connected`` connects; the arguments are as for it."""
    from sparklog.client.cluster.config import ClientConfig

    return ClientConfig.from_properties(client_properties(bootstrap, job=job, **properties))


def client_properties(bootstrap: str, *, job: str = COMMAND, **properties: str) -> dict[str, str]:
    """The settings of ``client_config`` by Kafka's names, for clients that have more of them."""
    return {
        "default.api.timeout.ms": _PATIENCE_MS,
        "socket.connection.setup.timeout.ms": _SETUP_MS,
        **of_job(job, client_settings(click.get_current_context(silent=True))),
        "bootstrap.servers": bootstrap,
        **{name.replace("_", "."): value for name, value in properties.items()},
    }


@contextmanager
def connected(
    bootstrap: str, topics: Collection[str] = (), *, job: str = COMMAND, **properties: str
) -> Iterator[ClusterMetadata]:
    """A cluster to talk to, as the running command's ``--command-config`` has it. ``job`` is the client id otherwise.

    ``topics`` are those that must exist: one that is missing for certain is refused at once.

    ``properties`` are Kafka's client settings with ``_`` for the dots; they count before those in the file.

    Fails at once when no broker answers, and adds to the errors of others what the user can do.
    """
    from sparklog.client.cluster.metadata import ClusterMetadata

    with ClusterMetadata(client_config(bootstrap, job=job, **properties)) as cluster:
        try:
            cluster.pool.give_back(cluster.any_broker())
            if topics:
                require_topics(cluster, topics)
            yield cluster
        except PeerSilent as error:
            raise ConnectionFailed(
                f"{error}; something listens there: a broker that is frozen (stopped by a signal, say) or has too much"
                " to do, which its log tells, or another program than a broker; --bootstrap HOST:PORT names another"
            ) from error
        except ConnectionFailed as error:
            named = {*properties, *client_settings(click.get_current_context(silent=True))}
            is_chosen = not named.isdisjoint({"security.protocol", "security_protocol"})
            raise ConnectionFailed(f"{error}; {_AWAY}{'' if is_chosen else _OPEN}") from error
        except ApiError as error:
            raise ApiError(error.code, advised(error, job)) from error


@contextmanager
def administered(
    bootstrap: str, topics: Collection[str] = (), *, job: str = COMMAND, **properties: str
) -> Iterator[Admin]:
    """A cluster to administer; the arguments and failures are as for ``connected``. A partition ends behind its last
    record, also where the file is of a consumer that reads only what is committed."""
    properties.setdefault("isolation_level", _OF_ALL)
    with connected(bootstrap, topics, job=job, **properties) as cluster, administering(cluster) as admin:
        yield admin


def say_if_partial(admin: Admin, *kinds: str, done: str = "listed") -> None:
    """Say on standard error that only some of these ``kinds`` may be ``done``: of those of which the user may not
    describe all."""
    if partial := partial_kinds(admin, *kinds):
        click.echo(f"only {' and '.join(partial)} that this user may describe are {done}", err=True)


def partial_kinds(admin: Admin, *kinds: str) -> list[str]:
    """Those of the ``kinds``, TOPICS, GROUPS and TRANSACTIONAL_IDS, of which lists may lack some: brokers leave out
    what the user may not describe, and say nothing."""
    return [each for each in kinds if _may_lack(admin, each)]


def _may_lack(admin: Admin, kind: str) -> bool:
    from sparklog.security.access import Operation

    try:
        if kind == GROUPS:  # the only ones that are listed to all who may describe the cluster
            return Operation.DESCRIBE not in admin.cluster_operations() and not admin.sees_all_groups()
        return not (admin.sees_all_topics() if kind == TOPICS else admin.sees_all_transactions())
    except SparklogError:  # what is shown is there; this is only a word about it
        return False


def check_topics(settings: Mapping[str, str], names: Collection[str], job: str) -> None:
    """See whether there are brokers and topics of these names, before Spark starts, which takes its time.

    ``settings`` are the client's, by Kafka's names, ``bootstrap.servers`` among them. Fails as ``connected`` does.
    """
    properties = {name.replace(".", "_"): text for name, text in settings.items() if name != "bootstrap.servers"}
    with administered(settings["bootstrap.servers"], names, job=job, **properties) as admin:
        admin.describe_topics(names)


def zookeeper_options(command: F) -> F:
    """Add ``--zookeeper`` and ``--zk-tls-config-file`` to a command: the arguments of ``in_zookeeper``."""
    command = click.option(
        "--zk-tls-config-file", "zookeeper_tls", type=click.Path(path_type=Path), metavar="FILE",
        help="The zookeeper.ssl.* settings for a ZooKeeper that speaks TLS; the broker's own file will do.",
    )(command)  # fmt: skip
    return click.option(
        "--zookeeper", metavar="HOST:PORT[/CHROOT]", help="Ask ZooKeeper itself: before the first start."
    )(command)


class RegistryPlace(NamedTuple):
    """Where groups in ZooKeeper are, and how their members name offsets."""

    zookeeper: str
    settings: Path | None
    layout: str


def registry_options(command: F) -> F:
    """Add ``--zookeeper``, ``--zk-tls-config-file`` and ``--layout`` to a command: its argument ``place``."""

    @wraps(command)
    def placed(*arguments: Any, zookeeper: str, zookeeper_tls: Path | None, layout: str, **named: Any) -> Any:
        return command(*arguments, place=RegistryPlace(zookeeper, zookeeper_tls, layout), **named)

    made = click.option(
        "--layout", type=click.Choice(["broker-partition", "kafka"]), default="broker-partition", show_default=True,
        help="How its members in ZooKeeper name offsets: sparklog.registry.layout.",
    )(placed)  # fmt: skip
    made = click.option(
        "--zk-tls-config-file", "zookeeper_tls", type=click.Path(path_type=Path), metavar="FILE",
        help="The zookeeper.ssl.* settings for a ZooKeeper that speaks TLS; the broker's own file will do.",
    )(made)  # fmt: skip
    made = click.option(
        "--zookeeper", required=True, metavar="HOST:PORT[/CHROOT]", help="The cluster's ZooKeeper."
    )(made)  # fmt: skip
    return cast("F", made)


@contextmanager
def group_in_zookeeper(place: RegistryPlace, group_id: str) -> Iterator[GroupRegistry]:
    """The folders of a group in ZooKeeper."""
    from sparklog.client.zookeeper.group import Layout
    from sparklog.client.zookeeper.registry import GroupRegistry
    from sparklog.config.properties import load_properties
    from sparklog.config.zookeeper_security import ZooKeeperSecurity

    security, _ = ZooKeeperSecurity.divide({} if place.settings is None else load_properties(place.settings))
    registry = GroupRegistry(
        place.zookeeper,
        group_id,
        Layout(place.layout),
        session_timeout=_ZK_SESSION_S,
        connect_timeout=_ZK_SESSION_S,
        on_session=queue.Queue[str]().put,
        security=security,
    )
    try:
        yield registry
    finally:
        registry.close()


@contextmanager
def in_zookeeper(connect: str | None, settings: Path | None = None) -> Iterator[ZkClient]:
    """ZooKeeper itself, for what is administered before a broker runs; ``settings`` is a file with zookeeper.ssl.*.

    As with Kafka's tools what is made with a certificate is its owner's: the brokers', whose subject it must have.
    """
    if not connect:
        raise click.UsageError("--zk-tls-config-file says how to speak to a ZooKeeper: say to which by --zookeeper")
    from sparklog.config.properties import load_properties
    from sparklog.config.zookeeper_security import ZooKeeperSecurity
    from sparklog.zk.client import ZkClient

    security, _ = ZooKeeperSecurity.divide({} if settings is None else load_properties(settings))
    owned = replace(security, set_acl=security.set_acl or (security.tls and bool(security.key_store)))
    zk = ZkClient(connect, session_timeout=_ZK_SESSION_S, on_session=queue.Queue[str]().put, security=owned)
    try:
        yield zk
    finally:
        zk.close()


@contextmanager
def administering(cluster: ClusterMetadata) -> Iterator[Admin]:
    """The cluster's administration; a broker that answers is asked first, not one that is frozen."""
    from sparklog.client.admin.admin import Admin

    connection = cluster.any_broker()
    cluster.pool.give_back(connection)
    host, port = connection.endpoint
    config = replace(cluster.config, bootstrap_servers=f"{bracketed(host)}:{port},{cluster.config.bootstrap_servers}")
    with Admin(config) as admin:
        yield admin
