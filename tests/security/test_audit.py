"""Lines say who was refused what; nobody can forge one, or fill the disk with them."""

import logging

import pytest

from sparklog.protocol.api_key import ApiKey
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.security.audit import AuditLog
from sparklog.security.caller import Caller
from sparklog.security.principal import Principal


@pytest.fixture(autouse=True)
def _all_levels(caplog):
    caplog.set_level(logging.INFO, "sparklog.audit")


def _refuse(audit, name="t", who="alice"):
    caller = Caller("10.0.0.1", "EXTERNAL", principal=Principal("User", who), api=ApiKey.PRODUCE)
    audit.refused(caller, Operation.WRITE, Resource(ResourceType.TOPIC, name))


def test_a_refusal_is_one_line_with_all_there_is_to_know(caplog):
    _refuse(AuditLog(lambda: 0.0))
    assert caplog.messages == [
        "refused: WRITE of TOPIC 't' to 'User:alice' from 10.0.0.1 by listener EXTERNAL, api PRODUCE"
    ]


def test_a_name_cannot_begin_a_line_and_is_not_written_without_end(caplog):
    _refuse(AuditLog(lambda: 0.0), "x\nrefused: nothing", "a\r\nb")
    _refuse(AuditLog(lambda: 0.0), "x" * 30_000)
    assert not any("\n" in each or "\r" in each for each in caplog.messages)
    assert max(map(len, caplog.messages)) < 500


def test_a_flood_is_counted_and_not_written(caplog):
    now = [0.0]
    audit = AuditLog(lambda: now[0])
    for _ in range(5000):
        _refuse(audit)
    _refuse(audit, who="bob")
    assert len(caplog.messages) == 21
    assert "'User:bob'" in caplog.messages[-1]
    now[0] = 10.0
    _refuse(audit)
    assert caplog.messages[-1].endswith("(and 4980 more of this kind before)")
    assert audit.refusals == {(ResourceType.TOPIC, Operation.WRITE): 5002}


def test_administration_is_told_of_in_full(caplog):
    AuditLog(lambda: 0.0).administered(Caller("10.0.0.1"), "added", ["a list"] * 100)
    assert len(caplog.messages) == 100
    assert caplog.messages[0] == "added: 'a list' by 'User:ANONYMOUS' from 10.0.0.1 by listener PLAINTEXT, api -"
