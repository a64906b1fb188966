"""The settings of a broker: Kafka 3.9's names, as in a ``server.properties`` file."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property

from sparklog.config.definition import ConfigType as T
from sparklog.config.definition import (
    above,
    any_of,
    at_least,
    between,
    definitions,
    matching,
    one_of,
    parse,
    setting,
)
from sparklog.config.kafka_broker import divide
from sparklog.config.listeners import (
    DEFAULT_PROTOCOLS,
    Listeners,
    between_brokers,
    parse_listeners,
    parse_protocols,
    plain_listener,
)
from sparklog.config.protocol_version import (
    NEWEST,
    complaint_about_protocol_version,
)
from sparklog.config.security import SecuritySettings
from sparklog.config.spellings import DEPRECATED, by_one_name
from sparklog.config.topic import TopicConfig, check_together
from sparklog.config.zookeeper_connect import complaint_about_connect
from sparklog.config.zookeeper_security import OPEN, ZooKeeperSecurity
from sparklog.errors import ConfigError
from sparklog.structs import Endpoint

ASSIGNOR_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""What Kafka calls its assignors in ``group.consumer.assignors``, and their names."""
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
"""What Kafka calls the ways of ``replica.selector.class``."""
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
"""What Kafka calls its authorizer with ZooKeeper, and what ours is known by."""
_logger = logging.getLogger(__name__)
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
_LEAST_MAP_BYTES = 1 << 20
_OWN_ADDRESSES = frozenset({"127.0.0.1", "::1", "localhost"})


def parse_overrides(text: str) -> dict[str, int]:
    """Host → number from ``host:number,host:number``. Raises ConfigError on what is not that."""
    overrides = {}
    for item in filter(None, (each.strip() for each in text.split(","))):
        host, _, number = item.rpartition(":")
        if not host.strip() or not number.strip().isdecimal():
            raise ConfigError(f"{item!r} is not HOST:NUMBER")
        overrides[host.strip()] = int(number)
    return overrides


def _complaint_about_overrides(text: str) -> str | None:
    try:
        parse_overrides(text)
    except ConfigError as error:
        return str(error)
    return None


def is_every_address(host: str) -> bool:
    """Whether listening there is listening on every address of the machine: no client can be told to connect to it."""
    return host in ("", "0.0.0.0", "::")


def _complaint_about_advertised(host: str) -> str | None:
    return "is no address that a client can connect to" if host and is_every_address(host) else None


def _complaint_about_authorizer(name: str) -> str | None:
    if name in ("", ACL_AUTHORIZER):
        return None
    return (
        f"no such authorizer is here, and a broker without it would let in whom it keeps out; there is {ACL_AUTHORIZER}"
    )


