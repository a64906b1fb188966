"""DescribeUserScramCredentials: all users or some, with Kafka's codes; no key is told."""

from broker.users import FakeZk, asked

from sparklog.broker.apis.security import describe_user_scram_credentials as api
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import DescribeUserScramCredentialsRequest as Request
from sparklog.security.sasl.scram_credential import ScramCredential

ONE, TWO = (ScramCredential(b"salt", b"stored", b"server", number).format() for number in (4096, 8192))
USERS = {
    "users/b%20b": {"SCRAM-SHA-256": ONE},
    "users/alice": {"SCRAM-SHA-512": TWO, "SCRAM-SHA-256": ONE, "x": "1"},
    "users/quota": {"consumer_byte_rate": "5"},
    "users/<default>": {"consumer_byte_rate": "5"},
    "users/alice/clients/c": {"SCRAM-SHA-256": ONE},
    "clients/c": {"SCRAM-SHA-256": ONE},
}
ALICE, BEE = [(1, 4096), (2, 8192)], [(1, 4096)]


def outcome(*names, stored=USERS):
    users = [Request.UserName(name=each) for each in names] or None
    answer, _ = asked(api, Request(users=users), FakeZk(stored))
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, "")
    return [
        (
            each.user,
            ErrorCode(each.error_code).name
            if each.error_code
            else [(info.mechanism, info.iterations) for info in each.credential_infos],
        )
        for each in answer.results
    ]


def test_all_users_with_credentials_are_described_by_name():
    assert outcome() == [("alice", ALICE), ("b b", BEE)]
    assert outcome(stored={}) == []


def test_users_are_described_as_they_are_asked_for():
    assert outcome("b b", "none", "alice", "quota", "", "..") == [
        ("b b", BEE),
        ("none", "RESOURCE_NOT_FOUND"),
        ("alice", ALICE),
        ("quota", "RESOURCE_NOT_FOUND"),
        ("", "RESOURCE_NOT_FOUND"),
        ("..", "RESOURCE_NOT_FOUND"),
    ]


def test_who_is_asked_for_twice_is_answered_once_and_refused():
    assert outcome("alice", "b b", "alice") == [("alice", "DUPLICATE_RESOURCE"), ("b b", BEE)]
    assert outcome("", "") == [("", "RESOURCE_NOT_FOUND")]


def test_what_cannot_be_read_is_said_of_that_user_alone():
    stored = USERS | {"users/bad": {"SCRAM-SHA-256": "x"}, "users/worse": None}
    assert outcome(stored=stored) == [
        ("alice", ALICE),
        ("b b", BEE),
        ("bad", "UNKNOWN_SERVER_ERROR"),
        ("worse", "UNKNOWN_SERVER_ERROR"),
    ]
