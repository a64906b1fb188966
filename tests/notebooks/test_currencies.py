"""The notebook of the currencies: as it is read, and run as a reader would run it."""

import json
import re
from pathlib import Path

import pytest
from notebooks.book_run import (
    CELL_TIMEOUT_S,
    Run,
    assert_nothing_is_left,
    assert_nothing_is_told_of_a_machine,
    outputs_of,
)

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "currencies.ipynb"


@pytest.fixture
def run(tmp_path, monkeypatch, quick_spark):
    """A run whose kernel keeps its files to itself."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return Run(NOTEBOOK, 0, tmp_path, quick_spark)


def test_its_outputs_are_in_the_file_and_tell_nothing_of_a_machine():
    code = outputs_of(NOTEBOOK)
    told = json.dumps([cell.outputs for cell in code if cell.id != "setup"])
    assert "the same as in the table" in told
    assert_nothing_is_told_of_a_machine(re.sub(r'"image/png": "[^"]*"', "", told))


@pytest.mark.slow  # a minute of a JVM of its own; that of the flights runs up to its first cell of Spark in every run
@pytest.mark.spark
@pytest.mark.timeout(2 * CELL_TIMEOUT_S)
def test_it_runs_and_comes_to_the_right_table(run, delta_jars):
    del delta_jars
    pytest.importorskip("babel")
    run.execute()
    inserts, updates, deletes = map(int, re.findall(r"(\d+) (?:inserts|updates|deletes)", run.text("changes")))
    assert inserts > updates / 2 > deletes > 0
    changes = inserts + updates + deletes
    rows = [int(each) for each in re.findall(r"make\s+(\d+) rows", run.text("table"))]
    assert rows == sorted(rows)
    assert rows[-1] == inserts - deletes
    assert "compatibility is BACKWARD" in run.text("refuse")
    assert f"{rows[-1]} countries" in run.text("read")
    kept = int(re.search(rf"{changes} records became (\d+)", run.text("clean"))[1])
    assert rows[-1] <= kept < changes
    assert "the same as in the table" in run.text("clean")
    assert len(run.pictures("dashboard")) == 1
    assert run.complaints() == []
    assert_nothing_is_left(run)
