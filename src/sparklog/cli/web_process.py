"""The page beside a broker: ``sparklog web`` as a child process, where ``sparklog.web.port`` asks for it.

The page decodes what strangers wrote, and a search looks at 256 MiB: on the broker's loop that would hold up requests,
and on a thread of the broker it would take the interpreter from the loop. So it has a process. The broker has the
listening socket, so that a port in use ends the start, and visitors wait while a page that died is begun again.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sparklog.cli.registry_values import registry_settings
from sparklog.config.broker import BrokerConfig, is_every_address
from sparklog.config.command_config import BROKERS, ENVIRONMENT
from sparklog.config.listeners import Listener, parse_protocol
from sparklog.config.properties import load_properties
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ConfigError
from sparklog.local import leash
from sparklog.local.broker import PROGRAM
from sparklog.structs import bracketed

_logger = logging.getLogger(__name__)
_BOOTSTRAP = "bootstrap.servers"
_AGAIN_S = 5.0
_GRACE_S = 5.0
_LINE_LIMIT = 1 << 20
_SETTINGS = {
    "--host": "sparklog.web.host",
    "--certificate FILE": "sparklog.web.certificate",
    "--certificate": "sparklog.web.certificate",
    "--origin": "sparklog.web.origin",
}
"""Options of ``sparklog web``, and a broker's settings in their place."""


class WebProcess:
    """``listen``, then ``begin`` when the broker serves; ``end`` it in any case. Belongs to the loop's thread."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises ConfigError for settings that do not go together, and where a package is missing."""
        if importlib.util.find_spec("aiohttp") is None:
            raise ConfigError(f"sparklog.web.port={config.web_port} needs the package aiohttp: pip install aiohttp")
        from sparklog.web.settings import WebSettings

        self._config = config
        self._client = _client_settings(config)
        try:
            self._settings = WebSettings.of(
                {_BOOTSTRAP: f"{config.web_host}:1", **self._client},
                host=config.web_host,
                origin=config.web_origin,
                certificate=Path(config.web_certificate) if config.web_certificate else None,
            )
            self._settings.tls_context()
            _check_registry(config)
        except ConfigError as error:
            raise ConfigError(f"sparklog.web.port={config.web_port}: {_by_settings(str(error))}") from error
        self._address_at(config.ends.bound)
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return None if self._process is None else self._process.pid

    def listen(self) -> str:
        """Have the port, and say where the page will be. Raises ConfigError if it cannot be had."""
        from sparklog.net.http_connections import http_socket

        port = self._config.web_port
        self._socket = http_socket(self._config.web_host, port, f"sparklog.web.port={port}")
        return self._settings.url(self._socket.getsockname()[1])

    def begin(self, listeners: Sequence[Listener]) -> None:
        """Have the page served until ``end``; ``listeners`` are those of the broker, with their ports."""
        self._running = asyncio.ensure_future(self._run(self._command(self._address_at(listeners))))

    async def end(self) -> None:
        """Serve it no more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._stop()
        if self._socket is not None:
            self._socket.close()

    def _address_at(self, listeners: Sequence[Listener]) -> str:
        """What the client asks first: the brokers of its file, or this one. Raises ConfigError for nowhere."""
        protocol = parse_protocol("security.protocol", self._client.get("security.protocol", "PLAINTEXT"))
        return self._client.get(_BOOTSTRAP) or _address_of(protocol, self._config, listeners)

    def _command(self, bootstrap: str) -> list[str]:
        assert self._socket is not None
        config = self._config
        return [
            *(PROGRAM[0], "-I", "-S", leash.__file__, str(os.getpid())),
            *(*PROGRAM, "web", "--descriptor", str(self._socket.fileno()), "--bootstrap", bootstrap),
            *("--host", config.web_host),
            *(("--command-config", config.web_client_config) if config.web_client_config else ()),
            *(("--certificate", config.web_certificate) if config.web_certificate else ()),
            *(("--origin", config.web_origin) if config.web_origin else ()),
            *(("--registry", config.web_registry) if config.web_registry else ()),
            *(("--registry-config", config.web_registry_config) if config.web_registry_config else ()),
            *(("--allow-changes",) if config.web_allow_changes else ()),
        ]

    async def _run(self, command: Sequence[str]) -> None:
        while True:
            await self._serve(command)
            await asyncio.sleep(_AGAIN_S)

    async def _serve(self, command: Sequence[str]) -> None:
        """Until the process ends; what it says is in the broker's log."""
        assert self._socket is not None
        environ = {name: text for name, text in os.environ.items() if name not in (BROKERS, ENVIRONMENT)}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environ,
                pass_fds=(self._socket.fileno(),),
                start_new_session=True,  # Ctrl-C is for the broker
                limit=_LINE_LIMIT,
            )
        except OSError as error:
            _logger.error("the web page cannot be begun, and is tried again in %g s: %s", _AGAIN_S, error)
            return
        assert self._process.stderr is not None
        await _log_lines(self._process.stderr)
        status = await self._process.wait()
        _logger.error("the web page ended with status %d, and is begun again in %g s", status, _AGAIN_S)

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_GRACE_S):
                await process.communicate()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


def _client_settings(config: BrokerConfig) -> Mapping[str, str]:
    """By Kafka's names. Raises ConfigError where those of a client without any would show too much, or reach nobody."""
    if config.web_client_config:
        return load_properties(Path(config.web_client_config))
    closed = [each for each in config.ends.bound if each.protocol is not SecurityProtocol.PLAINTEXT]
    if closed:
        raise ConfigError(
            f"sparklog.web.port={config.web_port}: listener {closed[0].name} is not PLAINTEXT, and the page must not"
            " pass it by: name a file with the settings of a client in sparklog.web.client.config"
        )
    return {}


def _check_registry(config: BrokerConfig) -> None:
    """Raises ConfigError for settings that cannot be, and for a password that everybody on the machine would read."""
    if "@" in config.web_registry:
        raise ConfigError("sparklog.web.registry names a user: put it into the file of sparklog.web.registry.config")
    file = Path(config.web_registry_config) if config.web_registry_config else None
    if given := registry_settings(config.web_registry or None, file):
        from sparklog.registry.settings import RegistrySettings

        RegistrySettings.of(given)


def _by_settings(text: str) -> str:
    """A complaint about options of the command, with the settings' names."""
    for option, name in _SETTINGS.items():
        text = text.replace(option, name)
    return text


def _address_of(protocol: SecurityProtocol, config: BrokerConfig, listeners: Sequence[Listener]) -> str:
    """Where a client of this machine reaches the broker; the names are those that clients are told, for TLS.

    Raises ConfigError where no listener speaks the protocol.
    """
    told = {each.name: each.endpoint for each in config.ends.advertised}
    for name, its_protocol, bound in listeners:
        if its_protocol is protocol:
            host = told[name].host if name in told and told[name].host else bound.host
            port = told[name].port if name in told and told[name].port else bound.port
            return _reachable(host, port)
    raise ConfigError(f"sparklog.web.client.config: no listener of this broker speaks {protocol.name}")


def _reachable(host: str, port: int) -> str:
    if is_every_address(host):
        host = "::1" if ":" in host else "127.0.0.1"
    return f"{bracketed(host)}:{port}"


async def _log_lines(stream: asyncio.StreamReader) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than any line that we log
            continue
        if not line:
            return
        _logger.warning("the web page: %s", line.decode(errors="replace").rstrip())
