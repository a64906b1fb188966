"""A systemd unit of ``conf/``, and what it would run, as a process of ours with other paths and ports."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

CONF = Path(__file__).parents[2] / "conf"
PROGRAM = f"{shlex.quote(sys.executable)} -m sparklog.cli.main"
WAIT_S = 120


def assignments(path):
    """The lines ``NAME=VALUE`` of a unit or an environment file, in their order."""
    lines = path.read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if re.match(r"[A-Za-z_]+=", line)]


class Unit:
    """``sparklog-KIND@.service``."""

    def __init__(self, kind):
        self.path = CONF / "systemd" / f"sparklog-{kind}@.service"
        self.settings = assignments(self.path)

    def __getitem__(self, name):
        (value,) = (value for key, value in self.settings if key == name)
        return value

    def environment_files(self, instance):
        return [value.replace("%i", instance) for key, value in self.settings if key == "EnvironmentFile"]

    def command(self, instance, environ):
        """The words of ExecStart: ``${NAME}`` is one word, ``$NAME`` as many as it has."""
        words = []
        for word in self["ExecStart"].replace("%i", instance).split():
            if word.startswith("$") and not word.startswith("${"):
                words += environ.get(word[1:], "").split()
            else:
                words.append(re.sub(r"\$\{(\w+)\}", lambda found: environ[found[1]], word))
        return words


class RunningUnit:
    """An instance of a unit, run by us as by systemd. ``here`` replaces texts of the unit and of its files by ours."""

    def __init__(self, kind, instance, directory, here):
        self.unit = Unit(kind)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listening.settimeout(WAIT_S)
        self._listening.bind(str(directory / f"{kind}-{instance}.notify"))
        given = {
            name: value
            for each in self.unit.environment_files(instance)
            if (path := Path(here(each.removeprefix("-")))).is_file()
            for name, value in assignments(path)
        }
        command = [word for each in self.unit.command(instance, given) for word in shlex.split(here(each))]
        environ = os.environ | given | {"NOTIFY_SOCKET": self._listening.getsockname()}
        with (directory / f"{kind}-{instance}.log").open("wb") as log:
            self.process = subprocess.Popen(command, cwd=directory, env=environ, stdout=log, stderr=log)

    def wait_for(self, state):
        """Return when it has said that it is in that state."""
        while state not in self._listening.recv(4096).decode().splitlines():
            pass

    def stop(self):
        """As systemd would; its exit status."""
        self.process.send_signal(signal.Signals[self.unit["KillSignal"]])
        self.wait_for("STOPPING=1")
        return self.process.wait(int(self.unit["TimeoutStopSec"]))

    def close(self):
        self._listening.close()
        self.process.kill()
        self.process.wait()
