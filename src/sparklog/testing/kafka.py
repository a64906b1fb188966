"""A real Apache Kafka 3.9 broker, and Kafka's own tools: the peers that judge us."""

from __future__ import annotations

import shlex
import socket
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sparklog.errors import SparklogError
from sparklog.local.jars import jar_set
from sparklog.local.java import find_java
from sparklog.local.ports import free_port, require_free
from sparklog.local.process import ChildProcess, OneProcess
from sparklog.local.running import Running

START_TIMEOUT_S = 90.0
STOP_GRACE_S = 30.0

_LOG4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

_SCRIPTS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-acls.sh": "kafka.admin.AclCommand",
}

_API_VERSIONS = struct.Struct(">ihhih").pack(10, 18, 0, 1, -1)
"""A whole ApiVersions v0 request: size, api key, version, correlation id, no client id."""


class KafkaBroker(OneProcess, Running):
    """Kafka 3.9.1 in ZooKeeper mode, from the ``kafka`` JAR set, with every replication factor at 1.

    ``data_dir`` holds its log directory ``logs``, ``server.properties`` and ``kafka.log``. ``extra_props`` override.
    ``java`` are options of the virtual machine.
    """

    def __init__(
        self,
        data_dir: Path,
        zookeeper: str,
        port: int = 0,
        broker_id: int = 0,
        extra_props: Mapping[str, object] | None = None,
        host: str = "127.0.0.1",
        java: Sequence[str] = ("-Xmx1g",),
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.log_dir = self.data_dir / "logs"
        self.host = host
        self.port = port or free_port(host)
        self.broker_id = broker_id
        self.name = f"Kafka broker {broker_id}"
        self._zookeeper = zookeeper
        self._extra_props = dict(extra_props or {})
        self._java = tuple(java)
        self._child = ChildProcess(self.name, self.data_dir / "kafka.log")

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Start and wait until it answers a request."""
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        """Start; returns at once."""
        require_free(self.host, self.port, self.name, "choose another")
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "server.properties").write_text(_properties(self._settings()))
        log4j = self.data_dir / "log4j.properties"
        log4j.write_text(_LOG4J)
        options = [*self._java, f"-Dlog4j.configuration=file:{log4j}"]
        self._child.spawn(kafka_command("kafka.Kafka", str(self.data_dir / "server.properties"), options=options))

    def wait_until_ready(self) -> None:
        try:
            self._child.wait_until(self.is_ready, START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    @property
    def log_path(self) -> Path:
        return self._child.log_path

    def terminate(self) -> None:
        """Ask it for a controlled shutdown; returns at once, ``reap`` waits."""
        self._child.terminate()

    def reap(self, grace: float = STOP_GRACE_S) -> None:
        self._child.reap(grace)

    def stop(self) -> None:
        """A controlled shutdown."""
        self._child.stop(STOP_GRACE_S)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self._child.kill()

    def is_ready(self) -> bool:
        """Whether it answers a request."""
        try:
            with socket.create_connection((self.host, self.port), timeout=5) as connection:
                connection.sendall(_API_VERSIONS)
                return len(connection.recv(8)) == 8
        except OSError:
            return False

    def _settings(self) -> dict[str, object]:
        listener = f"PLAINTEXT://{self.host}:{self.port}"
        return {
            "broker.id": self.broker_id,
            "zookeeper.connect": self._zookeeper,
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": self.log_dir,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
            **self._extra_props,
        }


def run_kafka_tool(
    main_class: str, *arguments: str, timeout: float = 120.0, stdin: str = "", jars: str = "kafka"
) -> str:
    """What one of Kafka's own programs prints on standard output; SparklogError with its complaint if it fails.

    ``main_class`` is the Java class, such as ``org.apache.kafka.tools.TopicCommand``, or a source file;
    ``jars`` is the JAR set that it is of, or uses.
    """
    try:
        done = subprocess.run(
            kafka_command(main_class, *arguments, options=("-Xmx512m",), jars=jars),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SparklogError(f"{main_class} had not ended after {timeout:g} s") from None
    if done.returncode != 0:
        raise SparklogError(f"{main_class} exited with status {done.returncode}:\n{done.stderr}{done.stdout}")
    return done.stdout


def dump_log_segments(files: Iterable[Path], *options: str) -> str:
    """What Kafka's DumpLogSegments says of segment or index files: every batch, and every record in it."""
    listed = ",".join(str(file) for file in files)
    return run_kafka_tool("kafka.tools.DumpLogSegments", "--files", listed, "--print-data-log", *options)


def kafka_command(main_class: str, *arguments: str, options: Sequence[str] = (), jars: str = "kafka") -> list[str]:
    """The command line that runs a class of the JAR set ``jars``; ``options`` are Java's."""
    return [
        str(find_java().executable),
        *options,
        "-XX:-UsePerfData",
        *("-cp", str(jar_set(jars)[0].parent / "*")),
        main_class,
        *arguments,
    ]


def write_kafka_scripts(directory: Path) -> Path:
    """Give ``directory`` a ``bin`` with the scripts of a Kafka distribution that other projects' tests call."""
    scripts = directory / "bin"
    scripts.mkdir(parents=True, exist_ok=True)
    for name, main_class in _SCRIPTS.items():
        script = scripts / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(kafka_command(main_class, options=("-Xmx256m",)))} "$@"\n')
        script.chmod(0o755)
    return directory


def _properties(settings: Mapping[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
