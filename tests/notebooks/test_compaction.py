"""The notebook of compaction: as it is read, and run as a reader would run it on a few thousand flights."""

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

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "compaction.ipynb"
FLIGHTS = 3_000


@pytest.fixture
def run(tmp_path, monkeypatch, quick_spark):
    """A run whose kernel keeps its files to itself."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return Run(NOTEBOOK, FLIGHTS, tmp_path, quick_spark)


def test_its_outputs_are_in_the_file_and_tell_nothing_of_a_machine():
    code = outputs_of(NOTEBOOK)
    told = json.dumps([cell.outputs for cell in code if cell.id != "setup"])
    assert "the same as from all" in told
    words = re.sub(r'"image/png": "[^"]*"', "", told)
    assert_nothing_is_told_of_a_machine(words)


@pytest.mark.slow  # a minute of a JVM of its own; that of the flights runs up to its first cell of Spark in every run
@pytest.mark.spark
@pytest.mark.timeout(2 * CELL_TIMEOUT_S)
def test_it_runs_and_comes_to_the_right_table(run):
    run.execute()
    written = int(re.search(r"([\d,]+) records are in the log", run.text("write"))[1].replace(",", ""))
    assert f"{written:,} records read" in run.text("history")
    kept = int(re.search(r"records became ([\d,]+)", run.text("clean"))[1].replace(",", ""))
    assert 0 < kept < written
    assert f"the same as from all {written + 1:,}" in run.text("same")
    assert re.search(r"[1-9]\d* cleanings with 0.5, [1-9]\d* with 0.2", run.text("sawtooth"))
    assert "should not be there" in run.text("slow")
    assert "begun anew, his table is right: True" in run.text("slow-look")
    assert "positions-lagging: 20,000 records may not be cleaned yet" in run.text("lag-look")
    pictures = [cell.id for cell in run.book.cells if cell.cell_type == "code" and run.pictures(cell.id)]
    assert pictures == ["left", "same", "sawtooth-plot", "lag-mend"]
    assert run.complaints() == []
    assert_nothing_is_left(run)
