"""``sparklog acl`` on ZooKeeper itself, where lists are made before the first broker starts."""

import json

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture
def acl(run, chroot):
    def call(command, *arguments):
        return run("acl", command, "--zookeeper", chroot, *arguments)

    return call


def listed(acl, *arguments):
    found = json.loads(acl("list", "--output", "json", *arguments).out)
    return sorted((each["type"], each["name"], each["principal"], each["operation"]) for each in found)


def test_what_a_consumer_needs_comes_and_goes(acl):
    consumer = ("--allow-principal", "User:alice", "--consumer", "--topic", "clicks", "--group", "readers")
    assert acl("add", *consumer).status == 0
    expected = [
        ("GROUP", "readers", "User:alice", "READ"),
        ("TOPIC", "clicks", "User:alice", "DESCRIBE"),
        ("TOPIC", "clicks", "User:alice", "READ"),
    ]
    assert listed(acl) == expected
    assert listed(acl, "--topic", "clicks", "--resource-pattern-type", "match") == expected[1:]
    assert listed(acl, "--principal", "User:bob") == []
    assert acl("remove", "--topic", "clicks", "--yes").out.count("removed TOPIC:LITERAL:clicks") == 2
    assert acl("remove", *consumer, "--yes").status == 0
    assert listed(acl) == []
    assert acl("remove", *consumer, "--yes") == (0, "", "no entry matches\n")


def test_a_denial_of_a_prefix_from_one_host(acl):
    done = acl(
        *("add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Write"),
        *("--topic", "secret-", "--resource-pattern-type", "prefixed"),
    )
    assert done.out == "TOPIC:PREFIXED:secret-: User:bob may not WRITE from 10.0.0.1\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["add", "--topic", "t"], "--allow-principal"),
        (["add", "--allow-principal", "User:a", "--group", "g", "--operation", "Write"], "no operation of a GROUP"),
        (["add", "--allow-principal", "User:a", "--topic", "t", "--operation", "Fly"], "there is no operation"),
        (["add", "--allow-principal", "a", "--topic", "t"], "is no principal"),
        (["add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"], "literal or"),
        (["remove", "--yes"], "say of what"),
        (["remove", "--topic", "t", "--operation", "Write", "--yes"], "--operation says nothing without --allow-pr"),
        (["remove", "--topic", "t", "--deny-host", "::1", "--yes"], "--deny-host says nothing without --allow-princip"),
        (["remove", "--topic", "t", "--consumer", "--yes"], "--consumer says nothing without --allow-principal"),
        (["add", "--allow-principal", "User:a", "--deny-host", "::1", "--topic", "t"], "without --deny-principal"),
        (["add", "--allow-principal", "User:a", "--producer", "--operation", "Read", "--topic", "t"], "leave out --op"),
        (["add", "--allow-principal", "User:a", "--producer", "--group", "g"], "a producer needs --topic"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_refused(acl, arguments, named):
    done = acl(*arguments)
    assert done.status == 2
    assert named in done.err
