"""ZooKeeper without installing one: a child JVM on the JARs that PySpark ships (ZooKeeper 3.9)."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import ClassVar, NamedTuple

from sparklog.clock import Clock
from sparklog.config.properties import format_properties
from sparklog.local.jars import pyspark_jar
from sparklog.local.java import find_java
from sparklog.local.ports import free_port, require_free
from sparklog.local.process import ChildProcess, OneProcess
from sparklog.local.running import Running
from sparklog.security.tls.contexts import client_context
from sparklog.security.tls.settings import TlsSettings
from sparklog.structs import bracketed

STOP_GRACE_S = 10.0

MODULES = (
    "zookeeper",
    "zookeeper-jute",
    "metrics-core",
    "snappy-java",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
)
"""All that a standalone server loads; Spark's whole class path would cost it seconds."""

NETTY = (
    "netty-buffer",
    "netty-codec-base",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
)
"""What its part that speaks TLS loads besides."""


class ZooKeeperTls(NamedTuple):
    """Files of PEM with which a server speaks TLS, and nothing else: its key with its certificate, and the authority of
    those whom it lets in, each of whom must show a certificate.
    """

    key_store: Path
    trust_store: Path

    def context(self) -> ssl.SSLContext:
        """As a client of this server that is another of the authority's."""
        return client_context(
            TlsSettings(keystore_location=str(self.key_store), truststore_location=str(self.trust_store))
        )

    def settings(self, prefix: str = "ssl") -> dict[str, object]:
        """What ``zoo.cfg`` says of it."""
        return {
            f"{prefix}.keyStore.location": self.key_store,
            f"{prefix}.keyStore.type": "PEM",
            f"{prefix}.trustStore.location": self.trust_store,
            f"{prefix}.trustStore.type": "PEM",
            f"{prefix}.clientAuth": "need",
            f"{prefix}.enabledProtocols": "TLSv1.2,TLSv1.3",  # Kafka's tools speak the older one to it
        }


class EmbeddedZooKeeper(OneProcess, Running):
    """One standalone ZooKeeper server; start, stop and start again go on from ``data_dir``, on the same port.

    With ``tls`` its port speaks TLS, to those that show a certificate.

    ``data_dir`` holds snapshots, transaction logs, ``zoo.cfg`` and ``zookeeper.log``. ``port`` 0 picks a free one.
    ``tick_time_ms``: sessions last at least two ticks. ``fsync=False`` trades durability on power loss for speed: for
    tests. ``start`` raises ConfigError (no Java, port in use) or ConnectionFailed (it died; with its log's tail).
    """

    name = "ZooKeeper"
    start_timeout_s: ClassVar = 60.0
    main_class: ClassVar = "org.apache.zookeeper.server.ZooKeeperServerMain"
    tls: ZooKeeperTls | None = None
    """Said before it is started."""

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        tick_time_ms: int = 2000,
        fsync: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.host = host
        self.port = port or free_port(host)
        self.log_path = self.data_dir / "zookeeper.log"
        self._tick_time_ms = tick_time_ms
        self._fsync = fsync
        self._child = ChildProcess(self.name, self.log_path, clock=clock, data_dir=self.data_dir)

    @property
    def connect_string(self) -> str:
        """``host:port``, as clients want it."""
        return f"{bracketed(self.host)}:{self.port}"

    def start(self) -> None:
        """Start and wait until it serves requests."""
        self.spawn()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        try:
            self._child.wait_until(self.is_ready, self.start_timeout_s)
        except BaseException:
            self.kill()
            raise

    def spawn(self) -> None:
        """Start; returns at once."""
        require_free(self.host, self.port, self.name, "stop what holds it or choose another port for ZooKeeper")
        command = self.command()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        text = format_properties({name: str(value) for name, value in self.settings().items()})
        replace_file(self.data_dir / "zoo.cfg", text)
        self._child.spawn(command)

    def is_ready(self) -> bool:
        """Whether it serves requests: accepting a connection is not enough, it must have loaded its data."""
        return "Mode: " in self.four_letter_word("srvr", timeout=0.5)  # it may accept early and then stay silent

    def news(self) -> list[str]:
        """What it has to say to an operator: nothing."""
        return []

    def four_letter_word(self, word: str, timeout: float = 5.0) -> str:
        """The answer to one of ZooKeeper's four-letter commands; empty when it cannot be reached."""
        try:
            with self._connect(timeout) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
        except OSError:
            return ""

    def _connect(self, timeout: float) -> socket.socket:
        connection = socket.create_connection((self.host, self.port), timeout=timeout)
        if self.tls is None:
            return connection
        return self.tls.context().wrap_socket(connection, server_hostname=self.host)

    def terminate(self) -> None:
        """Ask it to stop; returns at once, ``reap`` waits."""
        self._child.terminate()

    def reap(self) -> None:
        self._child.reap(STOP_GRACE_S)

    def stop(self) -> None:
        self._child.stop(STOP_GRACE_S)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self._child.kill()

    def command(self) -> list[str]:
        """What is run."""
        class_path = ":".join(str(pyspark_jar(module)) for module in self.modules())
        return [
            str(find_java().executable),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-XX:+ExitOnOutOfMemoryError",
            *self.start_options(),
            *self.options(),
            f"-Dzookeeper.forceSync={'yes' if self._fsync else 'no'}",
            "-cp",
            class_path,
            self.main_class,
            str(self.data_dir / "zoo.cfg"),
        ]

    def modules(self) -> tuple[str, ...]:
        """The JARs that it loads."""
        return MODULES if self.tls is None else (*MODULES, *NETTY)

    @staticmethod
    def start_options() -> list[str]:
        """Those of the JVM that say how it starts: none. Tests put others here (``testing/shared_classes.py``)."""
        return []

    def options(self) -> list[str]:
        """Those of the JVM that say how the server behaves."""
        # Kilobytes; the default of 64 MB a transaction log is more than a small cluster ever writes.
        return ["-Dlog4j2.level=WARN", "-Dzookeeper.preAllocSize=256"]

    def settings(self) -> dict[str, object]:
        """What ``zoo.cfg`` says."""
        return {
            "dataDir": self.data_dir,
            **self._listener(),
            "tickTime": self._tick_time_ms,
            "minSessionTimeout": 2 * self._tick_time_ms,
            "maxSessionTimeout": max(60_000, 20 * self._tick_time_ms),
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,mntr,dump",
        }

    def _listener(self) -> dict[str, object]:
        if self.tls is None:
            return {"clientPort": self.port, "clientPortAddress": self.host}
        return {
            "secureClientPort": self.port,
            "secureClientPortAddress": self.host,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            **self.tls.settings(),
        }


def replace_file(path: Path, text: str) -> None:
    """Write ``text`` so that a crash leaves the file as it was or as it is to be."""
    partial = path.with_name(f"{path.name}.tmp")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
