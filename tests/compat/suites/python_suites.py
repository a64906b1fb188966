"""The integration tests of kafka-python and aiokafka, run by pytest from their checkouts."""

import importlib.util
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

from compat.suites.foreign import KAFKA_VERSION, ForeignSuite, PeerMissing, checkout, run_bounded
from compat.suites.outcomes import Outcome, of_junit

TEST_TIMEOUT_S = 100
FILE_TIMEOUT_S = 900
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_QUIET = (
    *("-p", "no:randomly"),
    *("-p", "no:cacheprovider"),
    f"--timeout={TEST_TIMEOUT_S}",
    "--timeout-method=signal",
    "--tb=native",
    "-q",
)


class PythonSuite(ForeignSuite):
    """Tests that are run one file a process, so that one that hangs takes its own file with it only."""

    project: ClassVar[str] = ""
    """Whose tests they are, if ``name`` does not say it."""
    files: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules that the checkout imports and that sparklog does not bring."""
    options: ClassVar[tuple[str, ...]] = ()

    def environment(self, bootstrap: str, scratch: Path) -> Mapping[str, str]:
        raise NotImplementedError

    def run(self, bootstrap: str, scratch: Path, only: Collection[str] | None = None) -> dict[str, Outcome]:
        sources = checkout(self.project or self.name)
        for module in self.needs:
            if importlib.util.find_spec(module) is None:
                raise PeerMissing(f"{self.name} needs the module {module}; install it beside sparklog")
        path = os.pathsep.join([str(sources), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        (scratch / "pytest.ini").write_text("[pytest]\n")
        outcomes: dict[str, Outcome] = {}
        for file in self.files:
            module = file.removesuffix(".py").replace("/", ".")
            wanted = _node_ids(file, module, only)
            if not wanted:
                continue
            report = scratch / f"{module}.xml"
            report.unlink(missing_ok=True)
            command = [sys.executable, "-m", "pytest", "-c", str(scratch / "pytest.ini"), "--rootdir", str(sources)]
            status = run_bounded(
                [*command, *_QUIET, *self.options, "--junitxml", str(report), *wanted],
                sources,
                {**self.environment(bootstrap, scratch), "PYTHONPATH": path},
                scratch / f"{module}.out",
                FILE_TIMEOUT_S,
            )
            found = of_junit(report)
            outcomes |= found or {f"{module}::({status})": Outcome.UNENDED}
        return outcomes


def _node_ids(file: str, module: str, only: Collection[str] | None) -> list[str]:
    """What pytest is to run of ``file``: all of it, or the tests of ``only``, which are ``module.Class::name``."""
    if only is None:
        return [file]
    ids = []
    for test in only:
        holder, _, name = test.partition("::")
        if holder == module or holder.startswith(f"{module}."):
            classes = holder.removeprefix(module).removeprefix(".").split(".")
            ids.append("::".join([file, *(each for each in classes if each), name]))
    return ids


class KafkaPython(PythonSuite):
    name = "kafka-python"
    settings: ClassVar[Mapping[str, object]] = {"num.partitions": 4, "group.min.session.timeout.ms": 1000}
    files = tuple(f"test/integration/test_{what}_integration.py" for what in ("admin", "consumer", "producer"))

    def environment(self, bootstrap: str, scratch: Path) -> Mapping[str, str]:
        # KAFKA_ROOT only has to be a directory: nothing in it is run against a broker that is there already.
        # It takes one address, and learns of the other brokers.
        first = bootstrap.partition(",")[0]
        return {"KAFKA_URI": f"kafka://{first}", "KAFKA_VERSION": KAFKA_VERSION, "KAFKA_ROOT": str(scratch)}


class KafkaPythonOnThree(KafkaPython):
    """Its requests to every broker, and to the controller where that is another one than the first."""

    name, project = "kafka-python-three", "kafka-python"
    settings: ClassVar[Mapping[str, object]] = {
        **KafkaPython.settings,
        "default.replication.factor": 3,
        "offsets.topic.replication.factor": 3,
    }
    brokers = 3
    # They pass where one broker happens to have what is asked for: FINDINGS.md.
    options = ("-k", "(not test_delete_records or with_errors) and not test_alter_replica_log_dirs")
    files = ("test/integration/test_admin_integration.py",)


class AioKafka(PythonSuite):
    """Its own fixtures start a container; ours, loaded instead, hand out an address."""

    name = "aiokafka"
    settings: ClassVar[Mapping[str, object]] = {"num.partitions": 2}
    needs = ("async_timeout",)
    options = ("--noconftest", "-p", "compat.suites.aiokafka_fixtures")
    files = tuple(
        f"tests/test_{what}.py"
        for what in (
            *("admin", "client", "conn", "consumer", "coordinator", "pep492", "producer", "sender"),
            *("transactional_consumer", "transactional_producer"),
        )
    )

    def environment(self, bootstrap: str, scratch: Path) -> Mapping[str, str]:
        # The checkout is not compiled; its classes in Python do the same.
        return {"SPARKLOG_PEER_ADDRESS": bootstrap, "AIOKAFKA_NO_EXTENSIONS": "1"}


class AioKafkaBySasl(AioKafka):
    """Its tests of SASL and of access control lists. ``ports``: of SASL_PLAINTEXT, by the address of PLAINTEXT."""

    name, project = "aiokafka-sasl", "aiokafka"
    settings: ClassVar[Mapping[str, object]] = {
        **AioKafka.settings,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{_PLAIN} user_test="test";',
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{_SCRAM};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    files = ("tests/test_sasl.py",)

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports = ports

    def environment(self, bootstrap: str, scratch: Path) -> Mapping[str, str]:
        return {**super().environment(bootstrap, scratch), "SPARKLOG_PEER_SASL_PORT": str(self._ports[bootstrap])}
