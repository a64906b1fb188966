import re
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from sparklog.config.properties import load_properties
from sparklog.errors import ConfigError, CoordinationError
from sparklog.local.secured import SecureDirectory
from sparklog.security.certificates import describe, utc_now
from sparklog.testing.clock import ManualClock
from sparklog.testing.librdkafka import librdkafka_settings

HOSTS = ["log1.example.org"]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def secured(tmp_path, clock):
    found = SecureDirectory(tmp_path / "cluster" / "secure", clock)
    start(found, [])
    return found


def start(secured, entered, bootstrap="127.0.0.1:9092"):
    secured.prepare(HOSTS)
    secured.hand_out(bootstrap, lambda *user: entered.append(user))


def _files(secured):
    return {path.name: path.read_bytes() for path in secured.root.iterdir()}


def test_only_the_owner_reads_what_is_secret(secured):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in secured.root.iterdir()}
    assert modes.pop("ca.pem") == 0o644
    assert modes == dict.fromkeys(
        ["ca.key", "broker.pem", "broker.properties", "admin.properties", "spark.properties", "metrics.token"], 0o600
    )
    assert stat.S_IMODE(secured.root.stat().st_mode) == 0o700


def test_the_page_says_of_every_file_for_whom_it_is(secured):
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    table = page.partition("| file | for whom |\n")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines() for name in re.findall(r"`([\w.]+)`", row.split("|")[1])]
    assert sorted(named) == sorted(_files(secured))


def test_a_second_start_uses_what_is_there(secured):
    before, entered = _files(secured), []
    start(secured, entered)
    assert _files(secured) == before
    assert entered == []


def test_the_key_of_tokens_is_made_once(secured, tmp_path):
    def key():
        return load_properties(secured.broker_settings)["delegation.token.secret.key"]

    before = key()
    assert len(before) >= 32
    start(secured, [])
    assert key() == before
    start(SecureDirectory(tmp_path / "other"), [])
    assert load_properties(tmp_path / "other" / "broker.properties")["delegation.token.secret.key"] != before


def test_the_key_of_the_authority_may_be_kept_elsewhere(secured):
    before = _files(secured)
    (secured.root / "ca.key").unlink()
    start(secured, [])
    assert _files(secured) == {name: data for name, data in before.items() if name != "ca.key"}


@pytest.mark.parametrize(
    ("lost", "hosts", "days", "why"),
    [
        ("", ["10.0.0.7", "10.0.0.8"], 0, "has not the names 10.0.0.7, 10.0.0.8"),
        ("", HOSTS, 368, "ends on 2024-"),
        ("broker.pem", HOSTS, 0, "is not there"),
    ],
)
def test_what_the_key_of_the_authority_is_needed_for_is_said(secured, clock, lost, hosts, days, why):
    (secured.root / "ca.key").unlink()
    if lost:
        (secured.root / lost).unlink()
    clock.advance(timedelta(days=days).total_seconds())
    with pytest.raises(ConfigError) as caught:
        secured.prepare(hosts)
    said = str(caught.value)
    assert f"{secured.root / 'broker.pem'} {why}" in said
    assert said.endswith(f"put the authority's key back for this start, as {secured.root / 'ca.key'}")


def test_clients_are_told_where_the_cluster_is_now_and_keep_their_passwords(secured):
    before = load_properties(secured.client_settings("spark"))
    start(secured, [], "127.0.0.1:19092")
    after = load_properties(secured.client_settings("spark"))
    assert (before["bootstrap.servers"], after["bootstrap.servers"]) == ("127.0.0.1:9092", "127.0.0.1:19092")
    assert after["sasl.jaas.config"] == before["sasl.jaas.config"]


def test_each_user_is_entered_with_a_password_of_its_own(tmp_path):
    entered = []
    for name in ("one", "other"):
        start(SecureDirectory(tmp_path / name), entered)
    assert [user for user, _ in entered] == ["admin", "spark"] * 2
    passwords = [password for _, password in entered]
    assert len(set(passwords)) == 4
    assert all(len(each) >= 32 for each in passwords)
    made = [tmp_path / name / f"{user}.properties" for name in ("one", "other") for user in ("admin", "spark")]
    assert [librdkafka_settings(load_properties(each))["sasl.password"] for each in made] == passwords


def test_a_user_whose_entry_failed_is_entered_by_the_next_start(tmp_path):
    secured, entered = SecureDirectory(tmp_path / "secure"), []
    secured.prepare(HOSTS)
    with pytest.raises(CoordinationError):
        secured.hand_out("127.0.0.1:9092", _fails)
    start(secured, entered)
    assert [user for user, _ in entered] == ["admin", "spark"]


def _fails(user, password):
    raise CoordinationError("ZooKeeper is away")


def test_a_file_without_a_password_is_not_written_over(secured):
    secured.client_settings("spark").write_text("security.protocol=SASL_SSL\n")
    with pytest.raises(ConfigError, match=r"spark.properties has no password of spark; delete it"):
        start(secured, [])


def test_a_path_is_written_as_java_reads_it(tmp_path):
    secured = SecureDirectory(tmp_path / "d\u00e9p\u00f4t\\1" / "secure")
    start(secured, [])
    text = secured.client_settings("spark").read_bytes()
    assert text.isascii()
    found = load_properties(secured.client_settings("spark"))
    assert found["ssl.truststore.location"] == str(secured.root / "ca.pem")


def test_a_broker_is_told_no_password(secured):
    settings = load_properties(secured.broker_settings)
    assert "password" not in secured.broker_settings.read_text()
    assert settings["super.users"] == "User:admin;User:CN=sparklog-broker"
    assert settings["zookeeper.set.acl"] == "true"


@pytest.mark.parametrize("lost", ["ca.pem", "broker.pem", "broker.properties", "admin.properties"])
def test_a_start_that_died_is_completed_by_the_next(secured, lost):
    before = _files(secured)
    (secured.root / lost).unlink()
    start(secured, [])
    after = _files(secured)
    assert after.keys() == before.keys()
    assert after["spark.properties"] == before["spark.properties"]
    x509.load_pem_x509_certificate(_certificate(after["broker.pem"])).verify_directly_issued_by(
        x509.load_pem_x509_certificate(after["ca.pem"])
    )


def _certificate(key_store):
    return key_store[key_store.index(b"-----BEGIN CERTIFICATE") :]


def test_a_certificate_is_renewed_before_it_ends(secured, clock):
    before = describe((secured.root / "broker.pem").read_bytes())[0]
    clock.advance(timedelta(days=366).total_seconds())
    start(secured, [])
    assert describe((secured.root / "broker.pem").read_bytes())[0] == before
    clock.advance(timedelta(days=2).total_seconds())
    start(secured, [])
    after = describe((secured.root / "broker.pem").read_bytes())[0]
    assert after.not_after == utc_now(clock.now_ms()) + timedelta(days=397)
    assert after.names == before.names


def test_a_certificate_has_the_names_of_all_starts(secured):
    secured.prepare(["10.0.0.7"])
    found = describe((secured.root / "broker.pem").read_bytes())[0]
    assert {"log1.example.org", "10.0.0.7", "localhost", "127.0.0.1", "::1"} <= set(found.names)
    assert (found.subject, found.issuer) == (
        "CN=sparklog-broker",
        describe((secured.root / "ca.pem").read_bytes())[0].subject,
    )


def test_what_others_may_read_is_not_used(secured):
    secured.client_settings("admin").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        start(secured, [])
    secured.root.chmod(0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        start(secured, [])
