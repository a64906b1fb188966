"""A sparklog broker as a child process of ours."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sparklog.clock import Clock
from sparklog.local.log_lines import has_errors, news_in
from sparklog.local.ports import LOOPBACK, require_free
from sparklog.local.process import ChildProcess, OneProcess
from sparklog.local.secured import BROKERS, CLIENTS
from sparklog.structs import Endpoint, bracketed

START_TIMEOUT_S = 60.0
STOP_GRACE_S = 20.0

PROGRAM = (sys.executable, "-P", "-m", "sparklog.cli.main")
"""``-P``: a module that lies about in the working directory must not stand in for one of the library's."""

_METRICS = re.compile(r"^sparklog broker \d+ metrics at (http://\S+)/metrics$", re.MULTILINE)
_WEB = re.compile(r"^sparklog broker \d+ web page at (http\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class BrokerSpec:
    """What a broker is started with. ``arguments`` follow the named ones on the command line of ``program``."""

    broker_id: int
    zookeeper: str
    data_dir: Path
    port: int
    host: str = "127.0.0.1"
    advertised_host: str = ""
    inner_port: int = 0
    """Of a secure cluster: clients then come by SASL_SSL, and brokers speak TLS to each other on this one."""
    arguments: Sequence[str] = ()
    program: Sequence[str] = PROGRAM
    metrics_port: int = -1
    """Where it answers Prometheus; -1 where its settings say it."""

    def command(self) -> list[str]:
        return [
            *self.program,
            "broker",
            *("--id", str(self.broker_id)),
            *("--zookeeper", self.zookeeper),
            *("--data", str(self.data_dir)),
            *("--host", self.host),
            *("--port", str(self.port)),
            *(("--advertised-host", self.advertised_host) if self.advertised_host else ()),
            *self._listeners(),
            *(("--metrics-port", str(self.metrics_port)) if self.metrics_port >= 0 else ()),
            *self.arguments,
        ]

    def _listeners(self) -> list[str]:
        if not self.inner_port:
            return []
        inner = f"{BROKERS}://{LOOPBACK}:{self.inner_port}"
        own, told = (f"{CLIENTS}://{bracketed(each)}:{self.port}" for each in (self.host, self.told_host))
        return ["--set", f"listeners={own},{inner}", "--set", f"advertised.listeners={told},{inner}"]

    @property
    def told_host(self) -> str:
        """The one that clients are told."""
        return self.advertised_host or self.host


class BrokerProcess(OneProcess):
    """One broker: ready when it says ``sparklog broker N listening on HOST:PORT`` on its standard output."""

    child: ClassVar[type[ChildProcess]] = ChildProcess
    """How it is run."""

    def __init__(self, spec: BrokerSpec, log_path: Path, clock: Clock | None = None) -> None:
        self.spec = spec
        self.name = f"broker {spec.broker_id}"
        self._ready = re.compile(rf"^sparklog broker {spec.broker_id} listening on ", re.MULTILINE)
        # Unbuffered, or the line that says "ready" would wait in the child's buffer.
        self._child = self.child(
            self.name, log_path, environ={"PYTHONUNBUFFERED": "1"}, clock=clock, data_dir=spec.data_dir
        )

    @property
    def address(self) -> str:
        """``host:port``, as clients want it."""
        return str(Endpoint(self.spec.told_host, self.spec.port))

    def start(self) -> None:
        """Start and wait until it serves; ConfigError for a port in use, ConnectionFailed with its log's tail."""
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        """Start; returns at once."""
        self.require_ports()
        self._child.spawn(self.spec.command())

    def require_ports(self) -> None:
        """Raise ConfigError for a port in use."""
        spec, remedy = self.spec, "stop what holds it or choose another with"
        require_free(spec.host, spec.port, self.name, f"{remedy} --port")
        if spec.metrics_port > 0:
            require_free(LOOPBACK, spec.metrics_port, f"the metrics of {self.name}", f"{remedy} --metrics-port")

    def wait_until_ready(self) -> None:
        try:
            self._child.wait_until(self.is_ready, START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    def is_ready(self) -> bool:
        return self._ready.search(self._child.output()) is not None

    @property
    def metrics(self) -> str:
        """Where Prometheus finds its metrics, as it was told to answer; empty for nowhere."""
        return f"http://127.0.0.1:{self.spec.metrics_port}/metrics" if self.spec.metrics_port >= 0 else ""

    @property
    def metrics_url(self) -> str | None:
        """``http://host:port`` of its metrics; None if it has none, or has not said so yet."""
        found = _METRICS.search(self._child.output())
        return found and found[1]

    @property
    def web_url(self) -> str | None:
        """Where its web page is; None if it has none, or has not said so yet."""
        found = _WEB.search(self._child.output())
        return found and found[1]

    def has_reported_errors(self) -> bool:
        """Whether the latest run has logged one: it may serve all the same, without what is damaged."""
        return has_errors(self._child.output())

    def news(self) -> list[str]:
        """What it has logged for an operator since this was asked last."""
        return news_in(self._child.new_lines())

    @property
    def log_path(self) -> Path:
        return self._child.log_path

    def output(self) -> str:
        """What the latest run has written so far."""
        return self._child.output()

    def terminate(self) -> None:
        """Ask it to shut down cleanly; returns at once, ``reap`` waits."""
        self._child.terminate()

    def reap(self, grace: float = STOP_GRACE_S) -> None:
        self._child.reap(grace)

    def stop(self) -> None:
        self._child.stop(STOP_GRACE_S)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self._child.kill()
