"""``docs/zookeeper-consumers.md``: its first program runs, and its table of settings is that of the code."""

import re
from pathlib import Path

import pytest

from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.zookeeper.config import ZooKeeperConsumerConfig
from sparklog.config.definition import definitions

_PAGE = (Path(__file__).parents[2] / "docs" / "zookeeper-consumers.md").read_text()


@pytest.mark.integration
def test_the_first_program(cluster, topic, capsys):
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, {})])
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, b"x")
    (program,) = re.findall(r"## Read a topic\n\n```python\n(.*?)```", _PAGE, re.DOTALL)
    named = program.replace('"clicks"', repr(topic)).replace('"readers"', repr(topic))
    exec(named, {"zookeeper": cluster.zookeeper_connect})
    printed = f"0 0 b'x'\nfrozenset({{TopicPartition(topic='{topic}', partition=0)}})\n"
    assert capsys.readouterr().out == printed


def test_the_settings_are_those_of_the_code():
    (table,) = re.findall(r"## Settings\n\n.*?\n.*?\n(.*?)\n\n", _PAGE, re.DOTALL)
    rows = [
        f"| `{name}` | {definition.format(definition.default)} | {definition.doc} |"
        for name, (_, definition) in definitions(ZooKeeperConsumerConfig).items()
    ]
    assert table.split("\n") == rows
