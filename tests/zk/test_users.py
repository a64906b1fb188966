"""Users made in ZooKeeper itself."""

import json
import queue

import pytest

from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from sparklog.zk.client import ZkClient
from sparklog.zk.notifications import config_changes
from sparklog.zk.users import delete_password, iterations_of, scram_users, set_password

pytestmark = pytest.mark.integration
SHA_256, SHA_512 = ScramMechanism


@pytest.fixture
def zk(chroot):
    client = ZkClient(chroot, session_timeout=10.0, on_session=queue.Queue().put)
    yield client
    client.close()


def test_the_first_administrator_comes_before_any_broker(zk):
    set_password(zk, "ad min", "secret", dict.fromkeys(ScramMechanism, 4096))
    assert scram_users(zk) == {"ad min": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}
    stored = json.loads(zk.data("/config/users/ad%20min"))
    assert stored["version"] == 1
    for mechanism in ScramMechanism:
        kept = ScramCredential.parse(stored["config"][mechanism.title])
        assert kept == ScramCredential.of_password(mechanism, "secret", salt=kept.salt)
    (number,) = config_changes(zk).numbers()
    assert config_changes(zk).name(number) == "users/ad%20min"


def test_users_come_and_go_beside_their_other_settings(zk):
    zk.configs.update("users/alice", {"consumer_byte_rate": "5"})
    zk.configs.update("users/<default>", {"consumer_byte_rate": "5"})
    zk.configs.update("users/alice/clients/c", {"consumer_byte_rate": "5"})
    set_password(zk, "alice", "secret", {SHA_256: 8192})
    set_password(zk, "alice", "another", {SHA_512: 4096})
    assert scram_users(zk) == {"alice": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}}
    assert iterations_of(zk, "alice") == {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}
    assert iterations_of(zk, "bob") == {}
    delete_password(zk, "alice", [SHA_256])
    assert scram_users(zk) == {"alice": {"SCRAM-SHA-512": 4096}}
    with pytest.raises(ApiError) as caught:
        delete_password(zk, "alice", ScramMechanism)
    assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND
    delete_password(zk, "alice", [SHA_512])
    assert scram_users(zk) == {}
    assert zk.configs.of("users/alice") == {"consumer_byte_rate": "5"}


@pytest.mark.parametrize(("name", "password", "iterations"), [("", "s", 4096), ("a", "", 4096), ("a", "s", 5)])
def test_what_cannot_be_is_not_written(zk, name, password, iterations):
    with pytest.raises(ConfigError):
        set_password(zk, name, password, {SHA_256: iterations})
    assert zk.names("/config/users") == []


def test_a_malformed_credential_is_named_without_being_told(zk):
    zk.configs.update("users/alice", {"SCRAM-SHA-256": "salt=hidden"})
    with pytest.raises(ConfigError, match="user 'alice', SCRAM-SHA-256") as caught:
        scram_users(zk)
    assert "hidden" not in str(caught.value)
    delete_password(zk, "alice", [SHA_256])
    assert scram_users(zk) == {}
