"""All families of metrics that a broker gives: the names, and what they mean.

Those of Kafka's have the names that ``kafka-2_0_0.yml``, the JMX exporter's example for Kafka, makes of its beans.
"""

from __future__ import annotations

from typing import Final

from sparklog.metrics.exposition import Family

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
UNTYPED = "untyped"
"""A counter whose name does not end in ``_total``, and that some readers would rename."""

_TOPIC = "kafka_server_brokertopicmetrics_"
_REQUEST = "kafka_network_requestmetrics_"
_REPLICAS = "kafka_server_replicamanager_"
_LOG = "kafka_log_log_"
_PARTITION = ("topic", "partition")


def _gauge(name: str, what: str, *labels: str) -> Family:
    return Family(name, GAUGE, labels, what)


def _counter(name: str, what: str, *labels: str) -> Family:
    return Family(name, COUNTER, labels, what)


def _by_topic(name: str, what: str) -> Family:
    return Family(_TOPIC + name, COUNTER, ("topic",), what)


RECORDS_IN: Final = _by_topic("messagesin_total", "Records appended to partitions that this broker leads.")
BYTES_IN: Final = _by_topic("bytesin_total", "Bytes of batches appended to partitions led here, as they were sent.")
BYTES_OUT: Final = _by_topic("bytesout_total", "Bytes of records that consumers were given.")
PRODUCES: Final = _by_topic("totalproducerequests_total", "Appends that were asked for, of single partitions.")
FETCHES: Final = _by_topic("totalfetchrequests_total", "Reads of single partitions, of consumers and followers.")
FAILED_PRODUCES: Final = _by_topic("failedproducerequests_total", "Appends that the disk refused.")
FAILED_FETCHES: Final = _by_topic("failedfetchrequests_total", "Reads that the disk refused or that met damage.")
BYTES_REJECTED: Final = _by_topic(
    "bytesrejected_total", "Bytes of batches that were larger than max.message.bytes or a segment allow."
)
CONVERTED_IN: Final = _by_topic(
    "producemessageconversions_total", "Records appended that clients from before Kafka 0.11 sent in message sets."
)
CONVERTED_OUT: Final = _by_topic(
    "fetchmessageconversions_total", "Records of batches that were made message sets for such clients."
)
REPLICATED_IN: Final = _counter(
    _TOPIC + "replicationbytesin_total", "Bytes of batches copied from the leaders that are followed."
)
REPLICATED_OUT: Final = _counter(_TOPIC + "replicationbytesout_total", "Bytes of records that followers were given.")

REQUESTS: Final = Family(
    _REQUEST + "requests_total", COUNTER, ("request", "version"), "Requests taken up, by API and its version."
)
REQUEST_TIME: Final = Family(
    _REQUEST + "totaltimems",
    GAUGE,
    ("request", "quantile"),
    "Milliseconds from when a request was read until its answer was known, over the last minutes.",
)
REQUEST_COUNT: Final = Family(
    _REQUEST + "totaltimems_count", UNTYPED, ("request",), "Requests that were answered, of which the time is known."
)
REQUEST_ERRORS: Final = _counter(
    _REQUEST + "errors_total",
    "Answers with this code, and of Produce partitions that were; codes of single elements of others do not count.",
    "request",
    "error",
)
REQUEST_QUEUED: Final = _counter(
    "sparklog_request_queue_seconds_total",
    "Seconds that requests waited for their connections' turns, from when they were read.",
    "request",
)
REQUEST_BYTES: Final = Family("sparklog_request_bytes_total", COUNTER, ("request",), "Bytes of requests taken up.")
REQUEST_LOOP: Final = Family(
    "sparklog_request_loop_seconds_total",
    COUNTER,
    ("request",),
    "Elapsed seconds of the broker's loop on requests in their connections' turns, not processor time.",
)
REQUEST_DURATION: Final = Family(
    "sparklog_request_duration_seconds",
    HISTOGRAM,
    ("request",),
    "Seconds from when a request was read until its answer was known.",
)

