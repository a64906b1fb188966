"""Kafka's ConfigCommand sets, shows and removes quotas on our broker."""

import pytest
from compat.kafka_tools import CONFIGS

from sparklog.quota.entity import DEFAULT, Entity

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def test_config_command_sets_shows_and_removes_quotas(tool, admin, topic):
    whose = ("--entity-type", "users", "--entity-name", topic, "--entity-type", "clients", "--entity-default")
    tool(CONFIGS, "--alter", *whose, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    entity = Entity(topic, DEFAULT)
    assert dict(admin.describe_client_quotas(user=topic)) == {
        entity: {"producer_byte_rate": 1024, "request_percentage": 12.5}
    }
    said = tool(CONFIGS, "--describe", *whose)
    assert "producer_byte_rate=1024.0" in said
    tool(CONFIGS, "--alter", *whose, "--delete-config", "producer_byte_rate,request_percentage")
    assert admin.describe_client_quotas(user=topic) == []
