"""``sparklog user``, by a broker and in ZooKeeper itself; the password is nowhere but in a file or the environment."""

import json

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture(params=["broker", "zookeeper"])
def user(request, here, topic):
    """The command, and a name of this test's own."""
    where = ("--zookeeper", request.getfixturevalue("chroot")) if request.param == "zookeeper" else ()

    def call(command, *arguments, **how):
        return here("user", command, *arguments, *where, **how)

    return call


def listed(user):
    return [tuple(each.values()) for each in json.loads(user("list", "--output", "json").out)]


def test_a_user_comes_changes_and_goes(user, topic, tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text("hidden\nmore")
    done = user("add", topic, "--password-file", secret)
    assert (done.status, done.out) == (0, f"{topic}: SCRAM-SHA-256, SCRAM-SHA-512\n")
    assert (topic, "SCRAM-SHA-256", 4096) in listed(user)
    monkeypatch.setenv("SECRET", "another")
    assert (
        user("add", topic, "--password-env", "SECRET", "--mechanism", "SCRAM-SHA-256", "--iterations", 8192).status == 0
    )
    assert [each[1:] for each in listed(user) if each[0] == topic] == [("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 4096)]
    assert user("add", topic, "--password-file", "-", stdin=b"third\n").status == 0
    assert user("delete", topic, "--mechanism", "SCRAM-SHA-256", "--yes").out == f"{topic}: no SCRAM-SHA-256 any more\n"
    assert [each[1] for each in listed(user) if each[0] == topic] == ["SCRAM-SHA-512"]
    assert user("delete", topic, "--yes").out == f"{topic}: no SCRAM-SHA-512 any more\n"
    assert topic not in user("list").out
    gone = user("delete", topic, "--yes")
    assert gone.status != 0
    assert "RESOURCE_NOT_FOUND" in gone.err


@pytest.mark.parametrize(
    ("arguments", "stdin", "complaint"),
    [
        (("--password-env", "NOT_SET"), b"", "the password is empty"),
        (("--password-file", "-"), b"\n", "the password is empty"),
        (("--password-file", "-"), b"\xff", "not UTF-8"),
        (("--password-file", "-", "--password-env", "X"), b"", "not both"),
        (("--password", "hidden"), b"", "No such option"),
        (("--iterations", "5"), b"", "4096<=x<=16384"),
    ],
)
def test_what_cannot_be_is_refused(here, topic, arguments, stdin, complaint):
    done = here("user", "add", topic, *arguments, stdin=stdin)
    assert done.status != 0
    assert complaint in done.err