PARTITIONS: Final = Family(_REPLICAS + "partitioncount", GAUGE, (), "Partitions that this broker holds.")
LEADERS: Final = Family(_REPLICAS + "leadercount", GAUGE, (), "Partitions that this broker leads.")
UNDER_REPLICATED: Final = Family(
    _REPLICAS + "underreplicatedpartitions", GAUGE, (), "Partitions led here of which not every replica is in sync."
)
UNDER_MIN_ISR: Final = Family(
    _REPLICAS + "underminisrpartitioncount", GAUGE, (), "Partitions led here with fewer in sync than they need."
)
AT_MIN_ISR: Final = Family(
    _REPLICAS + "atminisrpartitioncount", GAUGE, (), "Partitions led here with just as many in sync as they need."
)
OFFLINE_REPLICAS: Final = Family(
    _REPLICAS + "offlinereplicacount", GAUGE, (), "Replicas here that cannot be served: their disk or files failed."
)
ISR_SHRINKS: Final = Family(_REPLICAS + "isrshrinks_total", COUNTER, (), "ISRs that became smaller, of those led here.")
ISR_EXPANDS: Final = Family(_REPLICAS + "isrexpands_total", COUNTER, (), "ISRs that became larger, of those led here.")
ISR_REFUSALS: Final = Family(
    _REPLICAS + "failedisrupdates_total", COUNTER, (), "Changes of an ISR that the controller refused."
)

LOG_SIZE: Final = Family(_LOG + "size", GAUGE, _PARTITION, "Bytes of the segments of a partition.")
LOG_START: Final = Family(_LOG + "logstartoffset", GAUGE, _PARTITION, "Where a partition begins.")
LOG_END: Final = Family(_LOG + "logendoffset", GAUGE, _PARTITION, "The offset of a partition's next record.")
LOG_SEGMENTS: Final = Family(_LOG + "numlogsegments", GAUGE, _PARTITION, "Segments of a partition.")
PARTITION_UNDER_REPLICATED: Final = Family(
    "kafka_cluster_partition_underreplicated",
    GAUGE,
    _PARTITION,
    "1 for each partition led here of which not every replica is in sync; for all others one series without labels: 0.",
)
PARTITION_UNDER_MIN_ISR: Final = Family(
    "kafka_cluster_partition_underminisr",
    GAUGE,
    _PARTITION,
    "1 for each partition led here with fewer in sync than it needs; for all others one series without labels: 0.",
)
PARTITION_AT_MIN_ISR: Final = Family(
    "kafka_cluster_partition_atminisr",
    GAUGE,
    _PARTITION,
    "1 for each partition of several replicas led here with just as many in sync as it needs; for all others one"
    " series without labels: 0.",
)
PARTITIONS_LEFT_OUT: Final = Family(
    "sparklog_metrics_partitions_left_out",
    GAUGE,
    (),
    "Partitions without series of their own, beyond sparklog.metrics.partitions.max.",
)

BROKER_STATE: Final = _gauge(
    "kafka_server_kafkaserver_brokerstate", "1 while the broker starts, 3 while it serves, 7 while it stops."
)
_DISK = "kafka_server_kafkaserver_linux_disk_"
DISK_READ: Final = _gauge(_DISK + "read_bytes", "Bytes that the kernel read from disks for the broker.")
DISK_WRITTEN: Final = _gauge(_DISK + "write_bytes", "Bytes that it wrote, or will write, to disks for it.")
FOLLOWER_LAG: Final = _gauge(
    "sparklog_follower_lag_records",
    "The most offsets that a follower has yet to copy of one partition led here.",
    "follower",
)
MAX_LAG: Final = _gauge(
    "kafka_server_replicafetchermanager_maxlag",
    "The most offsets that one partition copied here lacks of what its leader last said to be committed.",
    "clientId",
)
LOG_FLUSHES: Final = Family(
    "kafka_log_logflushstats_logflushrateandtimems_count", UNTYPED, (), "Flushes of single logs to their disks."
)
LOG_FLUSH_SECONDS: Final = _counter("sparklog_log_flush_seconds_total", "Seconds that these flushes took.")
DIR_TOTAL: Final = _gauge("sparklog_log_directory_total_bytes", "Bytes of the disk of a log directory.", "directory")
DIR_FREE: Final = _gauge(
    "sparklog_log_directory_free_bytes", "Bytes of this disk that the broker may still write.", "directory"
)
OFFLINE_DIRS: Final = _gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log directories whose disk has failed.")
PURGATORY: Final = _gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Requests that wait: Fetch for records, Produce for replicas.",
    "delayedOperation",
)
FETCH_SESSIONS: Final = _gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.")
LEASES: Final = _gauge("sparklog_leases", "Leases of segment files that run.")
LEASES_GRANTED: Final = _counter("sparklog_leases_granted_total", "Leases of segment files that were granted.")

