import json
import stat

import pytest


@pytest.fixture
def authority(run, tmp_path):
    assert run("cert", "ca", tmp_path / "ca").status == 0
    return tmp_path / "ca"


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_an_authority_and_a_broker(run, tmp_path, authority):
    issued = run(
        "cert", "issue", "broker-1", "--ca", authority, "--host", "log1", "--host", "10.0.0.1", "--out", tmp_path
    )
    assert issued.status == 0
    assert "CN=broker-1, for log1, 10.0.0.1, until " in issued.out
    assert (_mode(authority / "ca.key"), _mode(authority / "ca.pem")) == (0o600, 0o644)
    assert _mode(tmp_path / "broker-1.pem") == 0o600
    shown = run("cert", "show", tmp_path / "broker-1.pem", "--output", "json")
    (found,) = json.loads(shown.out)
    assert (found["subject"], found["names"]) == ("CN=broker-1", ["log1", "10.0.0.1"])
    assert found["for"] == ["server", "client"]
    assert found["days_left"] in (396, 397)


def test_what_is_shown_has_no_key(run, tmp_path, authority):
    run("cert", "issue", "alice", "--ca", authority, "--client", "--out", tmp_path)
    shown = run("cert", "show", tmp_path / "alice.pem")
    assert "subject      CN=alice" in shown.out
    assert "for          client" in shown.out
    assert "PRIVATE" not in shown.out


def test_nothing_is_written_over_without_being_asked(run, tmp_path, authority):
    before = (authority / "ca.key").read_bytes(), (authority / "ca.pem").read_bytes()
    refused = run("cert", "ca", authority)
    assert refused.status == 1
    assert "--force" in refused.err
    assert ((authority / "ca.key").read_bytes(), (authority / "ca.pem").read_bytes()) == before
    assert run("cert", "ca", authority, "--force").status == 0
    assert (authority / "ca.key").read_bytes() != before[0]


def test_a_renewed_file_is_the_same_with_another_key(run, tmp_path, authority):
    path = tmp_path / "broker-1.pem"
    run("cert", "issue", "broker-1", "--ca", authority, "--host", "log1", "--out", tmp_path, "--days", "3")
    before = path.read_bytes()
    renewed = run("cert", "renew", path, "--ca", authority)
    assert "CN=broker-1, for log1, until " in renewed.out
    assert path.read_bytes() != before
    assert _mode(path) == 0o600


def test_an_authority_of_others_is_not_taken(run, tmp_path, authority):
    (authority / "ca.key").chmod(0o644)
    refused = run("cert", "issue", "alice", "--ca", authority, "--client")
    assert refused.status == 1
    assert "chmod 600" in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("x",), "--client for a client"),
        (("x", "--client", "--host", "a"), "--client for a client"),
        (("../x", "--client"), "no name for a file"),
        (("x", "--host", "a b"), "no host name"),
    ],
)
def test_what_makes_no_certificate_is_said(run, tmp_path, authority, arguments, said):
    refused = run("cert", "issue", *arguments, "--ca", authority, "--out", tmp_path / "out")
    assert refused.status != 0
    assert said in refused.err
    assert not list(tmp_path.glob("out/*"))


def test_what_is_not_there_is_said(run, tmp_path):
    assert "cannot read" in run("cert", "show", tmp_path / "none.pem").err
    assert "cannot read" in run("cert", "issue", "x", "--ca", tmp_path, "--client").err
