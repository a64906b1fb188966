"""A first day in service, as its page tells it: installed from the wheel, each command typed as it stands there.

Only places, ports and the name of the wheel are others: so no step needs what the page does not say, and a change of
the page or of a command breaks it. A failure names the step, by its heading and line. Without Prometheus its alert is
not looked at, and the test is skipped at its end, with the reason. All of it takes three and a half minutes on two
quiet cores, the build of the wheel among them.
"""

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from docs.markdown import ROOT, Block, blocks
from fix_programs import lack_of
from packages.pythons import copy_of_the_house, make_package
from web.serving import Browser

from sparklog import __version__
from sparklog.config.properties import load_properties
from sparklog.local.jars import jars_root
from sparklog.local.ports import free_port, keep_port
from sparklog.testing.eventually import eventually
from sparklog.testing.librdkafka import librdkafka_settings

TOOLS = lack_of("curl") or lack_of("jq")
PROMETHEUS = lack_of("prometheus")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(TOOLS), reason=TOOLS),
]
PAGE = ROOT / "docs" / "a-day.md"
WHEEL = "dist/sparklog-VERSION-PLATFORM.whl"
NEXT_VERSION = f"{__version__}.post1"
WAIT_S = 300
SERVICES = {"sparklog up": "data in ", "sparklog web": "http://", "prometheus ": "Server is ready"}
"""What runs until it is stopped, and what it says when it is there."""
OF_PROMETHEUS = ("prometheus --", "/api/v1/query")
"""What is in the blocks that need it."""
LOOKS = ("curl ", "sparklog cluster describe ", "sparklog group ")
"""What changes nothing, and is typed until it says what the page says."""
KEPT = (". ", "export ")
"""What holds for the rest of a terminal."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Of this version and of one after it, which has the same code: ``test_upgrade.py`` has other code."""
    directory = tmp_path_factory.mktemp("packages")
    first, _ = make_package(copy_of_the_house(directory / "house"), sys.executable, directory / "dist")
    return first, later(first)


def later(wheel):
    """The same wheel under the next version's number."""
    copy = wheel.with_name(wheel.name.replace(__version__, NEXT_VERSION))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(copy, "w") as new:
        for each in old.infolist():
            name = each.filename.replace(f"sparklog-{__version__}.", f"sparklog-{NEXT_VERSION}.")
            new.writestr(name, restamped(name, old.read(each)))
    return copy


def restamped(name, content):
    """The files that say the version; the list of all files without their hashes, which are others now."""
    if name.endswith(".dist-info/RECORD"):
        names = [line.partition(",")[0] for line in content.decode().replace(__version__, NEXT_VERSION).splitlines()]
        return "".join(f"{each},,\n" for each in names).encode()
    if name == "sparklog/__init__.py" or name.endswith(".dist-info/METADATA"):
        return content.replace(__version__.encode(), NEXT_VERSION.encode(), 1)
    return content


@pytest.fixture
def elsewhere(tmp_path):
    """The packages of this environment but ours: half a gigabyte that no network is asked for."""
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    (site,) = {Path(found).parent for found in find_spec("pyspark").submodule_search_locations}
    for each in site.iterdir():
        if "sparklog" not in each.name and each.suffix != ".pth":
            (directory / each.name).symlink_to(each)
    return directory


def free_ports(count):
    """The first of so many free ones in a row, which nobody else is given."""
    while True:
        first = free_port()
        try:
            for port in range(first + 1, first + count):
                keep_port(port)
        except OSError:
            continue
        return first


