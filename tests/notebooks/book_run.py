"""A notebook as a reader would run it, on a few flights, and what it leaves behind."""

import os
import re
import socket
import sys
import uuid
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from sparklog.testing.eventually import wait_for_death

CELL_TIMEOUT_S = 900
MARK = "SPARKLOG_NOTEBOOK_TEST"


class Run:
    """One run of the notebook; every process that it starts inherits a mark, by which it is found."""

    def __init__(self, notebook, flights, directory, quick_spark):
        self.book = nbformat.read(notebook, as_version=4)
        self.flights = flights
        self.directory = directory
        self.quick_spark = quick_spark
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        self.seen = {}

    def execute(self):
        name, value = self.mark.split("=")
        scratch = self.directory / "scratch"
        scratch.mkdir()
        environment = os.environ | self.quick_spark
        environment |= {name: value, "N_FLIGHTS": str(self.flights), "TMPDIR": str(scratch)}
        # As where no environment is activated: what runs is the kernel's Python, not the one that PATH finds.
        own = str(Path(sys.executable).parent)
        environment["PATH"] = os.pathsep.join(each for each in environment["PATH"].split(os.pathsep) if each != own)
        client = NotebookClient(
            self.book,
            timeout=CELL_TIMEOUT_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(self.directory)}},
            on_cell_executed=lambda cell, **_: self._look(cell),
        )
        client.execute(env=environment)

    def processes(self):
        """pid to command line of the living ones that carry the mark."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # Ended meanwhile, or not ours.
        return found

    def cell(self, name):
        return next(cell for cell in self.book.cells if cell.id == name)

    def text(self, name):
        """What the cell ``name`` printed on standard output."""
        return "".join(each.text for each in self.cell(name).outputs if each.get("name") == "stdout")

    def pictures(self, name):
        return [each.data["image/png"] for each in self.cell(name).outputs if "image/png" in each.get("data", {})]

    def complaints(self):
        """What the cells wrote to standard error."""
        outputs = [each for cell in self.book.cells for each in cell.get("outputs", ())]
        lines = "".join(each.text for each in outputs if each.get("name") == "stderr").splitlines()
        # Matplotlib says so once on a new machine.
        return [line for line in lines if "building the font cache" not in line]

    def _look(self, cell):
        self.seen[cell.id] = self.processes()


def assert_nothing_is_left(run):
    for pid in run.processes():
        wait_for_death(pid)
    assert run.processes() == {}


def outputs_of(notebook):
    """The code cells of a notebook whose outputs were kept by a run of it from first to last."""
    book = nbformat.read(notebook, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run it by notebooks/run.py"
    assert [cell.id for cell in code if not cell.outputs] == ["setup"]
    return code


def assert_nothing_is_told_of_a_machine(told):
    """``told``: all text in the outputs, without pictures."""
    assert re.findall(r"/(?:tmp|home|root|usr|work|var|Users)\b|localhost|\b\d+(?:\.\d+){3}\b|\b0x[0-9a-f]+", told) == []
    assert socket.gethostname() not in told.split()
