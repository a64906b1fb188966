"""The notebook of exactly once: as it is read, and run as a reader would run it on a few thousand flights."""

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

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "exactly_once.ipynb"
FLIGHTS = 7_000
DEATHS, BATCH = 8, 250


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose kernel keeps its files to itself."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return Run(NOTEBOOK, FLIGHTS, tmp_path, {})


def test_its_outputs_are_in_the_file_and_tell_nothing_of_a_machine():
    code = outputs_of(NOTEBOOK)
    told = json.dumps([cell.outputs for cell in code if cell.id != "setup"])
    assert "10,000 results count; 1,000 are aborted, of 8 transactions" in told
    assert_nothing_is_told_of_a_machine(re.sub(r'"image/png": "[^"]*"', "", told))


@pytest.mark.slow  # 27 programs that start, and most of them die
@pytest.mark.integration
@pytest.mark.timeout(2 * CELL_TIMEOUT_S)
def test_it_runs_and_only_transactions_are_once(run):
    run.execute()
    lost, twice = DEATHS * BATCH // 2, DEATHS * BATCH
    (table,) = (each.data["text/plain"] for each in run.cell("count").outputs)
    assert [list(map(int, re.findall(r"\d+", line))) for line in table.splitlines()[1:]] == [
        [FLIGHTS - lost, 0, lost],
        [FLIGHTS - twice, twice, 0],
        [FLIGHTS, 0, 0],
    ]
    assert f"{FLIGHTS:,} results count; {lost:,} are aborted, of {DEATHS} transactions" in run.text("log")
    assert "readers of committed records wait before 2 records" in run.text("open")
    assert run.text("zombie").splitlines() == [
        "the zombie is refused: PRODUCER_FENCED",
        "readers see: not yet, written by somebody else, from the new one",
    ]
    pictures = [cell.id for cell in run.book.cells if cell.cell_type == "code" and run.pictures(cell.id)]
    assert pictures == ["count-plot", "log-plot"]
    assert run.complaints() == []
    assert_nothing_is_left(run)