class Reader:
    """Types what the page says, each block in a terminal of its own; ``with`` it, for what it has started."""

    def __init__(self, directory, elsewhere, wheels):
        self.directory = directory
        self.web_port, metrics = free_port(), free_ports(4)
        self._here = {"/tmp/day": str(directory / "day"), "8080": str(self.web_port), "9090": str(free_port())}
        self._here |= {str(9308 + number): str(metrics + number) for number in range(4)}
        self._elsewhere, self._wheels = elsewhere, list(wheels)
        self._kept, self._services = [], {}
        self._killing = ""

    def __enter__(self):
        (self.directory / "day").mkdir()
        return self

    def __exit__(self, *_):
        with ExitStack() as stack:
            for process in self._services.values():
                stack.callback(self._stop, process)

    def here(self, code):
        """With our places and ports."""
        return re.sub("|".join(map(re.escape, self._here)), lambda found: self._here[found[0]], code)

    def save(self, program):
        (self.directory / program.splitlines()[0].removeprefix("# ")).write_text(self.here(program))

    def type(self, code, expected):
        """Type a block; it prints ``expected``, where that is not None, in its last lines."""
        commands = self.here(code).replace("\\\n", " ")
        service = next((each for each in SERVICES if commands.startswith(each)), None)
        if service is not None:
            self._start(service, commands)
        elif commands.startswith(LOOKS):
            eventually(lambda: self._says(self._run_again(commands), expected), WAIT_S, commands)
            self._killing = ""
        else:
            printed = self._type_all(commands)
            assert self._says(printed, expected), printed

    def _says(self, printed, expected):
        wanted = self.here(expected or "").splitlines()
        return not wanted or printed.splitlines()[-len(wanted) :] == wanted

    def _type_all(self, commands):
        if commands.startswith("kill "):
            self._killing = commands if commands.startswith("kill -9 ") else ""
            return self._kill(commands)
        printed = self._install(commands) if WHEEL in commands else self._run(commands)
        self._keep(commands)
        return printed

    def _keep(self, commands):
        self._kept += [each for each in commands.splitlines() if each.startswith(KEPT)]

    def _install(self, commands):
        """``make package`` is done; what the wheel needs is here."""
        before, pip, after = commands.partition("pip install ")
        self._run(before := before.replace("make package\n", ""))
        self._keep(before)
        for site in (self.directory / "day" / "venv").glob("lib/python3*/site-packages"):
            (site / "elsewhere.pth").write_text(f"{self._elsewhere}\n")
        wheel = self._wheels.pop(0)
        printed = self._run(f"{pip}--no-input {after.replace(WHEEL, str(wheel))}")
        version = wheel.name.split("-")[1]
        assert f"sparklog, version {version} (compiled)\n" in printed, printed
        config = self.directory / "day/venv/share/sparklog/conf/prometheus/prometheus.yml"
        config.write_text(self.here(config.read_text()))
        return printed

    def _kill(self, commands):
        """Return when another process is there for the broker that was ended."""
        (path,) = map(Path, re.findall(r"\$\(cat (.*?)\)", commands))
        before = path.read_text()
        self._run(commands)
        eventually(lambda: path.read_text() != before, WAIT_S, f"another process in {path}")
        return ""

    def _run_again(self, commands):
        """A broker that is back at once is missed by nobody, so one whose death is not seen is killed again."""
        printed = self._run(commands, check=False)
        if not printed and self._killing:
            self._kill(self._killing)
        return printed

    def _run(self, commands, *, check=True):
        done = subprocess.run(self._shell(commands), capture_output=True, text=True, check=False, **self._given())
        assert not check or done.returncode == 0, f"{commands}{done.stdout}{done.stderr}"
        return done.stdout

    def _shell(self, commands):
        return ["bash", "-e", "-o", "pipefail", "-c", "\n".join([*self._kept, commands])]

    def _given(self):
        scripts = Path(sys.executable).parent
        environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "SPARKLOG_JARS": str(jars_root())}
        for name in ("PYTHONPATH", "SPARKLOG_IMPL", "SPARKLOG_BOOTSTRAP", "VIRTUAL_ENV"):
            environment.pop(name, None)
        return {"cwd": self.directory, "env": environment}

    def _start(self, name, commands):
        """In place of one that runs already."""
        if name in self._services:
            self._stop(self._services.pop(name))
        if name == "sparklog up":
            commands = commands.replace(name, f"{name} --port 0")
        log = self.directory / f"{name.split()[-1]}.log"
        with log.open("wb") as file:
            command = self._shell(f"exec {commands}")
            self._services[name] = process = subprocess.Popen(command, stdout=file, stderr=file, **self._given())
        eventually(lambda: process.poll() is not None or SERVICES[name] in log.read_text(), WAIT_S, log.name)
        assert process.poll() is None, log.read_text()

    @staticmethod
    def _stop(process):
        """By SIGTERM: what a background job starts does not hear of Ctrl-C."""
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()

    def output(self, commands):
        return json.loads(self._run(self.here(commands)))


class Step(NamedTuple):
    """A block of the page, the heading that it is under, and what it prints by the page, or None."""

    heading: str
    block: Block
    expected: str | None

    @property
    def can_be_done(self):
        return not PROMETHEUS or not any(each in self.block.code for each in OF_PROMETHEUS)


def steps():
    every = list(blocks(PAGE))
    for block, following in pairwise([*every, None]):
        if block.language != "text":
            has_output = following is not None and following.language == "text"
            yield Step(heading_over(block), block, following.code if has_output else None)


def heading_over(block):
    before = PAGE.read_text().splitlines()[: block.line]
    return next(each.removeprefix("## ") for each in reversed(before) if each.startswith("## "))


def do(reader, step):
    """A failure says which step it was."""
    try:
        if step.block.language == "python":
            reader.save(step.block.code)
        else:
            reader.type(step.block.code, step.expected)
        if step.block.code.startswith("sparklog web"):
            the_web_page_agrees(reader)
    except BaseException as error:
        error.add_note(f"in the step {step.heading!r}, {step.block.place}")
        raise


def test_each_step_of_the_day_does_what_the_page_says(tmp_path, elsewhere, wheels):
    with Reader(tmp_path, elsewhere, wheels) as reader:
        for step in steps():
            if step.can_be_done:
                do(reader, step)
    if PROMETHEUS:
        pytest.skip(f"all but the alert held; {PROMETHEUS}")


def the_web_page_agrees(reader):
    """With the command line, in each partition; the page's own text says what all three are together."""
    found = reader.output("sparklog group describe billing --output json")
    browser = Browser(f"127.0.0.1:{reader.web_port}")
    settings = librdkafka_settings(load_properties(reader.directory / "day/data/secure/admin.properties"))
    assert browser.log_in("admin", settings["sasl.password"]).status == 200
    shown = browser.rows("/api/group?id=billing")
    assert shown["lag"] == sum(each["lag"] for each in found["offsets"]) == 600
    assert lags(shown["rows"]) == lags(found["offsets"])


def lags(rows):
    return {(each["topic"], each["partition"]): each["lag"] for each in rows}