@dataclass(frozen=True)
class BrokerConfig:
    """Immutable. ``topic_defaults`` holds what topics without a setting of their own use."""

    broker_id: int = setting("broker.id", T.INT, 0, "This broker's number; unique in the cluster.", at_least(0))
    host: str = setting("host.name", T.STRING, "127.0.0.1", "Address to listen on (listeners).")
    port: int = setting("port", T.INT, 9092, "Port to listen on; 0 takes a free one (listeners).", between(0, 65535))
    advertised_host: str = setting(
        "advertised.host.name",
        T.STRING,
        "",
        "Address to tell clients (advertised.listeners); empty for the one to listen on.",
        _complaint_about_advertised,
    )
    advertised_port: int = setting(
        "advertised.port",
        T.INT,
        0,
        "Port to tell clients (advertised.listeners); 0 for the one to listen on.",
        between(0, 65535),
    )
    listeners: str = setting(
        "listeners",
        T.STRING,
        "",
        "Where to listen, NAME://HOST:PORT,…; empty for PLAINTEXT at host.name and port. Port 0 takes a free one.",
    )
    advertised_listeners: str = setting(
        "advertised.listeners", T.STRING, "", "Where clients are told to find them; empty for where they listen."
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        T.STRING,
        DEFAULT_PROTOCOLS,
        "NAME:PROTOCOL,… with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    inter_broker_listener_name: str = setting(
        "inter.broker.listener.name", T.STRING, "", "The listener by which brokers speak to each other."
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol", T.STRING, "", "The same by its protocol; PLAINTEXT where neither is given."
    )
    principal_builder_class: str = setting(
        "principal.builder.class",
        T.STRING,
        "",
        "What decides which principal a peer is: an entry point of the group sparklog.principal_builders.",
    )
    log_dirs: tuple[str, ...] = setting("log.dirs", T.LIST, ("sparklog-data",), "Directories that hold the partitions.")
    zookeeper_connect: str = setting(
        "zookeeper.connect",
        T.STRING,
        "127.0.0.1:2181",
        "ZooKeeper, host:port,host:port[/chroot].",
        complaint_about_connect,
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms", T.INT, 18_000, "Silence after which a broker counts as dead.", at_least(100)
    )
    inter_broker_protocol_version: str = setting(
        "inter.broker.protocol.version",
        T.STRING,
        str(NEWEST),
        "What brokers may say to each other: Kafka's version as long as brokers of Kafka are in the cluster.",
        complaint_about_protocol_version,
    )
    num_partitions: int = setting(
        "num.partitions", T.INT, 1, "Partitions of a topic made without a number.", at_least(1)
    )
    default_replication_factor: int = setting(
        "default.replication.factor", T.INT, 1, "Replicas of a topic made without a number.", at_least(1)
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", T.BOOLEAN, True, "Whether asking for a topic makes it."
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", T.INT, 104_857_600, "Largest request accepted.", at_least(1)
    )
    queued_max_requests: int = setting(
        "queued.max.requests",
        T.INT,
        64,
        "Requests a connection may have unanswered before it is read no more.",
        at_least(1),
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        T.LONG,
        -1,
        "Bytes of requests in hand, of all connections, beyond which none is begun to be read; -1 for any number.",
    )
    max_connections: int = setting(
        "max.connections", T.INT, _INT_MAX, "Most connections; a new client then waits for one to end.", at_least(0)
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", T.INT, _INT_MAX, "Most connections of one address; more are hung up on.", at_least(0)
    )
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides",
        T.STRING,
        "",
        "HOST:NUMBER,HOST:NUMBER for those that may have another number.",
        _complaint_about_overrides,
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate", T.INT, _INT_MAX, "Most new connections a second; more wait.", at_least(0)
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        T.LONG,
        _LONG_MAX,
        "Bytes a second to followers out of sync, of the replicas that leader.replication.throttled.replicas names.",
        at_least(0),
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        T.LONG,
        _LONG_MAX,
        "Bytes a second that are copied while out of sync, where follower.replication.throttled.replicas says so.",
        at_least(0),
    )
    replication_quota_window_num: int = setting(
        "replication.quota.window.num", T.INT, 11, "Windows over which these rates are taken.", at_least(1)
    )
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds", T.INT, 1, "Length of such a window.", at_least(1)
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", T.LONG, 600_000, "Idleness after which a connection is ended; below 0 never."
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", T.INT, 57_671_680, "Most bytes given to one fetch.", at_least(1024)
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", T.INT, 1000, "Most fetch sessions that are kept.", at_least(0)
    )
    min_incremental_fetch_session_eviction_ms: int = setting(
        "min.incremental.fetch.session.eviction.ms",
        T.INT,
        120_000,
        "Age from which a fetch session gives way to a larger one, and disuse after which to any.",
        at_least(1),
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        T.INT,
        2000,
        "Most partitions in one DescribeTopicPartitions answer.",
        at_least(1),
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", T.INT, 50, "Partitions of __consumer_offsets.", at_least(1)
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        T.INT,
        104_857_600,
        "Segment size of __consumer_offsets: small ones are compacted soon, and a coordinator reads less at its start.",
        at_least(1),
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", T.SHORT, 1, "Replicas of __consumer_offsets.", at_least(1)
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", T.INT, 4096, "Longest metadata of a committed offset.", at_least(0)
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", T.INT, 3000, "How long a new group waits for more members.", at_least(0)
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", T.INT, 6000, "Shortest session timeout a member may ask for.", at_least(1)
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", T.INT, 1_800_000, "Longest session timeout a member may ask for.", at_least(1)
    )
    group_max_size: int = setting(
        "group.max.size", T.INT, 2**31 - 1, "Most members that a group may have.", at_least(1)
    )
    group_members_max_bytes: int = setting(
        "sparklog.group.members.max.bytes",
        T.LONG,
        256 << 20,
        "Bytes of metadata, ids and assignments that the members of all groups that the broker coordinates may have in "
        "memory. A member that has no room is told to try again.",
        at_least(1 << 20),
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        T.LIST,
        ("classic", "consumer"),
        "The group protocols that are served.",
        any_of("classic", "consumer"),
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        T.INT,
        45_000,
        "Silence after which a member of the consumer protocol counts as gone.",
        at_least(1),
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        T.INT,
        5000,
        "How often such a member is told to make itself heard.",
        at_least(1),
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        T.INT,
        2**31 - 1,
        "Most members that a group of the consumer protocol may have.",
        at_least(1),
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        T.LIST,
        ("uniform", "range"),
        "The assignors of such a group; the first is used if its members name none.",
        any_of("uniform", "range", *ASSIGNOR_CLASSES),
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        T.STRING,
        "bidirectional",
        "Whether a group with members may change from the classic protocol to the consumer protocol, or back.",
        one_of("disabled", "upgrade", "downgrade", "bidirectional"),
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", T.INT, 10_080, "How long an unused committed offset is kept.", at_least(1)
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", T.LONG, 600_000, "Between two looks for such offsets.", at_least(1)
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        T.INT,
        60_000,
        "Between two writes of the recovery points.",
        at_least(1),
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        T.LONG,
        1000,
        "Between two looks for logs whose flush.ms has passed.",
        at_least(1),
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        T.INT,
        60_000,
        "Between two writes of the log start offsets.",
        at_least(1),
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        T.INT,
        1,
        "Threads that open the logs of one directory, and close them; directories are opened side by side.",
        at_least(1),
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        T.INT,
        86_400_000,
        "How long an idempotent producer that writes nothing is remembered.",
        at_least(1),
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        T.INT,
        600_000,
        "Between two looks for producers to forget.",
        at_least(1),
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", T.LONG, 300_000, "Between two looks for segments to delete.", at_least(1)
    )
    broker_rack: str = setting(
        "broker.rack", T.STRING, "", "Where the broker stands: replicas of a partition are spread over racks."
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable", T.BOOLEAN, True, "Whether a broker that stops has others lead first."
    )
    failover_fast: bool = setting(
        "sparklog.failover.fast",
        T.BOOLEAN,
        True,
        "Whether a broker whose address refuses connections is taken for dead before its ZooKeeper session ends.",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        T.BOOLEAN,
        True,
        "Whether the first replicas are given back what they are to lead.",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds", T.LONG, 300, "Between two looks whether they are.", at_least(1)
    )
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage",
        T.INT,
        10,
        "How much of what a broker is to lead others may lead before it is given back.",
        at_least(0),
    )
    replica_selector_class: str = setting(
        "replica.selector.class",
        T.STRING,
        "",
        "Which replica consumers are sent to: RackAwareReplicaSelector, the one in their client.rack;"
        " LeaderSelector or empty, the leader.",
        one_of("", LEADER_SELECTOR, RACK_AWARE_SELECTOR),
    )
    num_replica_fetchers: int = setting(
        "num.replica.fetchers", T.INT, 1, "Connections to each broker that is followed.", at_least(1)
    )
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        T.LONG,
        30_000,
        "How long a follower may be behind its leader's end before it counts as out of sync.",
        at_least(1),
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", T.INT, 1_048_576, "What a follower asks for of one partition at once.", at_least(1)
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", T.INT, 10_485_760, "What a follower asks for at once in all.", at_least(1)
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", T.INT, 1, "What a follower waits for.", at_least(1)
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", T.INT, 500, "How long a follower waits for it.", at_least(1)
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", T.INT, 1_000, "How long a follower waits after a failure, at most.", at_least(1)
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms", T.INT, 30_000, "How long a follower waits for a silent leader.", at_least(1)
    )
    num_replica_alter_log_dirs_threads: int = setting(
        "num.replica.alter.log.dirs.threads",
        T.INT,
        0,
        "Threads that move partitions between log directories; 0 is one for each directory.",
        at_least(0),
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        T.LONG,
        (1 << 63) - 1,
        "How fast partitions are moved between log directories, all together.",
        at_least(0),
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        T.LONG,
        60_000,
        "Between two checkpoints of what is committed. After a crash it is known as soon as the followers ask.",
        at_least(1),
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", T.BOOLEAN, True, "Whether this broker compacts topics with cleanup.policy=compact."
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads",
        T.INT,
        1,
        "Worker processes that compact, one partition each at a time; 0 for none.",
        at_least(0),
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        T.DOUBLE,
        1.7976931348623157e308,
        "How much the workers read and write in a second, all together.",
        above(0),
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        T.LONG,
        134_217_728,
        "Memory for the maps of keys, of all workers: 24 bytes a key, 32 by version. A worker uses 2 GiB at most.",
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        T.INT,
        524_288,
        "Memory to read into, of all workers together; a larger batch is read whole.",
        at_least(0),
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        T.DOUBLE,
        0.9,
        "How full the map of keys may become: a fuller one holds more keys, and takes longer to find one.",
        above(0, 1),
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        T.LONG,
        15_000,
        "How long the workers wait when there is no log to compact.",
        at_least(0),
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", T.INT, 50, "Partitions of __transaction_state.", at_least(1)
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor", T.SHORT, 1, "Replicas of __transaction_state.", at_least(1)
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr", T.INT, 1, "In-sync replicas that __transaction_state needs.", at_least(1)
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", T.INT, 104_857_600, "Segment size of __transaction_state.", at_least(1)
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", T.INT, 900_000, "Longest a producer may let a transaction be open.", at_least(1)
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable",
        T.BOOLEAN,
        True,
        "Whether a producer may have transactions without a timeout, for a two-phase commit.",
    )
    internal_topics_protect: bool = setting(
        "sparklog.internal.topics.protect",
        T.BOOLEAN,
        True,
        "Whether to refuse what would lose the state of groups, transactions and Spark's sinks: deleting or growing "
        "their topics, changing what these keep, plain commits to the groups of the sinks, and records of any client "
        "in the topics of the coordinators.",
    )
    first_registry: str = setting(
        "sparklog.first.registry",
        T.STRING,
        "",
        "Where the broker keeps the topic registry of the first design, T/ID with the number of its partitions: beside,"
        " in Kafka's own tree; or a path such as /first, below which it is /first/brokers/topics. Empty for nowhere.",
        matching(r"|beside|(/[A-Za-z0-9._-]+)+", "beside, or a path that begins with a slash"),
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        T.INT,
        604_800_000,
        "How long an unused transactional id is remembered.",
        at_least(1),
    )
    transaction_abort_timed_out_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        T.INT,
        10_000,
        "Between two looks for transactions that are open too long.",
        at_least(1),
    )
    transaction_remove_expired_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        T.INT,
        3_600_000,
        "Between two looks for transactional ids to forget.",
        at_least(1),
    )
    quota_window_num: int = setting(
        "quota.window.num", T.INT, 11, "Windows over which clients' rates are taken, with the current one.", at_least(1)
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", T.INT, 1, "Length of such a window.", at_least(1)
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        T.INT,
        11,
        "Windows whose quota of changes may be used at once, where it was saved up.",
        at_least(1),
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds", T.INT, 1, "Length of such a window.", at_least(1)
    )
    quota_producer_default: int = setting(
        "quota.producer.default",
        T.LONG,
        _LONG_MAX,
        "Deprecated: bytes a second that each client id may produce, where ZooKeeper has no default for client ids.",
        at_least(1),
    )
    quota_consumer_default: int = setting(
        "quota.consumer.default",
        T.LONG,
        _LONG_MAX,
        "Deprecated: bytes a second that each client id may consume, where ZooKeeper has no default for client ids.",
        at_least(1),
    )
    zookeeper_security: ZooKeeperSecurity = OPEN
    """The settings zookeeper.ssl.* and zookeeper.set.acl."""
    authorizer_class_name: str = setting(
        "authorizer.class.name",
        T.STRING,
        "",
        f"{ACL_AUTHORIZER} to decide by access control lists who may do what; empty to let everybody do everything.",
        _complaint_about_authorizer,
    )
    super_users: str = setting(
        "super.users",
        T.STRING,
        "",
        "User:NAME;User:NAME: those who may do everything, whatever the lists say; brokers are to be among them.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        T.BOOLEAN,
        False,
        "Whether everybody may do everything with what no access control list concerns.",
    )
    delegation_token_secret_key: str = setting(
        "delegation.token.secret.key",
        T.PASSWORD,
        "",
        "The key of delegation tokens, the same on all brokers; without one there are none.",
    )
    delegation_token_max_lifetime_ms: int = setting(
        "delegation.token.max.lifetime.ms",
        T.LONG,
        604_800_000,
        "How long a delegation token may last, however often it is renewed.",
        at_least(1),
    )
    delegation_token_expiry_time_ms: int = setting(
        "delegation.token.expiry.time.ms",
        T.LONG,
        86_400_000,
        "How long a delegation token lasts until it is renewed.",
        at_least(1),
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms",
        T.LONG,
        3_600_000,
        "Between two looks for delegation tokens to remove.",
        at_least(1),
    )
    metrics_port: int = setting(
        "sparklog.metrics.port",
        T.INT,
        -1,
        "Port for Prometheus (/metrics, /health, /ready); 0 takes a free one, -1 is none.",
        between(-1, 65535),
    )
    metrics_host: str = setting(
        "sparklog.metrics.host",
        T.STRING,
        "127.0.0.1",
        "Address of this port: whoever reaches it reads names of topics.",
    )
    metrics_token_file: str = setting(
        "sparklog.metrics.token.file",
        T.STRING,
        "",
        "A file with the bearer token that /metrics is to be asked with; empty: it is told to everybody.",
    )
    metrics_partitions_max: int = setting(
        "sparklog.metrics.partitions.max",
        T.INT,
        20_000,
        "How many partitions, and how many topics, have series of their own; sums are of all.",
        at_least(0),
    )
    metrics_offsets_max: int = setting(
        "sparklog.metrics.offsets.max",
        T.INT,
        10_000,
        "How many groups, and how many of their committed offsets, have series of their own.",
        at_least(0),
    )
    web_port: int = setting(
        "sparklog.web.port",
        T.INT,
        -1,
        "Port for the web page, in a process of its own that ends with the broker; 0 takes a free one, -1 is none.",
        between(-1, 65535),
    )
    web_host: str = setting("sparklog.web.host", T.STRING, "127.0.0.1", "Address of this port.")
    web_client_config: str = setting(
        "sparklog.web.client.config",
        T.STRING,
        "",
        "A file with the settings of a client, by which the page reaches the brokers: needed where a listener is not"
        " PLAINTEXT. A user in it is not used.",
    )
    web_certificate: str = setting(
        "sparklog.web.certificate", T.STRING, "", "The page speaks TLS: a PEM file with a certificate and its key."
    )
    web_origin: str = setting(
        "sparklog.web.origin",
        T.STRING,
        "",
        "Where browsers reach the page, if that is not its address: a proxy, or every address of the machine.",
    )
    web_registry: str = setting(
        "sparklog.web.registry",
        T.STRING,
        "",
        "The address of a schema registry, http://HOST:PORT: the page shows values that have its ids by their schemas.",
    )
    web_registry_config: str = setting(
        "sparklog.web.registry.config",
        T.STRING,
        "",
        "A file with the registry's settings instead, or beside its address: schema.registry.url,"
        " basic.auth.user.info, ….",
    )
    web_allow_changes: bool = setting(
        "sparklog.web.allow.changes",
        T.BOOLEAN,
        False,
        "Whether visitors may change topics, settings and groups, as far as the brokers let them.",
    )
    slow_request_log_ms: int = setting(
        "sparklog.slow.request.log.ms",
        T.LONG,
        -1,
        "A request that takes longer, waits included, has a line in the log; -1 is none.",
        at_least(-1),
    )
    topic_defaults: TopicConfig = TopicConfig()  # noqa: RUF009 (frozen, so one instance may serve all)

    security: SecuritySettings = SecuritySettings()  # noqa: RUF009 (frozen, so one instance may serve all)
    """The settings of TLS and SASL, by listener."""

    @cached_property
    def ends(self) -> Listeners:
        """Where it listens and what it tells. Raises ConfigError for what does not fit together."""
        protocols = parse_protocols(self.listener_security_protocol_map)
        if self.listeners:
            bound = parse_listeners("listeners", self.listeners, protocols)
        else:
            bound = (plain_listener(Endpoint(self.host, self.port)),)
        told = {
            each.name: each for each in parse_listeners("advertised.listeners", self.advertised_listeners, protocols)
        }
        if unknown := told.keys() - {each.name for each in bound}:
            raise ConfigError(f"advertised.listeners names {', '.join(sorted(unknown))}, where nothing listens")
        if not told:
            own = Endpoint(self.advertised_host, self.advertised_port)
            told = {each.name: each if self.listeners else each._replace(endpoint=own) for each in bound}
        advertised = tuple(told[each.name] for each in bound if each.name in told)
        name = between_brokers(self.inter_broker_listener_name, self.security_inter_broker_protocol, advertised)
        return Listeners(bound, advertised, name)

    @property
    def selects_by_rack(self) -> bool:
        """Whether consumers are sent to a replica in their rack."""
        return self.replica_selector_class == RACK_AWARE_SELECTOR


