"""The table of what Kafka's operators watch, against the families that there are, and the names that others know."""

import itertools
import re

import pytest
from metrics.jmx_rules import series_of

from sparklog.metrics.families import FAMILIES
from sparklog.metrics.kafkas import WATCHED

KNOWN = {each.name: each for each in FAMILIES}
GAUGE = ("Value",)
METER = ("Count", "MeanRate", "OneMinuteRate")
TIMER = (*METER, "Mean", "Max", "50thPercentile", "75thPercentile", "999thPercentile")
OF_OTHER_RULES = {
    "kafka_network_socketserver_networkprocessoravgidle_percent",  # Strimzi's rules
    "kafka_server_socket_server_metrics_connection_count",  # and this
    *(name for name in KNOWN if name.startswith("kafka_server_socketservermetrics_")),  # Confluent's
    *(name for name in KNOWN if name.startswith("kafka_consumergroup_")),  # exporters of lag
}
TOLD_BY_ANOTHER = {
    "server:type=BrokerTopicMetrics,name={NoKeyCompactedTopic,InvalidMagicNumber,InvalidMessageCrc,"
    "InvalidOffsetOrSequence}RecordsPerSec",
    "server:type=AddPartitionsToTxnManager,name={VerificationFailureRate,VerificationTimeMs}",
}
"""Beans whose numbers are in those of another bean here."""


def test_every_name_of_the_table_is_told_by_a_broker():
    assert [name for each in WATCHED for name in each.names if name not in KNOWN] == []


def test_every_name_of_kafkas_is_in_the_table():
    listed = {name for each in WATCHED for name in each.names}
    assert [name for name in KNOWN if name.startswith("kafka_") and name not in listed] == []


def test_what_is_not_here_says_why():
    assert [each.bean for each in WATCHED if not each.names and not each.note] == []
    assert len({each.bean for each in WATCHED}) == len(WATCHED)


@pytest.mark.parametrize(
    ("bean", "attribute", "expected"),
    [
        ("network:type=RequestMetrics,name=RequestsPerSec,request=Fetch,version=17", "Count",
         ("kafka_network_requestmetrics_requests_total", {"request": "Fetch", "version": "17"})),
        ("network:type=RequestMetrics,name=TotalTimeMs,request=Fetch", "999thPercentile",
         ("kafka_network_requestmetrics_totaltimems", {"request": "Fetch", "quantile": "0.999"})),
        ("coordinator.group:type=GroupMetadataManager,name=NumGroups", "Value",
         ("kafka_coordinator_group_groupmetadatamanager_numgroups", {})),
        ("log:type=LogCleaner,name=max-clean-time-secs", "Value", ("kafka_log_logcleaner_max_clean_time_secs", {})),
        ("server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent", "MeanRate",
         ("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", {})),
        ("server:type=ReplicaManager,name=LeaderCount", "OneMinuteRate", None),
    ],
)  # fmt: skip
def test_the_rules_name_a_number_as_the_exporter_does(bean, attribute, expected):
    """By what its documentation and the boards for it show."""
    assert series_of(f"kafka.{bean}", attribute) == expected


def test_the_exporters_rules_make_every_name_of_kafkas_with_its_labels():
    made = {series for each in WATCHED for bean in expanded(each.bean) for series in made_of(bean, each.names)}
    ours = {each.name: each.labels for each in FAMILIES if each.name.startswith("kafka_")}
    assert {name: labels for name, labels in ours.items() if (name, frozenset(labels)) not in made} == {
        name: KNOWN[name].labels for name in OF_OTHER_RULES
    }


def test_the_number_that_a_bean_is_watched_for_is_told_by_the_name_that_the_rules_make():
    by_beans = {
        bean: each.names
        for each in WATCHED
        if any(name.startswith("kafka_") for name in each.names) and each.bean not in TOLD_BY_ANOTHER
        for bean in expanded(each.bean)
    }
    made = {bean: series_of(f"kafka.{bean}", watched_attribute(bean)) for bean in by_beans}
    assert {bean: found for bean, found in made.items() if found is None or found[0] not in by_beans[bean]} == {}


def expanded(bean):
    """The beans that a row stands for: ``{a,b}`` is each of them. Those without a name are of no rule here."""
    parts = [each[1:-1].split(",") if each[0] == "{" else [each] for each in re.split(r"(\{[^}]*\})", bean) if each]
    return ["".join(each) for each in itertools.product(*parts)] if ",name=" in bean else []


def made_of(bean, names):
    """The series of all numbers of a bean that has, beyond its properties, the labels of the families ``names``."""
    for labels in {KNOWN[name].labels for name in names}:
        more = "".join(f",{each}=x" for each in labels if each not in bean and each != "quantile")
        for attribute in attributes(bean):
            if found := series_of(f"kafka.{bean}{more}", attribute):
                yield found[0], frozenset(found[1])


def attributes(bean):
    """Those of the kind of number that Kafka has there."""
    if bean.endswith(("TimeMs", "LatencyMs")):
        return TIMER
    return METER if bean.endswith(("PerSec", "RequestHandlerAvgIdlePercent")) else GAUGE


def watched_attribute(bean):
    """A meter of percents is watched for its rate, others for their counts."""
    return "MeanRate" if bean.endswith("RequestHandlerAvgIdlePercent") else attributes(bean)[0]
