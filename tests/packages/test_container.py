"""The Containerfile of ``conf/``, read: what an image has, and that its commands are some of ours.

Where buildah has the base image, or can get it, the image is built too, which needs a network.
"""

import json
import re
import shutil
import subprocess
import sys

import pytest
from packages.pythons import HOUSE, copy_of_the_house, make_package, python_of

from sparklog.cli.commands.serve.broker import RUN, RunUnlessNamed
from sparklog.cli.main import cli
from sparklog.testing.broker import BrokerHarness

FILE = HOUSE / "conf" / "container" / "Containerfile"


def stages():
    """Of each stage by its name: its instructions, after those of the stages that it begins with."""
    lines = re.sub(r"^#.*\n|\\\n", "", FILE.read_text(), flags=re.MULTILINE).splitlines()
    found, instructions = {}, []
    for name, text in (line.split(None, 1) for line in lines if line.strip()):
        if name == "FROM":
            base, _, stage = text.split()
            instructions = found[stage] = list(found.get(base, []))
        instructions.append((name, " ".join(text.split())))
    return found


def last(stage, name):
    return [text for each, text in stages()[stage] if each == name][-1]


@pytest.mark.parametrize(("stage", "ports"), [("broker", {"9092", "9308"}), ("zookeeper", {"2181", "2888", "3888"})])
def test_an_image_runs_as_no_root_with_its_data_outside_and_is_stopped_in_order(stage, ports):
    assert last(stage, "USER") == "sparklog"
    assert json.loads(last(stage, "VOLUME")) == ["/var/lib/sparklog"]
    assert {*last(stage, "EXPOSE").split()} == ports
    assert last(stage, "STOPSIGNAL") == "SIGTERM"
    assert json.loads(last(stage, "ENTRYPOINT")) == ["sparklog"]


@pytest.mark.parametrize("stage", ["broker", "zookeeper"])
def test_what_an_image_runs_is_a_command_of_ours(stage):
    name, *arguments = json.loads(last(stage, "CMD"))
    command = cli.get_command(None, name)
    if isinstance(command, RunUnlessNamed):
        command = command.commands[RUN]
    options = {option for each in command.params for option in each.opts} | {"--help"}
    assert {each for each in arguments if each.startswith("--")} <= options


def test_an_image_of_stages_has_what_they_made_and_no_more():
    text = FILE.read_text()
    assert {*re.findall(r"--from=(\S+)", text)} <= {*stages()}
    assert {*re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE)} == {"dist/*-cp311-*.whl"}


@pytest.mark.integration
def test_the_health_check_holds_while_a_broker_answers(chroot, tmp_path):
    with BrokerHarness(tmp_path, chroot, settings={"sparklog.metrics.port": 0}) as broker:
        port = broker.metrics_url.rpartition(":")[2]
        assert health(port) == 0
    assert health(port) != 0


def health(port):
    """The exit status of the health check with another port."""
    python, *arguments = json.loads(last("broker", "HEALTHCHECK").partition(" CMD ")[2])
    assert python == "python3"
    command = [sys.executable, *(each.replace("9308", port) for each in arguments)]
    return subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_image_is_built_and_knows_its_version(tmp_path):
    if shutil.which("buildah") is None:
        pytest.skip("no buildah on this machine")
    python = python_of("3.11")
    if python is None:
        pytest.skip("no Python 3.11 with its headers is on this machine")
    base = re.search(r"^ARG BASE=(\S+)$", FILE.read_text(), re.MULTILINE)[1]
    if subprocess.run(["buildah", "pull", "--policy", "missing", base], capture_output=True, check=False).returncode:
        pytest.skip(f"the image {base} is not here, and cannot be pulled")
    house = copy_of_the_house(tmp_path / "house")
    make_package(house, python, house / "dist")
    build = ["buildah", "build", "--isolation", "chroot", "--format", "docker", "--target", "broker", "-f", FILE]
    subprocess.run([*build, "-t", "localhost/sparklog-tested", house], check=True)
    made = subprocess.run(["buildah", "from", "localhost/sparklog-tested"], check=True, capture_output=True, text=True)
    try:
        run = ["buildah", "run", "--isolation", "chroot", made.stdout.strip(), "--"]
        said = subprocess.run([*run, "sparklog", "--version"], check=True, capture_output=True, text=True).stdout
        who = subprocess.run([*run, "id", "-un"], check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run(["buildah", "rm", made.stdout.strip()], check=True, capture_output=True)
        subprocess.run(["buildah", "rmi", "localhost/sparklog-tested"], check=True, capture_output=True)
    assert said.endswith(" (compiled)\n")
    assert who == "sparklog\n"