def topic_synonyms() -> dict[str, str]:
    """Broker setting → the topic setting whose default it gives."""
    return {
        definition.broker_synonym: name
        for name, (_, definition) in definitions(TopicConfig).items()
        if definition.broker_synonym
    }


def _check_reachable(config: BrokerConfig) -> None:
    told = {each.name: each.endpoint.host for each in config.ends.advertised}
    for name, _, endpoint in config.ends.bound:
        host = told.get(name)
        if is_every_address(endpoint.host) and host is not None and is_every_address(host):
            raise ConfigError(
                f"listener {name} at {endpoint.host!r} listens on every address of this machine, and clients must be"
                f" told one that they can reach: set advertised.listeners={name}://NAME:PORT too"
            )
        if host and is_every_address(host):
            raise ConfigError(f"advertised.listeners: {host!r} is no address that a client can connect to")


def _check_authorizer(config: BrokerConfig) -> None:
    if config.super_users and not config.authorizer_class_name:
        raise ConfigError(
            f"super.users={config.super_users!r} means nothing where everybody may do everything:"
            f" set authorizer.class.name={ACL_AUTHORIZER} too, or remove it"
        )


def _check_metrics(config: BrokerConfig) -> None:
    is_open = config.metrics_port >= 0 and config.metrics_host not in _OWN_ADDRESSES
    if is_open and config.authorizer_class_name and not config.metrics_token_file:
        raise ConfigError(
            f"sparklog.metrics.host={config.metrics_host!r} would tell other machines the names of topics and groups,"
            " which authorizer.class.name keeps from some: set sparklog.metrics.token.file too, or listen on 127.0.0.1"
        )


