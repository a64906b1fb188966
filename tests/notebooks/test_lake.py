"""The notebook of log and lake: as it is read, and run as a reader would run it on a few thousand flights."""

import json
import re
import socket
from pathlib import Path

import nbformat
import pytest
from notebooks.book_run import (
    CELL_TIMEOUT_S,
    Run,
    assert_nothing_is_left,
    assert_nothing_is_told_of_a_machine,
    outputs_of,
)

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "lake.ipynb"
FLIGHTS = 3_000


@pytest.fixture
def run(tmp_path, monkeypatch, quick_spark):
    """A run whose kernel keeps its files to itself."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("LIVE_SECONDS", "3")
    return Run(NOTEBOOK, FLIGHTS, tmp_path, quick_spark)


def test_its_outputs_are_in_the_file_and_tell_nothing_of_a_machine():
    code = outputs_of(NOTEBOOK)
    told = json.dumps([cell.outputs for cell in code if cell.id != "setup"])
    assert "table and log together have 336,776 flights" in told
    words = re.sub(r'"image/png": "[^"]*"', "", told)
    assert_nothing_is_told_of_a_machine(words)


@pytest.mark.spark
@pytest.mark.slow  # a minute of a JVM of its own; the suites of its parts run in every run
@pytest.mark.timeout(2 * CELL_TIMEOUT_S)
def test_it_reads_every_flight_once(run):
    run.execute()
    assert f"table and log together have {FLIGHTS:,} flights" in run.text("union")
    assert "every flight is there once: True" in run.text("union")
    assert f"the log has {FLIGHTS // 10:,} flights" in run.text("front")
    assert f"{FLIGHTS:,} flights in" in run.text("stream")
    assert "after another offload: []" in run.text("stream")
    pictures = [cell.id for cell in run.book.cells if cell.cell_type == "code" and run.pictures(cell.id)]
    assert pictures == ["fresh-plot"]
    assert run.complaints() == []
    assert_nothing_is_left(run)
