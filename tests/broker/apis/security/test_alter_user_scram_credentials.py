"""AlterUserScramCredentials: Kafka's codes for what is wrong, and no other setting of a user is touched."""

import logging
from types import SimpleNamespace

import pytest
from broker.users import FakeZk, asked

from sparklog.broker.apis.security import alter_user_scram_credentials as api
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import AlterUserScramCredentialsRequest as Request
from sparklog.security.audit import AuditLog
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism
ONE = ScramCredential(b"salt", b"stored", b"server", 4096).format()


def upsertion(name="alice", mechanism=1, iterations=4096, salt=b"salt", salted=b"salted"):
    return Request.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def deletion(name="alice", mechanism=1):
    return Request.ScramCredentialDeletion(name=name, mechanism=mechanism)


def outcome(zk, deletions=(), upsertions=(), **how):
    message = Request(deletions=list(deletions), upsertions=list(upsertions))
    answer, seen = asked(api, message, zk, **how)
    for each in answer.results:
        assert (each.error_message == "") is (each.error_code == ErrorCode.NONE), "Kafka tells an empty text, not none"
    return {each.user: ErrorCode(each.error_code).name for each in answer.results}, seen


def test_credentials_come_and_go_beside_a_users_other_settings():
    zk = FakeZk({"users/alice": {"consumer_byte_rate": "5", "SCRAM-SHA-512": ONE}})
    codes, seen = outcome(zk, [deletion(mechanism=2)], [upsertion(), upsertion("b b", 2, 16384)])
    assert codes == {"alice": "NONE", "b b": "NONE"}
    assert seen == ["users/alice", "users/b%20b"]
    assert zk.stored == {
        "users/alice": {
            "consumer_byte_rate": "5",
            "SCRAM-SHA-256": ScramCredential.of_salted(SHA_256, b"salted", b"salt", 4096).format(),
        },
        "users/b%20b": {"SCRAM-SHA-512": ScramCredential.of_salted(SHA_512, b"salted", b"salt", 16384).format()},
    }


@pytest.mark.parametrize(
    ("deletions", "upsertions", "code"),
    [
        ([], [upsertion(iterations=4095)], "UNACCEPTABLE_CREDENTIAL"),
        ([], [upsertion(iterations=16385)], "UNACCEPTABLE_CREDENTIAL"),
        ([], [upsertion(), upsertion(mechanism=2, iterations=5)], "UNACCEPTABLE_CREDENTIAL"),
        ([], [upsertion(salted=b"")], "UNACCEPTABLE_CREDENTIAL"),
        ([], [upsertion(mechanism=0)], "UNSUPPORTED_SASL_MECHANISM"),
        ([], [upsertion(mechanism=3)], "UNSUPPORTED_SASL_MECHANISM"),
        ([deletion(mechanism=0)], [], "UNSUPPORTED_SASL_MECHANISM"),
        ([deletion(mechanism=9)], [upsertion(iterations=5)], "UNACCEPTABLE_CREDENTIAL"),
        ([], [upsertion(iterations=5), upsertion(mechanism=9)], "UNSUPPORTED_SASL_MECHANISM"),
        ([], [upsertion(), upsertion()], "DUPLICATE_RESOURCE"),
        ([deletion()], [upsertion()], "DUPLICATE_RESOURCE"),
        ([deletion(), deletion()], [], "DUPLICATE_RESOURCE"),
        ([deletion()], [], "RESOURCE_NOT_FOUND"),
        ([deletion()], [upsertion(mechanism=2)], "RESOURCE_NOT_FOUND"),
    ],
)
def test_what_is_wrong_changes_nothing_of_that_user_and_the_others_are_changed(deletions, upsertions, code):
    zk = FakeZk({"users/alice": {"x": "1"}})
    codes, seen = outcome(zk, deletions, [*upsertions, upsertion("bob")])
    assert codes == {"alice": code, "bob": "NONE"}
    assert (zk.stored["users/alice"], seen) == ({"x": "1"}, ["users/bob"])


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_no_user_can_have_is_refused(name):
    zk = FakeZk()
    assert outcome(zk, [], [upsertion(name)])[0] == {name: "UNACCEPTABLE_CREDENTIAL"}
    assert outcome(zk, [deletion(name)])[0] == {name: "UNACCEPTABLE_CREDENTIAL"}
    assert zk.stored == {}


def test_the_controller_alone_changes_users():
    zk = FakeZk()
    assert outcome(zk, [deletion("b")], [upsertion("a")], is_active=False) == (
        {"a": "NOT_CONTROLLER", "b": "NOT_CONTROLLER"},
        [],
    )
    assert zk.stored == {}


def test_a_change_is_in_the_audit_log_and_a_refused_one_is_not(caplog):
    caplog.set_level(logging.INFO, "sparklog.audit")
    acls = SimpleNamespace(audit=AuditLog(lambda: 0.0))
    zk = FakeZk({"users/alice": {"SCRAM-SHA-512": ONE}})
    outcome(zk, [deletion(mechanism=2), deletion("nobody")], [upsertion()], acls=acls)
    by = "by 'User:ANONYMOUS' from h by listener PLAINTEXT, api -"
    assert [each.getMessage() for each in caplog.records] == [
        f"removed: 'SCRAM-SHA-512 of User:alice' {by}",
        f"set: 'SCRAM-SHA-256 of User:alice' {by}",
    ]


def test_nothing_asked_is_nothing_done():
    assert outcome(FakeZk()) == ({}, [])