def check_cleaner(config: BrokerConfig) -> None:
    """Raises ConfigError where the maps of the workers would hold next to nothing. Source: Kafka 3.9, ``KafkaConfig``,
    which refuses just 1 MiB too.
    """
    threads, size = config.log_cleaner_threads, config.log_cleaner_dedupe_buffer_size
    if threads and size // threads <= _LEAST_MAP_BYTES:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size={size} is shared by log.cleaner.threads={threads},"
            f" and each needs more than {_LEAST_MAP_BYTES}"
        )


def parse_broker_config(properties: dict[str, str]) -> BrokerConfig:
    """A broker's settings, those that are topics' defaults among them.

    Raises ConfigError on any that does not fit. Kafka's settings that mean nothing here are left out, with one warning.
    """
    properties, left_out = divide(properties)
    if left_out:
        _logger.warning("these settings of Kafka's mean nothing here and are left out: %s", ", ".join(left_out))
    for name in sorted(DEPRECATED.keys() & properties.keys()):
        _logger.warning("%s is deprecated: %s", name, DEPRECATED[name])
    properties = by_one_name(properties)
    synonyms = topic_synonyms()
    for_topics = {synonyms[name]: text for name, text in properties.items() if name in synonyms}
    own = {name: text for name, text in properties.items() if name not in synonyms}
    security, own = SecuritySettings.divide(own)
    zookeeper_security, own = ZooKeeperSecurity.divide(own)
    config = parse(BrokerConfig, own)
    defaults = parse(TopicConfig, for_topics)
    check_together(defaults)
    _check_reachable(config)
    check_cleaner(config)
    _check_authorizer(config)
    _check_metrics(config)
    if for_all := security.check([each.name for each in config.ends.bound]):
        _logger.warning(
            "these settings are for all listeners here, or mean nothing, and are left out: %s", ", ".join(for_all)
        )
    return replace(config, topic_defaults=defaults, security=security, zookeeper_security=zookeeper_security)
