import asyncio
import ssl
from datetime import UTC, datetime

import pytest

from sparklog.security.certificates import CertificateAuthority
from sparklog.testing.scripted import ScriptedCluster


@pytest.fixture(scope="module")
def server_tls(tmp_path_factory):
    key_store = tmp_path_factory.mktemp("tls") / "broker.pem"
    now = datetime.now(UTC)
    authority = CertificateAuthority.make("test CA", now)
    key_store.write_bytes(authority.issue_broker("broker", ["127.0.0.1"], now).key_store)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key_store)
    return context


@pytest.mark.parametrize("turns", [0, 1, 2, 10])
@pytest.mark.parametrize("by_tls", [False, True])
def test_a_connection_whose_client_is_silent_is_closed_at_the_end(server_tls, by_tls, turns):
    async def ended() -> bytes:
        async with ScriptedCluster(tls=server_tls if by_tls else None) as cluster:
            reader, writer = await asyncio.open_connection(*cluster.brokers[0].endpoint)
            for _ in range(turns):
                await asyncio.sleep(0)
        try:
            return await asyncio.wait_for(reader.read(), 60)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    assert asyncio.run(ended()) == b""
