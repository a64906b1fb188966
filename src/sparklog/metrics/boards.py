"""Boards and alert rules that others have published for Kafka, and which of the series that they ask for are told here.

Of each board only the names of series stand here, as they were on 27 November 2026, with the labels by which it chooses
or adds up. Left out are the labels of a scrape's target, and series of others than a broker: the JVM, a container.

Some boards have other names for numbers that are told. Prometheus makes those names by recording rules, so that
they cost a broker nothing: ``python -m sparklog.metrics.boards > conf/prometheus/names.yml`` writes them anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple


class Board(NamedTuple):
    """``asked``: names of series, each with labels in braces if there are some."""

    title: str
    place: str
    asked: tuple[str, ...]


_TOPIC = "kafka_server_brokertopicmetrics_"
_REQUEST = "kafka_network_requestmetrics_"
_REPLICAS = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_SESSION = "kafka_server_sessionexpirelistener_"
_SOCKETS = "kafka_server_socketservermetrics_"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
_PARTITION = "kafka_topic_partition_"
_CONFLUENT = "github.com/confluentinc/jmx-monitoring-stacks"
_STRIMZI = "github.com/strimzi/strimzi-kafka-operator"
_STATES = ("stable", "preparingrebalance", "dead", "completingrebalance", "empty")
_TIMES = ("requestqueuetimems", "localtimems", "remotetimems", "responsequeuetimems", "responsesendtimems")


def _each(prefix: str, *names: str, of: str = "") -> tuple[str, ...]:
    return tuple(prefix + name + of for name in names)


BOARDS: Final = (
    Board(
        "Strimzi's board of a cluster",
        f"{_STRIMZI}: strimzi-kafka.json",
        (
            *_each(_REPLICAS, "leadercount", "partitioncount", "underreplicatedpartitions"),
            *_each(_CONTROLLER, "activecontrollercount", "offlinepartitionscount"),
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            *_each("kafka_cluster_partition_", "atminisr", "underminisr"),
            *_each(_TOPIC, "bytesin_total", "bytesout_total", "messagesin_total", of="{topic}"),
            *_each(_TOPIC, "totalproducerequests_total", "failedproducerequests_total", of="{topic}"),
            *_each(_TOPIC, "totalfetchrequests_total", "failedfetchrequests_total", of="{topic}"),
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            *_each("kafka_server_kafkaserver_linux_disk_", "read_bytes", "write_bytes"),
            "kafka_server_socket_server_metrics_connection_count{listener}",
            "kafka_log_log_size{topic,partition}",
            "kafka_cluster_partition_replicascount{topic}",
            "process_open_fds",
        ),
    ),
    Board(
        "Strimzi's alert rules of brokers",
        f"{_STRIMZI}: prometheus-kafka-rules.yaml",
        (
            *_each(_REPLICAS, "underreplicatedpartitions", "underminisrpartitioncount"),
            *_each(_CONTROLLER, "activecontrollercount", "offlinepartitionscount"),
            "kafka_log_logmanager_offlinelogdirectorycount",
        ),
    ),
    Board(
        "Strimzi's board of topics and groups, by the names of kafka_exporter",
        f"{_STRIMZI}: strimzi-kafka-exporter.json",
        (
            "kafka_topic_partitions{topic}",
            *_each(_PARTITION, "replicas", "in_sync_replica", "leader_is_preferred", of="{topic}"),
            _PARTITION + "under_replicated_partition{topic}",
            *_each("kafka_cluster_partition_", "atminisr", "underminisr", of="{topic}"),
            *_each(_PARTITION, "current_offset", "oldest_offset", of="{topic,partition}"),
            *_each("kafka_consumergroup_", "current_offset", "lag", of="{consumergroup,topic,partition}"),
            "kafka_broker_info",
        ),
    ),
    Board(
        "Confluent's board of a cluster",
        f"{_CONFLUENT}: kafka-cluster.json",
        (
            *_each(_CONTROLLER, "activecontrollercount", "preferredreplicaimbalancecount", "offlinepartitionscount"),
            "kafka_controller_controllerstats_uncleanleaderelectionspersec",
            *_each(_REPLICAS, "leadercount", "partitioncount", "underreplicatedpartitions"),
            *_each(_REPLICAS, "straypartitionscount", "straypartitionsmisclassifiedcount", "straypartitionstotalsize"),
            *_each(_REPLICAS, "isrshrinkspersec", "isrexpandspersec"),
            "kafka_cluster_partition_underminisr",
            *_each(_TOPIC, "bytesinpersec", "bytesoutpersec", "messagesinpersec", of="{topic}"),
            *_each(_TOPIC, "producemessageconversionspersec", "fetchmessageconversionspersec"),
            _REQUEST + "requestspersec{request}",
            _REQUEST + "errorspersec{error}",
            _REQUEST + "deprecatedrequestspersec_fiveminuterate{api_name}",
            *_each(_REQUEST, *_TIMES, "totaltimems", of="{request,quantile}"),
            *_each("kafka_server_kafkaserver_linux_disk_", "read_bytes", "write_bytes"),
            *_each("kafka_network_requestchannel_", "requestqueuesize", "responsequeuesize"),
            "kafka_network_socketserver_networkprocessoravgidlepercent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
            "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms{quantile}",
            *_each(_SESSION, "zookeepersyncconnectspersec", "zookeeperexpirespersec", "zookeeperdisconnectspersec"),
            _SESSION + "zookeeperauthfailurespersec",
            "kafka_log_log_size{topic}",
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec",
            *_each("kafka_server_replicafetchermanager_", "minfetchrate", "maxlag", of="{clientid}"),
            *_each(_SOCKETS, "connection_count", "connection_creation_rate", "connection_close_rate", of="{listener}"),
            _SOCKETS + "connections{client_software_name}",
            "kafka_network_acceptor_acceptorblockedpercent",
            *_each(_GROUPS, "numgroups", *(f"numgroups{state}" for state in _STATES)),
            "kafka_log_log_tiersize",
            "kafka_server_kafkaserver_brokerstate",
            "process_cpu_seconds_total",
        ),
    ),
    Board(
        "Confluent's board of topics",
        f"{_CONFLUENT}: kafka-topics.json",
        (
            *_each(_CONTROLLER, "globaltopiccount", "globalpartitioncount"),
            *_each(_TOPIC, "messagesinpersec", "bytesinpersec", "bytesoutpersec", of="{topic}"),
            *_each(_TOPIC, "totalproducerequestspersec", "totalfetchrequestspersec", of="{topic}"),
            *_each("kafka_log_log_", "size", "logstartoffset", "logendoffset", of="{topic}"),
            "kafka_log_log_tiersize{topic}",
        ),
    ),
)


def _rates() -> Iterator[tuple[str, str]]:
    """Confluent's rules leave ``PerSec`` in the names of counters."""
    by_topic = ("bytesin", "bytesout", "messagesin", "totalproducerequests", "totalfetchrequests")
    conversions = ("producemessageconversions", "fetchmessageconversions")
    for room, names in (
        (_TOPIC, by_topic + conversions),
        (_REQUEST, ("requests", "errors")),
        (_REPLICAS, ("isrshrinks", "isrexpands")),
        (_SESSION, ("zookeepersyncconnects", "zookeeperexpires", "zookeeperdisconnects")),
        ("kafka_controller_controllerstats_", ("uncleanleaderelections",)),
    ):
        yield from ((f"{room}{name}persec", f"{room}{name}_total") for name in names)