_CONTROLLER = "kafka_controller_kafkacontroller_"
ACTIVE_CONTROLLER: Final = _gauge(_CONTROLLER + "activecontrollercount", "1 on the broker that is the controller.")
ACTIVE_BROKERS: Final = _gauge(_CONTROLLER + "activebrokercount", "Brokers that live, as the controller knows.")
TOPICS: Final = _gauge(_CONTROLLER + "globaltopiccount", "Topics of the cluster; 0 on other brokers.")
ALL_PARTITIONS: Final = _gauge(_CONTROLLER + "globalpartitioncount", "Partitions of the cluster; 0 on others.")
OFFLINE_PARTITIONS: Final = _gauge(
    _CONTROLLER + "offlinepartitionscount", "Partitions that no live broker leads; 0 on other brokers."
)
IMBALANCED: Final = _gauge(
    _CONTROLLER + "preferredreplicaimbalancecount",
    "Partitions that another leads than their first replica; 0 on others.",
)
TO_DELETE: Final = _gauge(_CONTROLLER + "topicstodeletecount", "Topics that are being deleted; 0 on other brokers.")
MOVING: Final = _gauge("sparklog_controller_moving_partitions", "Partitions whose replicas are on the move.")

_STATS = "kafka_controller_controllerstats_"
ELECTION_TIME: Final = _gauge(
    _STATS + "leaderelectionrateandtimems",
    "Milliseconds from a look of this controller at the cluster until other leaders were written, since the start.",
    "quantile",
)
ELECTION_COUNT: Final = Family(
    _STATS + "leaderelectionrateandtimems_count", UNTYPED, (), "Looks of this controller in which a leader changed."
)
UNCLEAN_ELECTIONS: Final = _counter(
    _STATS + "uncleanleaderelections_total", "Partitions given a leader that was not in sync, by this controller."
)
LEADER_ELECTIONS: Final = _counter(
    "sparklog_leader_elections_total", "Partitions given another leader, by this controller."
)

_SESSION = "kafka_server_sessionexpirelistener_"
ZOOKEEPER_CONNECTS: Final = _counter(_SESSION + "zookeepersyncconnects_total", "Connections to a ZooKeeper.")
ZOOKEEPER_DISCONNECTS: Final = _counter(_SESSION + "zookeeperdisconnects_total", "Connections to it that broke.")
ZOOKEEPER_EXPIRES: Final = _counter(_SESSION + "zookeeperexpires_total", "Sessions that were lost.")
ZOOKEEPER_CONNECTED: Final = _gauge("sparklog_zookeeper_connected", "1 while a ZooKeeper answers the broker.")
_ZOOKEEPER = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
ZOOKEEPER_TIME: Final = _gauge(
    _ZOOKEEPER,
    "Milliseconds that what was asked of ZooKeeper took, with its wait for what was asked before, since the start.",
    "quantile",
)
ZOOKEEPER_COUNT: Final = Family(_ZOOKEEPER + "_count", UNTYPED, (), "What was asked of ZooKeeper.")
REGISTERED: Final = _gauge("sparklog_broker_registered", "1 while the broker is registered under a live session.")

