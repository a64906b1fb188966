"""The notebook of the flights, run as a reader would run it, on a few thousand of them; and given up half-way."""

import os
import re
import uuid
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from sparklog.testing.eventually import wait_for_death

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "flights.ipynb"
FLIGHTS = 3_000
CELL_TIMEOUT_S = 300
MARK = "SPARKLOG_NOTEBOOK_TEST"
SERVERS = ("ZooKeeperServerMain", "broker --id 0", "SparkSubmit")
"""What is in the command lines of ZooKeeper, the broker and Spark."""


class Run:
    """One run of the notebook; every process that it starts inherits a mark, by which it is found."""

    def __init__(self, directory):
        self.book = nbformat.read(NOTEBOOK, as_version=4)
        self.directory = directory
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        self.seen = {}

    def execute(self):
        name, value = self.mark.split("=")
        scratch = self.directory / "scratch"
        scratch.mkdir()
        environment = os.environ | {name: value, "N_FLIGHTS": str(FLIGHTS), "TMPDIR": str(scratch)}
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


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose kernel keeps its files to itself."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return Run(tmp_path)


def assert_nothing_is_left(run):
    for pid in run.processes():
        wait_for_death(pid)
    assert run.processes() == {}


def test_it_is_committed_without_outputs_and_paths():
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.id for cell in code if cell.outputs or cell.execution_count] == []
    assert re.findall(r"[\"'](?:/|~|[A-Z]:\\)", "\n".join(cell.source for cell in code)) == []


@pytest.mark.spark
@pytest.mark.timeout(2 * CELL_TIMEOUT_S)
def test_it_runs_counts_every_flight_and_leaves_nothing(run, delta_jars):
    run.execute()
    assert f"{FLIGHTS:,} flights; the first" in run.text("flights")
    shares = re.findall(r"partition \d: ([\d,]+) flights", run.text("replay"))
    assert len(shares) == 4
    assert sum(int(share.replace(",", "")) for share in shares) == FLIGHTS
    assert f"{FLIGHTS:,} flights read" in run.text("parse")
    assert "killed in the middle" in run.text("copy")
    missing = re.search(r"copied the ([\d,]+) flights that were missing", run.text("copy"))[1]
    assert 0 < int(missing.replace(",", "")) < FLIGHTS
    assert f"{FLIGHTS:,} flights for read_committed, as many as were sent" in run.text("once")
    assert f"{FLIGHTS:,} flights streamed, in 1 micro-batch(es)" in run.text("stream")
    assert re.search(rf"{FLIGHTS:,} flights of 1\d airlines", run.text("table"))
    assert len(run.pictures("plot")) == len(run.pictures("table")) == 1
    assert run.complaints() == []
    # The same search that finds nothing in the end has found the two JVMs and the broker meanwhile.
    commands = "\n".join(run.seen["table"].values())
    assert [name for name in SERVERS if name not in commands] == []
    left = "\n".join(run.seen["stop"].values())
    assert [name for name in SERVERS if name in left] == [], "the last cell stops them, not the end of the kernel"
    assert list((run.directory / "scratch").glob("sparklog-flights-*")) == []
    assert_nothing_is_left(run)


@pytest.mark.integration
def test_a_cell_that_fails_leaves_nothing(run):
    run.cell("flights").source = "raise ValueError('as if this cell had failed')"
    with pytest.raises(CellExecutionError, match="as if this cell had failed"):
        run.execute()
    assert len(run.seen["cluster"]) >= 3, "the kernel, ZooKeeper and the broker"
    assert_nothing_is_left(run)
