"""The settings of Kafka 3.9's broker that sparklog's has no use for (``ServerConfigs.java`` and those it joins).

One that is here is somebody's working configuration: it is left out, and named once. What asks for security, or for a
cluster without ZooKeeper, is refused: a broker that left it out would be another one than its owner wants.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.config.definition import ConfigType, Definition, at_least
from sparklog.errors import ConfigError

LEFT_OUT = frozenset(
    """
    alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds auto.include.jmx.reporter
    background.threads broker.heartbeat.interval.ms broker.id.generation.enable broker.session.timeout.ms
    client.quota.callback.class controlled.shutdown.max.retries
    controlled.shutdown.retry.backoff.ms controller.socket.timeout.ms create.topic.policy.class.name
    delete.records.purgatory.purge.interval.requests
    delete.topic.enable early.start.listeners eligible.leader.replicas.enable fetch.purgatory.purge.interval.requests
    group.consumer.max.heartbeat.interval.ms
    group.consumer.max.session.timeout.ms group.consumer.min.heartbeat.interval.ms
    group.consumer.min.session.timeout.ms group.coordinator.append.linger.ms group.coordinator.new.enable
    group.coordinator.threads initial.broker.registration.timeout.ms
    kafka.metrics.polling.interval.secs kafka.metrics.reporters
    log.dir.failure.timeout.ms log.initial.task.delay.ms log.local.retention.bytes
    log.local.retention.ms metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    num.io.threads num.network.threads
    offsets.commit.required.acks offsets.commit.timeout.ms offsets.load.buffer.size offsets.topic.compression.codec
    producer.purgatory.purge.interval.requests replica.socket.receive.buffer.bytes
    request.timeout.ms reserved.broker.max.id
    server.max.startup.time.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    socket.listen.backlog.size socket.receive.buffer.bytes socket.send.buffer.bytes telemetry.max.bytes
    transaction.partition.verification.enable transaction.state.log.load.buffer.size
    unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
    zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
    zookeeper.metadata.migration.min.batch.size
    """.split()  # noqa: SIM905 (a list of this length is not read one a line)
)
LIVE: dict[str, Definition] = {
    name: Definition(name, kind, default, "Means nothing here; kept, and told of, as Kafka does.", check)
    for name, kind, default, check in (
        ("auto.include.jmx.reporter", ConfigType.BOOLEAN, True, None),
        ("background.threads", ConfigType.INT, 10, at_least(1)),
        ("metric.reporters", ConfigType.LIST, (), None),
        ("num.io.threads", ConfigType.INT, 8, at_least(1)),
        ("num.network.threads", ConfigType.INT, 3, at_least(1)),
        ("transaction.partition.verification.enable", ConfigType.BOOLEAN, True, None),
    )
}
"""Those of them that Kafka changes while it runs (``DynamicBrokerConfig``). A tool may set one here and look whether it
is set, as it does with Kafka."""
LEFT_OUT_PREFIXES = ("group.share.", "metadata.", "metrics.", "remote.", "rlmm.config.", "rsm.config.")
_SECURITY_PREFIXES = ("password.encoder.",)
_SECURITY = {
    "security.providers": "",
    "zookeeper.client.secure": "false",
}
"""Setting to the value that asks for nothing."""
CONTROL_PLANE = "control.plane.listener.name"
_WITHOUT_ZOOKEEPER = ("controller.listener.names", "controller.quorum.", "node.id", "process.roles")


def divide(properties: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The settings without those that mean nothing here, and the names of these.

    Raises ConfigError for what asks for security that is not here, and for what is of a cluster without ZooKeeper.
    """
    kept: dict[str, str] = {}
    left_out = []
    for name, text in properties.items():
        if name.startswith(_WITHOUT_ZOOKEEPER):
            raise ConfigError(
                f"{name} is of a Kafka cluster without ZooKeeper (KRaft); a broker here needs broker.id and"
                " zookeeper.connect: Kafka 3.9's config/server.properties is the file to begin with"
            )
        if _asks_for_security(name, text):
            raise ConfigError(
                f"{name}: that is not here, and whoever sets it does not want a broker without it; if one is meant,"
                " remove it"
            )
        if name == CONTROL_PLANE and text.strip():
            raise ConfigError(
                f"{name}: there is no listener for the controller alone here, and {text.strip()} would be open to"
                " clients; the controller speaks to brokers by inter.broker.listener.name: remove the setting, and"
                f" {text.strip()} from listeners, advertised.listeners and listener.security.protocol.map"
            )
        if name in LEFT_OUT or name.startswith(LEFT_OUT_PREFIXES) or name in (CONTROL_PLANE, *_SECURITY):
            left_out.append(name)
        else:
            kept[name] = text
    return kept, sorted(left_out)


def _asks_for_security(name: str, text: str) -> bool:
    if name in _SECURITY:
        return text.strip().lower() not in ("", _SECURITY[name])
    return name.startswith(_SECURITY_PREFIXES)