_SOCKETS = "kafka_server_socketservermetrics_"
CONNECTIONS: Final = _gauge(
    _SOCKETS + "connection_count", "Connections that are open.", "listener", "network_processor"
)
CONNECTIONS_BY_STRIMZI: Final = _gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "The same, by the name that Strimzi's rules make.",
    "listener",
    "networkProcessor",
)
CONNECTIONS_OPENED: Final = _counter(
    _SOCKETS + "connection_creation_total", "Connections that were opened.", "listener", "network_processor"
)
CONNECTIONS_CLOSED: Final = _counter(
    _SOCKETS + "connection_close_total", "Connections that have ended.", "listener", "network_processor"
)
AUTHENTICATED: Final = _counter(
    _SOCKETS + "successful_authentication_total",
    "Peers that passed the TLS handshake or SASL of their listener.",
    "listener",
    "network_processor",
)
NOT_AUTHENTICATED: Final = _counter(
    _SOCKETS + "failed_authentication_total", "Peers that did not.", "listener", "network_processor"
)
STRANGERS: Final = _gauge("sparklog_connections_unauthenticated", "Peers that have yet to authenticate.")
TURNED_AWAY: Final = _counter(
    "sparklog_connections_turned_away_total", "Connections closed at once: too many, too fast, or no handshake."
)
REQUEST_MEMORY: Final = _gauge(
    "kafka_network_socketserver_memorypoolused", "Bytes of requests that were read and are not answered."
)
ANSWER_MEMORY: Final = _gauge("sparklog_answer_bytes", "Bytes of answers that are known and not sent.")
WAITING_TURNS: Final = _gauge("sparklog_turns_waiting", "Connections and tasks that wait for their turn on the loop.")
LOOP_LAG: Final = Family(
    "sparklog_loop_lag_seconds", HISTOGRAM, (), "How late the broker's loop came to a timer, tried ten times a second."
)
_IDLE = "The share of the last minute in which the broker's one loop used no processor: 1 is idle."
NETWORK_IDLE: Final = _gauge("kafka_network_socketserver_networkprocessoravgidlepercent", _IDLE)
NETWORK_IDLE_BY_STRIMZI: Final = _gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent", "The same, by the name that Strimzi's rules make."
)
HANDLER_IDLE: Final = _gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "The same: one loop reads, serves and sends.",
)
LOOP_CPU: Final = _counter("sparklog_loop_cpu_seconds_total", "Processor time of the loop's thread.")
LOOP_LAG_MAX: Final = _gauge("sparklog_loop_lag_max_seconds", "The latest of the last minute.")

THROTTLED: Final = _counter("sparklog_throttled_answers_total", "Answers that asked their clients to wait, for quotas.")
THROTTLE_SECONDS: Final = _counter("sparklog_throttle_seconds_total", "How long they asked them to wait, together.")
REFUSALS: Final = _counter(
    "sparklog_authorizer_refusals_total",
    "What clients tried and may not, as the audit log has it.",
    "resource",
    "operation",
)

_CLEANER = "kafka_log_logcleaner_"
CLEANER_UTILIZATION: Final = _gauge(
    _CLEANER + "max_buffer_utilization_percent",
    "How full the fullest map of keys was in the last cleanings: each thread's, and the last by a job.",
)
CLEANER_TIME: Final = _gauge(
    _CLEANER + "max_clean_time_secs",
    "Seconds of the longest of these cleanings; a job's are the sum over its tasks.",
)
CLEANER_DELAY: Final = _gauge(
    _CLEANER + "max_compaction_delay_secs", "Seconds by which the most overdue log is beyond its max.compaction.lag.ms."
)
CLEANER_RECOPY: Final = _gauge(
    _CLEANER + "cleaner_recopy_percent", "Of what these cleanings read, how much they wrote again."
)
DIRTIEST: Final = _gauge(
    "kafka_log_logcleanermanager_max_dirty_percent",
    "Of what a cleaning of the dirtiest log would read, how much is dirty.",
)
UNCLEANABLE: Final = _gauge("kafka_log_logcleanermanager_uncleanable_partitions_count", "Logs that cannot be cleaned.")
UNCLEANABLE_BYTES: Final = _gauge("kafka_log_logcleanermanager_uncleanable_bytes", "Bytes of these logs.")
CLEANINGS: Final = _counter("sparklog_cleanings_total", "Cleanings of single logs, by how they ended.", "outcome")
CLEANINGS_RUNNING: Final = _gauge("sparklog_cleanings_running", "Logs that are being cleaned.")