_HANDLER = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle"
_OF_PARTITION = "by (job, topic, partition)"
RECORDED: Final = {
    "confluent": {
        **dict(_rates()),
        f"{_HANDLER}percent_oneminuterate": f"{_HANDLER}_percent",
        "kafka_network_requestchannel_requestqueuesize": "sparklog_turns_waiting",
        f"{_SOCKETS}connection_creation_rate": f"rate({_SOCKETS}connection_creation_total[1m])",
        f"{_SOCKETS}connection_close_rate": f"rate({_SOCKETS}connection_close_total[1m])",
    },
    "kafka-exporter": {
        "kafka_topic_partitions": f"count by (job, topic) (max {_OF_PARTITION} (kafka_log_log_size))",
        f"{_PARTITION}replicas": f"count {_OF_PARTITION} (kafka_log_log_size)",
        f"{_PARTITION}current_offset": f"max {_OF_PARTITION} (kafka_log_log_logendoffset)",
        f"{_PARTITION}oldest_offset": f"max {_OF_PARTITION} (kafka_log_log_logstartoffset)",
        f"{_PARTITION}under_replicated_partition": f"max {_OF_PARTITION}"
        ' (kafka_cluster_partition_underreplicated{topic!=""})'
        f" or 0 * max {_OF_PARTITION} (kafka_log_log_size)",
    },
}
"""Group of rules → name → the expression that makes it."""

