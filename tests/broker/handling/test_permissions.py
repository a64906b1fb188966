"""Which topics are protected, from what, and where an operator allows it."""

import pytest

from sparklog.broker.handling.permissions import check_settings_keep_state, check_state_is_kept
from sparklog.config.broker import parse_broker_config
from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import DECISIONS_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC

PROTECTED = parse_broker_config({})
ALLOWED = parse_broker_config({"sparklog.internal.topics.protect": "false"})


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC, DECISIONS_TOPIC])
def test_what_coordinators_and_sinks_have_stored_is_kept(topic):
    with pytest.raises(ApiError, match=rf"^POLICY_VIOLATION: {topic} holds .* so it cannot be deleted; ") as refused:
        check_state_is_kept(PROTECTED, topic, "deleted")
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    check_state_is_kept(ALLOWED, topic, "deleted")


def test_other_topics_are_their_owners():
    check_state_is_kept(PROTECTED, "orders", "deleted")
    check_settings_keep_state(PROTECTED, "orders", {}, {"retention.ms": "1"})


@pytest.mark.parametrize("name", ["cleanup.policy", "retention.ms", "retention.bytes"])
def test_no_setting_gives_up_what_is_kept(name):
    kept, lost = {name: "compact"}, {name: "1"}
    for before, after in ((kept, lost), ({}, lost), (lost, {})):
        with pytest.raises(ApiError, match=f"so it cannot be given another {name}; "):
            check_settings_keep_state(PROTECTED, TRANSACTIONS_TOPIC, before, after)
    check_settings_keep_state(PROTECTED, TRANSACTIONS_TOPIC, lost, lost)
    check_settings_keep_state(ALLOWED, TRANSACTIONS_TOPIC, kept, lost)


def test_what_keeps_more_or_says_only_when_is_free():
    before = {"cleanup.policy": "delete"}
    after = {"cleanup.policy": "compact", "segment.bytes": "1000000"}
    check_settings_keep_state(PROTECTED, TRANSACTIONS_TOPIC, before, after)
