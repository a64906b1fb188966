"""``sparklog token``, by a broker that asks for credentials; a token's secret is in a file, or shown once."""

import json
import stat

import pytest
from integration.test_sasl import SCRAM, set_password

from sparklog.config.properties import format_properties, load_properties
from sparklog.local.ports import free_port
from sparklog.testing.broker import BrokerHarness
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def secured(tmp_path_factory, zookeeper):
    """Where clients with credentials find a broker; there is a user ``alice`` and a user ``bob``."""
    connect = f"{zookeeper.connect_string}/cli-tokens"
    zk = ZkClient(connect, session_timeout=10, on_session=lambda _: None)
    zk.ensure_tree()
    for user in ("alice", "bob"):
        set_password(zk, user, f"{user}-secret")
    zk.close()
    plain, sasl = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "delegation.token.secret.key": "key",
    }
    broker = BrokerHarness(tmp_path_factory.mktemp("broker"), connect, 0, plain, settings)
    broker.start()
    yield f"127.0.0.1:{sasl}"
    broker.stop()


@pytest.fixture
def by(run, secured, tmp_path):
    """``by(user, ARGS)``: ``sparklog ARGS`` as this user, or with this file of settings."""

    def call(who, *arguments):
        path = who
        if isinstance(who, str):
            path = tmp_path / f"{who}.properties"
            jaas = f'{SCRAM} username="{who}" password="{who}-secret";'
            settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
            path.write_text(format_properties({**settings, "sasl.jaas.config": jaas, "bootstrap.servers": secured}))
        return run(*arguments, "--command-config", path)

    return call


def told(result):
    assert result.status == 0, result.err
    return json.loads(result.out)


def test_a_token_in_a_file_is_a_clients_settings(by, tmp_path):
    out = tmp_path / "job.properties"
    done = by("alice", "token", "create", "--out", out, "--mechanism", "SCRAM-SHA-256")
    assert done.status == 0, done.err
    assert done.out.startswith(f"{out}: token ")
    assert done.out.split()[2:5] == [load_properties(out)["sasl.jaas.config"].split('"')[1], "of", "User:alice,"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert "alice-secret" not in out.read_text()
    assert by(out, "topic", "list").status == 0
    refused = by(out, "token", "create")
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused.err
    before = told(by("alice", "token", "describe", "--output", "json"))
    again = by("alice", "token", "create", "--out", out)
    assert "is there already" in again.err
    assert told(by("alice", "token", "describe", "--output", "json")) == before
    renewed = told(by("alice", "token", "create", "--out", out, "--force", "--output", "json"))
    assert renewed.pop("expires_ms") > 0
    assert renewed == {
        "file": str(out),
        "token": load_properties(out)["sasl.jaas.config"].split('"')[1],
        "owner": "User:alice",
    }


def test_a_token_is_made_shown_renewed_and_ended_by_its_id(by):
    (made,) = told(by("alice", "token", "create", "--renewer", "User:bob", "--output", "json"))
    assert (made["owner"], made["renewers"], len(made["hmac"])) == ("User:alice", "User:bob", 88)
    shown = by("bob", "token", "describe", "--output", "json")
    assert made["hmac"] not in shown.out
    assert {**made, "hmac": None} in [{**each, "hmac": None} for each in told(shown)]
    assert [each["token"] for each in told(by("bob", "token", "describe", made["token"], "-o", "json"))] == [
        made["token"]
    ]
    assert told(by("alice", "token", "describe", "--owner", "User:carol", "--output", "json")) == []
    renewed = by("bob", "token", "renew", made["token"], "--period-ms", 60_000)
    assert renewed.out.startswith(f"{made['token']}: until ")
    later = by("alice", "token", "expire", made["token"], "--period-ms", 30_000, "--yes")
    assert later.out.startswith(f"{made['token']}: until ")
    said = told(by("bob", "token", "renew", made["token"], "--period-ms", 60_000, "--output", "json"))
    assert said["token"] == made["token"]
    sooner = told(by("alice", "token", "expire", made["token"], "--period-ms", 30_000, "--yes", "--output", "json"))
    assert sooner["expires_ms"] < said["expires_ms"]
    assert by("alice", "token", "expire", made["token"], "--yes").out == f"{made['token']}: ended\n"
    gone = by("alice", "token", "renew", made["token"])
    assert gone.status != 0
    assert '"sparklog token describe" says which' in gone.err


def test_a_token_without_credentials_is_refused_in_words(here):
    refused = here("token", "create")
    assert refused.status != 0
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused.err
    assert "--command-config" in refused.err
