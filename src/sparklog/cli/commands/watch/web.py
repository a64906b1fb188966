"""``sparklog web``: the page that shows a cluster in a browser."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.connection import bootstrap_option, client_settings
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.registry_values import registry_options, value_decoder

if TYPE_CHECKING:
    from sparklog.web.server import WebServer

_NICE_BESIDE_A_BROKER = 10
"""Where there are too few processors, the broker goes first."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=WholeNumber(0, 65535), default=8080, show_default=True, help="The port; 0 for any.")
@click.option("--allow-changes", is_flag=True, help="Let visitors change topics, settings and groups as well.")
@click.option(
    "--certificate", type=click.Path(path_type=Path), metavar="FILE", help="Speak TLS: certificate and key, in PEM."
)
@click.option("--origin", default="", metavar="URL", help="Where browsers reach a proxy before it: https://NAME.")
@click.option("--descriptor", type=WholeNumber(3), hidden=True, help="A socket that listens there, of the parent's.")
@registry_options
@bootstrap_option
@click.pass_context
def web(
    ctx: click.Context,
    /,
    host: str,
    port: int,
    allow_changes: bool,
    certificate: Path | None,
    origin: str,
    descriptor: int | None,
    bootstrap: str,
    **schemas: Any,
) -> None:
    """Show the cluster in a browser, until SIGTERM or Ctrl-C. It prints the address.

    The page shows what clients may ask for, and changes nothing without --allow-changes. Where the cluster asks for a
    password, visitors log in with one of its users, and see and do what that user may; the settings of --command-config
    say how to reach the brokers (security.protocol, sasl.mechanism, ssl.truststore...), and a user in them is not used.

    With --registry, values in the wire format of schema registries are shown as JSON, by their schemas. All visitors
    share what the registry tells this server.

    \b
    Examples:
      sparklog web
      sparklog web --port 9000 --allow-changes
      sparklog web --command-config client.properties --host 0.0.0.0 --certificate web.pem --origin https://log.example:8080
    """
    from sparklog.web.decoding import IMPATIENT, SchemaDecoder
    from sparklog.web.server import WebServer
    from sparklog.web.settings import WebSettings

    settings = WebSettings.of(
        {**client_settings(ctx), "bootstrap.servers": bootstrap},
        host=host, port=port, allow_changes=allow_changes, certificate=certificate, origin=origin,
    )  # fmt: skip
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    values = value_decoder(schemas["registry"], schemas["registry_config"], IMPATIENT)
    if descriptor is not None:
        os.nice(_NICE_BESIDE_A_BROKER)
    listening = None if descriptor is None else socket.socket(fileno=descriptor)
    decoders = [] if values is None else [SchemaDecoder(values)]
    asyncio.run(_serve(WebServer(settings, decoders=decoders, listening=listening)))


async def _serve(server: WebServer) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await server.start()
    try:
        click.echo(f"the page is at {server.url}; Ctrl-C ends it")
        await stopped.wait()
    finally:
        await server.close()