OFFLOAD_PARTITIONS: Final = _gauge(
    "sparklog_offload_waiting_partitions", "Partitions led here whose segments wait until they are offloaded."
)
OFFLOAD_HELD_BYTES: Final = _gauge(
    "sparklog_offload_held_bytes", "Bytes that retention would delete, and that are not offloaded.", "topic"
)
OFFLOAD_HELD_RECORDS: Final = _gauge("sparklog_offload_held_records", "Offsets of these.", "topic")
OFFLOAD_LIMIT_USED: Final = _gauge(
    "sparklog_offload_limit_used_ratio",
    "What share of sparklog.offload.max.bytes is held back, in the topic's partition where that is most.",
    "topic",
)
OFFLOAD_LOST_RECORDS: Final = _gauge(
    "sparklog_offload_lost_records",
    "Offsets deleted before they were known to be offloaded, for sparklog.offload.max.bytes, since this broker leads.",
    "topic",
)
RETENTION_REFUSALS: Final = _gauge(
    "sparklog_retention_refusals", "Partitions of which retention deletes nothing, since a policy fails."
)

_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
GROUPS: Final = _gauge(_GROUPS + "numgroups", "Groups that this broker coordinates.")
GROUP_OFFSETS: Final = _gauge(_GROUPS + "numoffsets", "Offsets that these groups have committed.")
GROUP_STATES: Final = {
    state: _gauge(f"{_GROUPS}numgroups{state.lower()}", f"Groups coordinated here in the state {state}.")
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
}
CONSUMER_GROUPS: Final = _gauge(
    "sparklog_groups", "Groups coordinated here, by the protocol of their members and their state.", "protocol", "state"
)
_OF_GROUP = ("consumergroup", "topic", "partition")
GROUP_MEMBERS: Final = _gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup")
GROUP_OFFSET: Final = _gauge(
    "kafka_consumergroup_current_offset", "The offset that a group has committed for a partition.", *_OF_GROUP
)
GROUP_LAG: Final = _gauge(
    "kafka_consumergroup_lag",
    "Offsets from there to the partition's high watermark, at brokers that know it.",
    *_OF_GROUP,
)
GROUP_LAG_SECONDS: Final = _gauge(
    "sparklog_group_lag_seconds",
    "For how long at least the record at that offset has been there, as far as scrapes have seen.",
    *_OF_GROUP,
)
GROUP_LAG_BYTES: Final = _gauge(
    "sparklog_group_lag_bytes",
    "Bytes of batches from that offset to the high watermark, up to an interval of the index and a batch too many.",
    *_OF_GROUP,
)
OFFSETS_LEFT_OUT: Final = _gauge(
    "sparklog_metrics_offsets_left_out", "Committed offsets without series, beyond sparklog.metrics.offsets.max."
)

TRANSACTIONS: Final = _gauge("sparklog_transactions", "Transactional ids coordinated here, by state.", "state")
TWO_PHASE: Final = _gauge(
    "sparklog_transactions_prepared",
    "Open transactions that never time out, as those of sinks that commit in two phases.",
)
TRANSACTIONS_ENDED: Final = _counter(
    "sparklog_transactions_ended_total",
    "Transactions whose markers are written everywhere: commit or abort; two-phase are those that never time out.",
    "outcome",
    "kind",
)
SINK_DECISIONS: Final = _counter(
    "sparklog_sink_decisions_total", "Decisions of Spark's sinks that were committed: one for each batch."
)
TRANSACTION_AGE: Final = _gauge("sparklog_transaction_oldest_seconds", "How long the oldest open one has been open.")

SCRAPES: Final = Family("sparklog_scrapes_total", COUNTER, (), "How often the metrics were read before.")
SCRAPE_LOOP: Final = Family(
    "sparklog_scrape_loop_seconds_total", COUNTER, (), "Elapsed seconds of the broker's loop on scrapes before."
)
SCRAPE_CPU: Final = _counter("sparklog_scrape_cpu_seconds_total", "Processor time of the loop's thread for the same.")

FAMILIES: Final = tuple(
    each
    for value in list(globals().values())
    for each in (value.values() if isinstance(value, dict) else (value,))
    if isinstance(each, Family)
)
"""All of them, in this order."""
