"""Boards of others, against the families that there are and the rules that make their names of them."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from fix_programs import lack_of

from sparklog.metrics.boards import BOARDS, NOT_TOLD, RECORDED, rules
from sparklog.metrics.families import FAMILIES

LACK = lack_of("prometheus")
FILE = Path(__file__).parents[2] / "conf" / "prometheus" / "names.yml"
TOLD = {each.name: set(each.labels) for each in FAMILIES} | {
    "process_open_fds": set(),
    "process_cpu_seconds_total": set(),
}
MADE = {name: expr for group in RECORDED.values() for name, expr in group.items()}
BY_RULES = {
    "kafka_server_brokertopicmetrics_messagesinpersec": {"topic"},
    "kafka_server_replicamanager_isrshrinkspersec": set(),
    "kafka_network_requestmetrics_errorspersec": {"request", "error"},
    "kafka_server_socketservermetrics_connection_creation_rate": {"listener", "network_processor"},
    "kafka_topic_partition_current_offset": {"topic", "partition"},
    "kafka_topic_partitions": {"topic"},
}
"""Labels of some series that the rules make."""


def asked():
    for board in BOARDS:
        for each in board.asked:
            name, _, labels = each.partition("{")
            yield board.title, name, set(labels.removesuffix("}").split(",")) - {""}


def labels_of(name):
    """Those of the series of the broker's, or of the rule's."""
    if name in TOLD:
        return TOLD[name]
    expr = MADE[name]
    by = re.findall(r"by \(([^)]*)\)", expr)
    return set(by[0].split(", ")) - {"job"} if by else TOLD[re.search(r"(?:kafka|sparklog)_\w+", expr)[0]]


def test_each_series_is_told_or_made_or_said_to_be_missing():
    unknown = [(board, name) for board, name, _ in asked() if name not in TOLD.keys() | MADE.keys() | NOT_TOLD.keys()]
    assert unknown == []


def test_each_series_has_the_labels_that_the_board_chooses_by():
    lacking = [
        (board, name, labels - labels_of(name))
        for board, name, labels in asked()
        if name not in NOT_TOLD and labels - labels_of(name)
    ]
    assert lacking == []


def test_what_is_missing_is_asked_for_and_is_not_there():
    names = {name for _, name, _ in asked()}
    assert NOT_TOLD.keys() <= names
    assert MADE.keys() <= names
    assert [name for name in MADE if name in TOLD or name in NOT_TOLD] == []
    with_another_label = {"kafka_server_replicafetchermanager_maxlag"}
    assert NOT_TOLD.keys() & TOLD.keys() == with_another_label


def test_rules_are_made_of_what_a_broker_tells():
    used = {name for expr in MADE.values() for name in re.findall(r"\b(?:kafka|sparklog)_\w+", expr)}
    assert used <= TOLD.keys()


def test_labels_of_some_names_are_as_they_are_read_from_the_rules():
    assert {name: labels_of(name) for name in BY_RULES} == BY_RULES


def test_the_file_is_made_of_the_table():
    assert FILE.read_text() == rules(), "stale: python -m sparklog.metrics.boards > conf/prometheus/names.yml"


@pytest.mark.skipif(bool(LACK), reason=LACK)
def test_prometheus_makes_the_names(tmp_path):
    """Of six records a minute in each of two partitions with two replicas, one of which lags."""
    log = 'kafka_log_log_{}{{job="sparklog", instance="{}", topic="t", partition="{}"}}'
    of_partitions = {
        log.format(what, instance, partition): value
        for what, value in (("size", 100), ("logstartoffset", 3), ("logendoffset", 9))
        for instance in "ab"
        for partition in "01"
    }
    of_partitions[log.format("logendoffset", "b", 1)] = 8
    under = 'kafka_cluster_partition_underreplicated{job="sparklog", instance="a", topic="t", partition="1"}'
    of_none = 'kafka_cluster_partition_underreplicated{job="sparklog", instance="b"}'
    of_listener = '{instance="a", listener="L", network_processor="0"}'
    counters = {
        'kafka_server_brokertopicmetrics_messagesin_total{instance="a", topic="t"}': 6,
        f"kafka_server_socketservermetrics_connection_creation_total{of_listener}": 60,
    }
    series = {name: f"{value}x10" for name, value in (of_partitions | {under: 1, of_none: 0}).items()}
    series |= {name: f"0+{step}x10" for name, step in counters.items()}
    expected = {
        "kafka_server_brokertopicmetrics_messagesinpersec": {'{instance="a", topic="t"}': 60},
        "kafka_server_socketservermetrics_connection_creation_rate": {of_listener: 1},
        "kafka_topic_partitions": {'{job="sparklog", topic="t"}': 2},
        "kafka_topic_partition_replicas": {
            '{job="sparklog", topic="t", partition="0"}': 2,
            '{job="sparklog", topic="t", partition="1"}': 2,
        },
        "kafka_topic_partition_current_offset": {
            '{job="sparklog", topic="t", partition="0"}': 9,
            '{job="sparklog", topic="t", partition="1"}': 9,
        },
        "kafka_topic_partition_oldest_offset": {
            '{job="sparklog", topic="t", partition="0"}': 3,
            '{job="sparklog", topic="t", partition="1"}': 3,
        },
        "kafka_topic_partition_under_replicated_partition": {
            '{job="sparklog", topic="t", partition="0"}': 0,
            '{job="sparklog", topic="t", partition="1"}': 1,
        },
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": name,
                "eval_time": "10m",
                "exp_samples": [{"labels": f"{name}{labels}", "value": value} for labels, value in samples.items()],
            }
            for name, samples in expected.items()
        ],
    }
    file = tmp_path / "names_test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": [test]}))
    subprocess.run(["promtool", "test", "rules", file], check=True)
