"""The port of the metrics, on a loop of the test's; a whole broker's is in ``integration/test_metrics.py``."""

import asyncio
import subprocess
import sys
from types import SimpleNamespace

import pytest
from metrics.pages import get

from sparklog.config.broker import BrokerConfig
from sparklog.errors import ConfigError
from sparklog.metrics.endpoint import MetricsEndpoint
from sparklog.net.turns import Turns


class Slow:
    """A scrape whose steps go on until it is let go."""

    def __init__(self):
        self.begun = 0
        self.let_go = False

    def steps(self):
        self.begun += 1
        while not self.let_go:
            yield
        return b"# the page\n"


def run(test, **settings):
    """Run ``test(endpoint, turns)`` on a loop, with an endpoint that answers."""

    async def main():
        turns = Turns(asyncio.get_running_loop())
        broker = SimpleNamespace(
            is_assembled=True, sockets=SimpleNamespace(turns=turns), why_not_ready=lambda: "it is the test's"
        )
        endpoint = MetricsEndpoint(broker, BrokerConfig(metrics_port=0, **settings))
        await endpoint.start()
        try:
            await test(endpoint)
        finally:
            await endpoint.close()

    asyncio.run(main())


async def ask(endpoint, path):
    return await asyncio.to_thread(get, f"http://{endpoint.address}{path}")


def test_scrapes_that_come_together_are_one_and_hold_up_nobody():
    async def test(endpoint):
        endpoint._scrape = scrape = Slow()
        asked = [asyncio.ensure_future(ask(endpoint, "/metrics")) for _ in range(5)]
        assert await ask(endpoint, "/health") == (200, "ok\n")
        assert await ask(endpoint, "/ready") == (503, "it is the test's\n")
        scrape.let_go = True
        answers = await asyncio.gather(*asked)
        assert scrape.begun < 5
        assert all(status == 200 and text.startswith("# the page\n") for status, text in answers)
        assert "process_cpu_seconds_total" in answers[0][1]

    run(test)


def test_a_scrape_under_way_does_not_keep_the_port_from_closing():
    async def test(endpoint):
        endpoint._scrape = Slow()
        asked = asyncio.ensure_future(endpoint._page())
        await asyncio.sleep(0)
        endpoint._under_way = asked

    run(test)


def test_one_address_does_not_take_the_port_from_the_others():
    async def test(endpoint):
        async def taken():
            reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.address.port)
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await reader.read(100)
            return writer, answer

        held = []
        try:
            while len(held) < 64:
                writer, answer = await taken()
                held.append(writer)
                if not answer:
                    break
            asked = await asyncio.open_connection("127.0.0.1", endpoint.address.port, local_addr=("127.0.0.2", 0))
            held.append(asked[1])
            asked[1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await asked[0].read(100)).startswith(b"HTTP/1.1 200")
        finally:
            for writer in held:
                writer.close()

    run(test)


def test_a_port_that_is_taken_is_named():
    async def test(endpoint):
        other = MetricsEndpoint(endpoint._broker, BrokerConfig(metrics_port=endpoint.address.port))
        with pytest.raises(
            ConfigError, match=rf"sparklog\.metrics\.port={endpoint.address.port} at 127\.0\.0\.1: .*in use"
        ):
            await other.start()
        await other.close()

    run(test)


@pytest.mark.parametrize(
    ("content", "why"), [(None, "cannot read"), (b"", "is empty"), (b" \n", "is empty"), (b"\xff", "cannot read")]
)
def test_a_token_that_is_none_is_refused(tmp_path, content, why):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=why):
        MetricsEndpoint(None, BrokerConfig(metrics_port=0, metrics_token_file=str(path)))


def test_a_broker_without_the_port_imports_no_web_server():
    imports = "import sys, sparklog.cli.commands.serve.broker, sparklog.broker.server"
    program = f"{imports};sys.exit(bool({{'aiohttp', 'prometheus_client'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_tokens_are_compared_in_a_time_that_tells_nothing_of_them(tmp_path, compared):
    path = tmp_path / "token"
    path.write_text("s3cret\n")

    async def test(endpoint):
        assert not endpoint._may_read("Bearer s3crex")
        assert endpoint._may_read("Bearer s3cret")
        assert compared == [(b"s3crex", b"s3cret"), (b"s3cret", b"s3cret")]

    run(test, metrics_token_file=str(path))
