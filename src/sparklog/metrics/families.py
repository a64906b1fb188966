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


def _by_topic(name: str, what: str) -> Family:
    return Family(_TOPIC + name, COUNTER, ("topic",), what)


RECORDS_IN: Final = _by_topic("messagesin_total", "Records appended to partitions that this broker leads.")
BYTES_IN: Final = _by_topic("bytesin_total", "Bytes of batches appended to partitions led here, as they were sent.")
BYTES_OUT: Final = _by_topic("bytesout_total", "Bytes of records that consumers were given.")
PRODUCES: Final = _by_topic("totalproducerequests_total", "Appends that were asked for, of single partitions.")
FETCHES: Final = _by_topic("totalfetchrequests_total", "Reads of single partitions, of consumers and followers.")
FAILED_PRODUCES: Final = _by_topic("failedproducerequests_total", "Appends that the disk refused.")
FAILED_FETCHES: Final = _by_topic("failedfetchrequests_total", "Reads that the disk refused or that met damage.")
REPLICATED_IN: Final = Family(
    _TOPIC + "replicationbytesin_total", COUNTER, (), "Bytes of batches copied from the leaders that are followed."
)
REPLICATED_OUT: Final = Family(
    _TOPIC + "replicationbytesout_total", COUNTER, (), "Bytes of records that followers were given."
)

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
REQUEST_BYTES: Final = Family("sparklog_request_bytes_total", COUNTER, ("request",), "Bytes of requests taken up.")
REQUEST_LOOP: Final = Family(
    "sparklog_request_loop_seconds_total",
    COUNTER,
    ("request",),
    "Seconds that the broker's loop spent on requests in their connections' turns.",
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
    "1 for each partition led here of which not every replica is in sync; others have no series.",
)
PARTITION_UNDER_MIN_ISR: Final = Family(
    "kafka_cluster_partition_underminisr",
    GAUGE,
    _PARTITION,
    "1 for each partition led here with fewer in sync than it needs; others have no series.",
)
PARTITIONS_LEFT_OUT: Final = Family(
    "sparklog_metrics_partitions_left_out",
    GAUGE,
    (),
    "Partitions without series of their own, beyond sparklog.metrics.partitions.max.",
)

SCRAPES: Final = Family("sparklog_scrapes_total", COUNTER, (), "How often the metrics were read before.")
SCRAPE_LOOP: Final = Family(
    "sparklog_scrape_loop_seconds_total", COUNTER, (), "Seconds that the broker's loop spent on scrapes before."
)

FAMILIES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Family))
"""All of them, in this order."""
