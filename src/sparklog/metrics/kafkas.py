"""What Kafka's documentation tells its operators to watch ("Monitoring", 3.9, brokers with ZooKeeper), and what of it a
broker here tells: the names, or why there is none.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Watched(NamedTuple):
    """One of Kafka's numbers: its bean without the domain ``kafka.``, and what is here."""

    bean: str
    names: tuple[str, ...]
    """Of families."""
    note: str = ""
    """Why there are none, or what is different."""


_TOPIC = "server:type=BrokerTopicMetrics,name="
_REQUEST = "network:type=RequestMetrics,name="
_REPLICAS = "server:type=ReplicaManager,name="
_CONTROLLER = "controller:type=KafkaController,name="
_GROUPS = "coordinator.group:type=GroupMetadataManager,name="
_SOCKETS = "server:type=socket-server-metrics,"
_BY_TOPIC = "kafka_server_brokertopicmetrics_"
_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")


def _same(prefix: str, *names: str) -> tuple[Watched, ...]:
    """Those that are here as they are there."""
    room = prefix.removesuffix("name=").replace(":type=", "_").replace(",", "_").replace(".", "_").lower()
    return tuple(Watched(prefix + each, (f"kafka_{room}{each.lower().replace('persec', '_total')}",)) for each in names)


WATCHED: Final = (
    *_same(
        _TOPIC,
        "MessagesInPerSec",
        "BytesInPerSec",
        "BytesOutPerSec",
        "BytesRejectedPerSec",
        "ProduceMessageConversionsPerSec",
        "FetchMessageConversionsPerSec",
        "ReplicationBytesInPerSec",
        "ReplicationBytesOutPerSec",
        "TotalProduceRequestsPerSec",
        "TotalFetchRequestsPerSec",
        "FailedProduceRequestsPerSec",
        "FailedFetchRequestsPerSec",
    ),
    Watched(
        _TOPIC + "Reassignment{BytesIn,BytesOut}PerSec",
        (),
        "A broker does not note which replicas of a partition are new; the bytes are in those of replication.",
    ),
    Watched(
        _TOPIC + "{NoKeyCompactedTopic,InvalidMagicNumber,InvalidMessageCrc,InvalidOffsetOrSequence}RecordsPerSec",
        ("kafka_network_requestmetrics_errors_total",),
        "Batches, by the code that they are answered with; the log says which.",
    ),
    *_same(_REQUEST, "RequestsPerSec", "ErrorsPerSec"),
    Watched(
        _REQUEST + "TotalTimeMs",
        ("kafka_network_requestmetrics_totaltimems", "kafka_network_requestmetrics_totaltimems_count"),
        "The buckets too: `sparklog_request_duration_seconds`.",
    ),
    Watched(
        _REQUEST + "RequestQueueTimeMs",
        ("sparklog_request_queue_seconds_total",),
        "Its sum: percentiles would cost each request as much again as all that is counted of it.",
    ),
    Watched(_REQUEST + "LocalTimeMs", ("sparklog_request_loop_seconds_total",), "Its sum, as above."),
    Watched(
        _REQUEST + "RemoteTimeMs",
        ("sparklog_request_duration_seconds",),
        "Its sum less those of the two above: what requests waited for replicas, records, the disk or ZooKeeper.",
    ),
    Watched(
        _REQUEST + "{ResponseQueueTimeMs,ResponseSendTimeMs}",
        (),
        "An answer is sent in the turn in which it is known. What the client does not take waits: "
        "`sparklog_answer_bytes`, and the log of slow requests says for how long.",
    ),
    Watched(_REQUEST + "RequestBytes", ("sparklog_request_bytes_total",), "Its sum."),
    Watched(
        _REQUEST + "{TemporaryMemoryBytes,MessageConversionsTimeMs}",
        (),
        "Conversions are on a thread of their own. Requests in memory: `kafka_network_socketserver_memorypoolused`.",
    ),
    Watched(
        "network:type=RequestChannel,name=RequestQueueSize",
        ("sparklog_turns_waiting",),
        "There is no queue of requests: connections wait for their turn.",
    ),
    Watched(
        "network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
        (
            "kafka_network_socketserver_networkprocessoravgidlepercent",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
        ),
        "Processor time of the one loop. The second name is that of Strimzi's rules.",
    ),
    Watched(
        "server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        ("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",),
        "The same number: one loop reads, serves and sends.",
    ),
    *_same("network:type=SocketServer,name=", "MemoryPoolUsed"),
    Watched(
        "network:type=SocketServer,name=ExpiredConnectionsKilledCount",
        (),
        "A line in the log for each connection that is closed.",
    ),
    Watched(
        _SOCKETS + "connection-count",
        (
            "kafka_server_socketservermetrics_connection_count",
            "kafka_server_socket_server_metrics_connection_count",
        ),
        "The second name is that of Strimzi's rules.",
    ),
    Watched(_SOCKETS + "connection-creation-total", ("kafka_server_socketservermetrics_connection_creation_total",)),
    Watched(_SOCKETS + "connection-close-total", ("kafka_server_socketservermetrics_connection_close_total",)),
    Watched(
        _SOCKETS + "successful-authentication-total",
        ("kafka_server_socketservermetrics_successful_authentication_total",),
    ),
    Watched(
        _SOCKETS + "failed-authentication-total", ("kafka_server_socketservermetrics_failed_authentication_total",)
    ),
    *_same(
        _REPLICAS,
        "UnderReplicatedPartitions",
        "UnderMinIsrPartitionCount",
        "AtMinIsrPartitionCount",
        "PartitionCount",
        "LeaderCount",
        "OfflineReplicaCount",
        "IsrShrinksPerSec",
        "IsrExpandsPerSec",
        "FailedIsrUpdatesPerSec",
    ),
    Watched(
        _REPLICAS + "ReassigningPartitions",
        ("sparklog_controller_moving_partitions",),
        "Of the whole cluster, at the controller: a leader does not note which of its partitions move.",
    ),
    Watched(_REPLICAS + "ProducerIdCount", (), "`Admin.describe_producers` tells those of a partition."),
    *_same("cluster:type=Partition,name=", "UnderReplicated", "UnderMinIsr", "AtMinIsr"),
    Watched(
        "server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
        ("kafka_server_replicafetchermanager_maxlag",),
    ),
    Watched(
        "server:type=FetcherLagMetrics,name=ConsumerLag",
        ("sparklog_follower_lag_records",),
        "The largest of each follower, at the leader; one series a partition would be another 10,000.",
    ),
    Watched(
        "server:type=DelayedOperationPurgatory,name=PurgatorySize",
        ("kafka_server_delayedoperationpurgatory_purgatorysize",),
    ),
    *_same("server:type=FetchSessionCache,name=", "NumIncrementalFetchSessions"),
    *_same("log:type=Log,name=", "Size", "NumLogSegments", "LogStartOffset", "LogEndOffset"),
    Watched(
        "log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
        ("kafka_log_logflushstats_logflushrateandtimems_count", "sparklog_log_flush_seconds_total"),
        "The count and the sum; no percentiles.",
    ),
    *_same("log:type=LogManager,name=", "OfflineLogDirectoryCount"),
    *(
        Watched(f"log:type=LogCleaner,name={bean}", (f"kafka_log_logcleaner_{name}",))
        for bean, name in (
            ("max-buffer-utilization-percent", "max_buffer_utilization_percent"),
            ("max-clean-time-secs", "max_clean_time_secs"),
            ("max-compaction-delay-secs", "max_compaction_delay_secs"),
            ("cleaner-recopy-percent", "cleaner_recopy_percent"),
        )
    ),
    Watched("log:type=LogCleanerManager,name=max-dirty-percent", ("kafka_log_logcleanermanager_max_dirty_percent",)),
    Watched(
        "log:type=LogCleanerManager,name=uncleanable-{partitions-count,bytes}",
        (
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            "kafka_log_logcleanermanager_uncleanable_bytes",
        ),
    ),
    Watched("server:type=KafkaServer,name=BrokerState", ("kafka_server_kafkaserver_brokerstate",)),
    Watched(
        "server:type=KafkaServer,name=linux-disk-{read,write}-bytes",
        (
            "kafka_server_kafkaserver_linux_disk_read_bytes",
            "kafka_server_kafkaserver_linux_disk_write_bytes",
        ),
        "Of the broker's own process; cleaners and the web page are others.",
    ),
    *_same(
        _CONTROLLER,
        "ActiveControllerCount",
        "ActiveBrokerCount",
        "GlobalTopicCount",
        "GlobalPartitionCount",
        "OfflinePartitionsCount",
        "PreferredReplicaImbalanceCount",
        "TopicsToDeleteCount",
    ),
    Watched(
        _CONTROLLER + "{ReplicasToDeleteCount,TopicsIneligibleToDeleteCount,ReplicasIneligibleToDeleteCount}",
        (),
        "A topic is in `kafka_controller_kafkacontroller_topicstodeletecount` until all of it is deleted.",
    ),
    Watched(
        "controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs",
        (
            "kafka_controller_controllerstats_leaderelectionrateandtimems",
            "kafka_controller_controllerstats_leaderelectionrateandtimems_count",
        ),
        "By partition: `sparklog_leader_elections_total`.",
    ),
    Watched(
        "controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
        ("kafka_controller_controllerstats_uncleanleaderelections_total",),
    ),
    Watched(
        "controller:type={ControllerChannelManager,ControllerEventManager}",
        (),
        "There is no queue of events: a look at the cluster takes in all that has happened.",
    ),
    *_same(
        "server:type=SessionExpireListener,name=",
        "ZooKeeperSyncConnectsPerSec",
        "ZooKeeperDisconnectsPerSec",
        "ZooKeeperExpiresPerSec",
    ),
    Watched(
        "server:type=SessionExpireListener,name=SessionState",
        ("sparklog_zookeeper_connected", "sparklog_broker_registered"),
        "A word there, which the exporter does not tell.",
    ),
    Watched(
        "server:type=ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs",
        (
            "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
            "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count",
        ),
    ),
    *_same(_GROUPS, "NumGroups", "NumOffsets", *(f"NumGroups{each}" for each in _STATES)),
    Watched(
        "server:type={group,transaction}-coordinator-metrics,name=partition-load-time-{max,avg}",
        (),
        "Not measured. A request that comes meanwhile is answered with the code COORDINATOR_LOAD_IN_PROGRESS.",
    ),
    Watched(
        "server:type=AddPartitionsToTxnManager,name={VerificationFailureRate,VerificationTimeMs}",
        ("kafka_network_requestmetrics_totaltimems",),
        'Of the requests `{request="AddPartitionsToTxn"}` at the coordinator.',
    ),
    Watched(
        "server:type={Produce,Fetch,Request},user=,client-id=",
        ("sparklog_throttled_answers_total", "sparklog_throttle_seconds_total"),
        "Of all clients: a label for each would grow with them.",
    ),
    Watched(
        "consumer:type=consumer-fetch-manager-metrics (of consumers); exporters of lag",
        ("kafka_consumergroup_lag", "kafka_consumergroup_current_offset", "kafka_consumergroup_members"),
        "A broker tells them of its groups.",
    ),
    Watched("Remote storage, KRaft", (), "There is neither."),
)
