"""The notebook of the flights: as it is read, run as a reader would run it on a few thousand, and given up half-way."""

import json
import re
import socket
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from notebooks.book_run import (
    CELL_TIMEOUT_S,
    Run,
    assert_nothing_is_left,
    assert_nothing_is_told_of_a_machine,
    outputs_of,
)

from sparklog.demo.flights import ALL_FLIGHTS

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "flights.ipynb"
FLIGHTS = 3_000
SERVERS = ("ZooKeeperServerMain", "broker --id 0", "SparkSubmit")
"""What is in the command lines of ZooKeeper, the broker and Spark."""


@pytest.fixture
def run(tmp_path, monkeypatch, quick_spark):
    """A run whose kernel keeps its files to itself."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return Run(NOTEBOOK, FLIGHTS, tmp_path, quick_spark)


def test_its_outputs_are_in_the_file_and_tell_nothing_of_a_machine():
    code = outputs_of(NOTEBOOK)
    assert [cell.id for cell in code if len(json.dumps(cell.outputs)) > 200_000] == []
    kinds = {(each.output_type, each.get("name")) for cell in code for each in cell.outputs}
    assert kinds == {("stream", "stdout"), ("display_data", None), ("execute_result", None)}
    told = "\n".join(_told(each) for cell in code for each in cell.outputs)
    assert f"{ALL_FLIGHTS:,} flights for read_committed, as many as were sent" in told
    assert_nothing_is_told_of_a_machine(told)
    assert set(re.findall(r"\b20\d\d\b", told)) == {"2013"}, "the flights' year, and not the run's"
    assert re.findall(r"[\"'](?:/|~|[A-Z]:\\)", "\n".join(cell.source for cell in code)) == []


def _told(output):
    """All text of an output; pictures are left out."""
    return output.get("text", "") + "\n".join(
        text for kind, text in output.get("data", {}).items() if kind.startswith("text/")
    )


@pytest.mark.slow  # a minute of a JVM of its own; what comes before Spark runs in every run, below
@pytest.mark.spark
@pytest.mark.timeout(2 * CELL_TIMEOUT_S)
def test_it_runs_counts_every_flight_and_leaves_nothing(run, delta_jars):
    run.execute()
    _assert_clients_have_seen_all(run)
    assert "0 values do not parse" in run.text("parse")
    assert f"{FLIGHTS:,} flights read" in run.text("parse")
    assert "killed in the middle" in run.text("copy")
    missing = re.search(r"copied the ([\d,]+) flights that were missing", run.text("copy"))[1]
    assert 0 < int(missing.replace(",", "")) < FLIGHTS
    behind = [int(each.replace(",", "")) for each in re.findall(r"it was ([\d,]+) flights behind", run.text("copy"))]
    assert FLIGHTS * 2 // 3 <= behind[0] < FLIGHTS
    assert behind[-1] == 0
    assert f"{FLIGHTS:,} flights for read_committed, as many as were sent" in run.text("once")
    assert f"{FLIGHTS:,} flights streamed" in run.text("stream")
    assert re.search(rf"{FLIGHTS:,} flights of 1\d airlines", run.text("table"))
    assert len(run.pictures("plot")) == len(run.pictures("table")) == 1
    assert run.complaints() == []
    # The same search that finds nothing in the end has found the two JVMs and the broker meanwhile.
    commands = "\n".join(run.seen["table"].values())
    assert [name for name in SERVERS if name not in commands] == []
    left = "\n".join(run.seen["stop"].values())
    assert [name for name in SERVERS[:2] if name in left] == [], "the last cell stops them, not the end of the kernel"
    assert list((run.directory / "scratch").glob("sparklog-flights-*")) == []
    assert_nothing_is_left(run)


def _assert_clients_have_seen_all(run):
    assert f"{FLIGHTS:,} flights; the first" in run.text("flights")
    assert f"{FLIGHTS:,} flights are in the log" in run.text("replay")
    assert "1,000 flights shown" in run.text("group")
    assert f"the group is {FLIGHTS - 1_000:,} flights behind" in run.text("lag")
    assert f"{FLIGHTS:,} flights shown; the group is 0 behind" in run.text("lag")


@pytest.mark.integration
def test_it_runs_up_to_a_cell_that_fails_and_leaves_nothing(run):
    run.cell("spark").source = "raise ValueError('as if this cell had failed')"
    with pytest.raises(CellExecutionError, match="as if this cell had failed"):
        run.execute()
    _assert_clients_have_seen_all(run)
    assert len(run.seen["cluster"]) >= 3, "the kernel, ZooKeeper and the broker"
    assert_nothing_is_left(run)