_NO_QUEUE = "An answer is sent in the turn in which it is known."
_SUMS = "No percentiles, but sums: `sparklog_request_queue_seconds_total`, `sparklog_request_loop_seconds_total`."
NOT_TOLD: Final = {
    "kafka_cluster_partition_replicascount": "The list of topics is empty, and All shows everything. A fifth series of "
    "each partition would make the page a quarter longer. Let the list ask for `kafka_log_log_size`.",
    f"{_PARTITION}in_sync_replica": "As above; `kafka_cluster_partition_underreplicated` names those that lack some.",
    f"{_PARTITION}leader_is_preferred": "Of all: `kafka_controller_kafkacontroller_preferredreplicaimbalancecount`.",
    "kafka_broker_info": "The target of the scrape is the broker: `up`.",
    f"{_REPLICAS}straypartitionscount": "Not counted; a stray is set aside, and the log says so.",
    f"{_REPLICAS}straypartitionsmisclassifiedcount": "As above.",
    f"{_REPLICAS}straypartitionstotalsize": "As above.",
    f"{_REQUEST}deprecatedrequestspersec_fiveminuterate": "By version: `kafka_network_requestmetrics_requests_total`.",
    f"{_REQUEST}requestqueuetimems": _SUMS,
    f"{_REQUEST}localtimems": _SUMS,
    f"{_REQUEST}remotetimems": _SUMS,
    f"{_REQUEST}responsequeuetimems": _NO_QUEUE,
    f"{_REQUEST}responsesendtimems": _NO_QUEUE,
    "kafka_network_requestchannel_responsequeuesize": _NO_QUEUE,
    f"{_SESSION}zookeeperauthfailurespersec": "Not counted.",
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec": "Not counted.",
    "kafka_server_replicafetchermanager_minfetchrate": "Not measured; see `sparklog_follower_lag_records`.",
    "kafka_server_replicafetchermanager_maxlag": "Told with the label `clientId`, as by the JMX exporter's example; "
    "Confluent's rules have small letters.",
    f"{_SOCKETS}connections": "A label of the client's software would grow with the clients.",
    "kafka_network_acceptor_acceptorblockedpercent": "There is no thread that accepts.",
    "kafka_log_log_tiersize": "Of Confluent's own broker.",
}
"""Name → why, and what stands for it."""

_HEAD = """\
# Names that boards of others have for numbers of sparklog's brokers; docs/metrics.md says which boards these are.
# To use them, add this file to rule_files. Made by: python -m sparklog.metrics.boards > conf/prometheus/names.yml
groups:
"""


def rules() -> str:
    """The file of recording rules."""
    groups = (
        f"  - name: {group}\n    rules:\n"
        + "".join(f"      - record: {name}\n        expr: {expr}\n" for name, expr in made)
        for group, made in ((group, names.items()) for group, names in RECORDED.items())
    )
    return _HEAD + "".join(groups)


if __name__ == "__main__":
    sys.stdout.write(rules())
