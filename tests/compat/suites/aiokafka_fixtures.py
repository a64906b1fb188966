"""The fixtures that aiokafka's integration tests ask for, about a broker that runs already.

A pytest plugin, loaded in place of that suite's own conftest. The address is in ``SPARKLOG_PEER_ADDRESS``. If it has a
listener of SASL_PLAINTEXT and an authorizer, ``SPARKLOG_PEER_SASL_PORT`` has the port of that listener.
"""

import asyncio
import gc
import os
from pathlib import Path

import pytest
from compat.suites.foreign import KAFKA_VERSION

from sparklog.client.admin.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    Admin,
    Operation,
    ResourcePattern,
    ResourceType,
    UserScramUpsertion,
)
from sparklog.security.access import CLUSTER
from sparklog.security.acl.entry import Permission


class Absent:
    """Stands for what this broker does not have; a test that touches it is skipped."""

    def __getattr__(self, name):
        pytest.skip(f"this broker does not have it: {name}")


class AclManager:
    """That suite's own runs ``kafka-acls.sh``; this one sends the requests that the tool would send."""

    def __init__(self, address):
        self._address = address

    def list_acl(self):
        with Admin(bootstrap_servers=self._address) as admin:
            return admin.describe_acls(AclFilter())

    def add_acl(self, *, operation, allow_principal=None, deny_principal=None, cluster=False, **named):
        kind, name = ResourceType.CLUSTER, CLUSTER.name
        if not cluster:
            ((of, name),) = named.items()
            kind = ResourceType[of.upper()]
        user, permission = (
            (allow_principal, Permission.ALLOW) if deny_principal is None else (deny_principal, Permission.DENY)
        )
        what = () if operation == "All" else (Operation[operation],)
        entry = AclEntry(f"User:{user}", "*", *what)._replace(permission=permission)
        with Admin(bootstrap_servers=self._address) as admin:
            admin.create_acls([AclBinding(ResourcePattern(kind, name), entry)])

    def cleanup(self):
        with Admin(bootstrap_servers=self._address) as admin:
            admin.delete_acls([AclFilter()])


class Users:
    """That suite's own runs ``kafka-configs.sh``."""

    def __init__(self, address):
        self._address = address

    def add_scram_user(self, user, password):
        with Admin(bootstrap_servers=self._address) as admin:
            admin.alter_user_scram_credentials([UserScramUpsertion(user, "SCRAM-SHA-256", password)])


@pytest.fixture(scope="class")
def loop():
    own = asyncio.new_event_loop()
    asyncio.set_event_loop(own)
    yield own
    if not own.is_closed():
        own.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request, loop):
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request, loop):
    host, port = os.environ["SPARKLOG_PEER_ADDRESS"].rsplit(":", 1)
    wanted = {
        "loop": loop,
        "kafka_host": host,
        "kafka_port": int(port),
        "hosts": [f"{host}:{port}"],
        "kafka_version": KAFKA_VERSION,
        "ssl_folder": Path("absent"),
        **dict.fromkeys(("kafka_ssl_port", "kafka_sasl_plain_port", "kafka_sasl_ssl_port")),
        **dict.fromkeys(("acl_manager", "kerberos_utils", "kafka_config"), Absent()),
    }
    if port := os.environ.get("SPARKLOG_PEER_SASL_PORT"):
        (address,) = wanted["hosts"]
        wanted |= {"acl_manager": AclManager(address), "kafka_config": Users(address)}
        wanted["kafka_sasl_plain_port"] = int(port)
    for name, value in wanted.items():
        setattr(request.cls, name, value)
