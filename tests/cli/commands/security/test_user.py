"""``sparklog user``, by a broker and in ZooKeeper itself; the password is in a file, or is typed."""

import json
import subprocess

import click
import pytest

pytestmark = pytest.mark.integration


@pytest.fixture(params=["broker", "zookeeper"])
def user(request, here):
    """The command, and a name of this test's own."""
    where = ("--zookeeper", request.getfixturevalue("chroot")) if request.param == "zookeeper" else ()

    def call(command, *arguments, **how):
        return here("user", command, *arguments, *where, **how)

    return call


def listed(user, name):
    rows = (tuple(each.values()) for each in json.loads(user("list", "--output", "json").out))
    return [each[1:] for each in rows if each[0] == name]


def test_a_user_comes_changes_and_goes(user, topic, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hidden\nmore")
    done = user("add", topic, "--password-file", secret, "--mechanism", "SCRAM-SHA-256", "--iterations", 8192)
    assert (done.status, done.out) == (0, f"{topic}: SCRAM-SHA-256\n")
    assert user("add", topic, "--password-file", secret, "--mechanism", "SCRAM-SHA-512").status == 0
    assert listed(user, topic) == [("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 4096)]
    done = user("set-password", topic, "--password-file", "-", stdin=b"another\n")
    assert (done.status, done.out) == (0, f"{topic}: SCRAM-SHA-256, SCRAM-SHA-512\n")
    assert listed(user, topic) == [("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 4096)]
    assert user("delete", topic, "--mechanism", "SCRAM-SHA-256", "--yes").out == f"{topic}: no SCRAM-SHA-256 any more\n"
    assert user("set-password", topic, "--password-file", secret, "--iterations", 5000).status == 0
    assert listed(user, topic) == [("SCRAM-SHA-512", 5000)]
    assert user("delete", topic, "--yes").out == f"{topic}: no SCRAM-SHA-512 any more\n"
    assert topic not in user("list").out
    gone = user("delete", topic, "--yes")
    assert gone.status != 0
    assert "RESOURCE_NOT_FOUND" in gone.err


def test_nobody_is_changed_by_a_mistake(user, topic):
    def adding(*mechanism):
        return user("add", topic, *mechanism, "--password-file", "-", stdin=b"first")

    unknown = user("set-password", topic, "--password-file", "-", stdin=b"second")
    assert unknown.status != 0
    assert f'"sparklog user add {topic}" adds it' in unknown.err
    assert adding("--mechanism", "SCRAM-SHA-512").status == 0
    again = adding()
    assert again.status != 0
    assert f'has SCRAM-SHA-512 already; "sparklog user set-password {topic}"' in again.err
    other = user("set-password", topic, "--mechanism", "SCRAM-SHA-256", "--password-file", "-", stdin=b"second")
    assert other.status != 0
    assert "no password for SCRAM-SHA-256" in other.err
    assert listed(user, topic) == [("SCRAM-SHA-512", 4096)]
    user("delete", topic, "--yes")


def test_a_person_is_asked_for_the_password(here, topic, monkeypatch):
    asked = []

    def prompt(text, **how):
        asked.append((text, how["hide_input"], how["confirmation_prompt"]))
        return "typed"

    monkeypatch.setattr(click, "prompt", prompt)
    done = here("user", "add", topic)
    assert done.status == 0
    assert asked == [(f"Password of {topic}", True, True)]
    assert "typed" not in done.out + done.err
    here("user", "delete", topic, "--yes")


def test_where_there_is_no_terminal_nobody_is_asked(spawn, bootstrap, topic):
    pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "start_new_session": True}
    _, complaint = spawn("user", "add", topic, "--bootstrap", bootstrap, **pipes).communicate(timeout=60)
    assert b"no terminal to ask at: give --password-file FILE" in complaint


@pytest.mark.parametrize(
    ("arguments", "stdin", "complaint"),
    [
        (("--password-file", "-"), b"\n", "the password is empty"),
        (("--password-file", "-"), b"", "the password is empty"),
        (("--password-file", "-"), b"\xff", "not UTF-8"),
        (("--password", "hidden"), b"", "seen by everybody who lists processes"),
        (("--iterations", "5"), b"", "is not a whole number from 4096 to 16384"),
        (("--zk-tls-config-file", "x"), b"", "say to which by --zookeeper"),
    ],
)
def test_what_cannot_be_is_refused(here, topic, arguments, stdin, complaint):
    done = here("user", "add", topic, *arguments, stdin=stdin)
    assert done.status != 0
    assert complaint in done.err
    assert "hidden" not in done.err
