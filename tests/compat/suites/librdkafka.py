"""librdkafka's own tests, by the program that its build leaves: ``test-runner``, one test a process.

A test that makes topics with Kafka's scripts finds them, and Kafka's JARs behind them. The tests that need no broker
or a newer Kafka are left out by their own flags; of those that would stop at the first thing that a broker without
security lacks, every part is run by itself. What looks at how many brokers there are is run on three too.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from compat.suites.foreign import KAFKA_VERSION, ForeignSuite, PeerMissing, checkout, run_bounded
from compat.suites.outcomes import Outcome, of_librdkafka

from sparklog.testing.kafka import write_kafka_scripts

TEST_TIMEOUT_S = 240
_ENTRY = re.compile(r"_TEST\((\w+),\s*([A-Z0-9_| ]+)((?:[^()]|\([^()]*\))*)\)")
_PART = re.compile(r"^static void (do_test_\w+)\([^{]*\{(?:(?!^\}).)*?\bSUB_TEST", re.MULTILINE | re.DOTALL)
_IN_PARTS = ("0081_admin", "0103_transactions")
_ON_THREE = ("0081", "0101")
_SETS_KERBEROS = ("do_test_AlterConfigs", "do_test_IncrementalAlterConfigs")
"""Named already for one broker; three change nothing."""
_LEFT_OUT = re.compile("TEST_F_LOCAL|TEST_F_MANUAL|TEST_F_KNOWN_ISSUE(?!_)")


class LibrdKafka(ForeignSuite):
    name = "librdkafka"
    settings: ClassVar[Mapping[str, object]] = {"num.partitions": 4}
    scenario: ClassVar[str] = "default"

    def run(self, bootstrap: str, scratch: Path, only: Collection[str] | None = None) -> dict[str, Outcome]:
        sources = checkout("librdkafka")
        program = next(sources.glob("**/tests/test-runner"), None)
        if program is None:
            raise PeerMissing(f"the tests of {sources} are not built: there is no tests/test-runner")
        environment = {
            "KAFKA_PATH": str(write_kafka_scripts(scratch / "kafka")),
            "BROKERS": bootstrap,
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "TEST_SCENARIO": self.scenario,
            "RDKAFKA_TEST_CONF": str(_configuration(scratch, bootstrap)),
            # The program finds the library that it was built with, not the one of the machine.
            "LD_LIBRARY_PATH": os.pathsep.join([str(sources / "src"), str(sources / "src-cpp")]),
        }
        runs = scratch / "tests"
        runs.mkdir()
        # A test reads ../src/statistics_schema.json.
        (scratch / "src").symlink_to(sources / "src")
        return {
            test: _run_one(program, test, runs, environment)
            for test in names_of_tests(sources / "tests", self.scenario)
            if self.wants(test) and (only is None or test in only)
        }

    def wants(self, test: str) -> bool:
        """Whether it is one of this suite's."""
        return True


class LibrdKafkaWithoutAutoCreation(LibrdKafka):
    """The tests of its scenario in which no topic is made unasked."""

    name = "librdkafka-noautocreate"
    settings: ClassVar[Mapping[str, object]] = {"num.partitions": 4, "auto.create.topics.enable": "false"}
    scenario = "noautocreate"


class LibrdKafkaOnThree(LibrdKafka):
    """What looks at how many brokers there are, and at their racks. The rest makes topics of one replica, or has its
    brokers made by itself (mock clusters), and does on three what it does on one."""

    name = "librdkafka-three"
    settings: ClassVar[Mapping[str, object]] = {
        "num.partitions": 4,
        "default.replication.factor": 3,
        "offsets.topic.replication.factor": 3,
        "transaction.state.log.replication.factor": 3,
        "transaction.state.log.min.isr": 2,
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    brokers = 3

    def wants(self, test: str) -> bool:
        return test.startswith(_ON_THREE) and not test.endswith(_SETS_KERBEROS)


def names_of_tests(directory: Path, scenario: str) -> Iterator[str]:
    """The tests that need a broker: ``0001_multiobj``, or ``0081_admin/do_test_CreateTopics`` for a part."""
    registry = (directory / "test.c").read_text()
    table = registry[registry.index("struct test tests[]") :]
    for name, flags, rest in _ENTRY.findall(table):
        asked = re.search(r'\.scenario\s*=\s*"([\w,]+)"', rest)
        scenarios = asked[1].split(",") if asked else ["default"]
        if _LEFT_OUT.search(flags) or "TEST_BRKVER(4" in rest or scenario not in scenarios:
            continue
        if name in _IN_PARTS:
            yield from (f"{name}/{part}" for part in _parts(directory / f"{name.replace('_', '-', 1)}.c"))
        else:
            yield name


def _parts(source: Path) -> list[str]:
    return list(dict.fromkeys(_PART.findall(source.read_text())))


def _configuration(scratch: Path, bootstrap: str) -> Path:
    file = scratch / "test.conf"
    file.write_text(f"broker.address.family=v4\nbootstrap.servers={bootstrap}\ntest.timeout.multiplier=2\n")
    return file


def _run_one(program: Path, name: str, directory: Path, environment: Mapping[str, str]) -> Outcome:
    test, _, part = name.partition("/")
    base = directory / name.replace("/", ".")
    report = base.with_suffix(".json")
    report.unlink(missing_ok=True)
    asked = {"TESTS": test, "TEST_REPORT": str(report), **({"SUBTESTS": part} if part else {})}
    # Quick; one test at a time; no local ones.
    command = [str(program), "-Q", "-p1", "-L"]
    run_bounded(command, directory, {**environment, **asked}, base.with_suffix(".out"), TEST_TIMEOUT_S)
    return of_librdkafka(report, test)
