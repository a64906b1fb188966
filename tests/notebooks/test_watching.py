"""The notebook of watching a cluster: as it is read, and run as a reader would run it, with shorter parts."""

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

HOUSE = Path(__file__).parents[2]
NOTEBOOK = HOUSE / "notebooks" / "watching.ipynb"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose kernel keeps its files to itself."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PART_SECONDS", "1")
    return Run(NOTEBOOK, 0, tmp_path, {})


def test_its_outputs_are_in_the_file_and_tell_nothing_of_a_machine():
    code = outputs_of(NOTEBOOK)
    told = json.dumps([cell.outputs for cell in code if cell.id != "setup"])
    assert "the log has just what was acknowledged: True" in told
    assert_nothing_is_told_of_a_machine(re.sub(r'"image/png": "[^"]*"', "", told))


def test_it_names_series_and_alerts_that_there_are():
    text = NOTEBOOK.read_text()
    page = (HOUSE / "docs" / "metrics.md").read_text()
    series = {each for each in re.findall(r"\b(?:kafka|sparklog)_[a-z_]+\b", text) if not each.endswith("_")}
    assert {each for each in series if each not in page} == set()
    rules = set(re.findall(r"alert: (\w+)", (HOUSE / "conf" / "prometheus" / "alerts.yml").read_text()))
    assert set(re.findall(r"\bSparklog[A-Z]\w+", text)) - {"SparklogError"} <= rules


@pytest.mark.slow  # brokers that come, die and come back, for half a minute
@pytest.mark.integration
@pytest.mark.timeout(2 * CELL_TIMEOUT_S)
def test_it_runs_and_sees_what_it_tells_of(run):
    run.execute()
    assert "18 replicas in sync, 0 partitions under-replicated" in run.text("rest")
    assert "12 replicas of orders are in sync, of 18" in run.text("kill")
    assert "partitions without a leader: 0; with too few in sync: 0" in run.text("kill")
    assert "18 replicas of orders are in sync" in run.text("back")
    assert run.text("alerts").splitlines() == [
        "SparklogBrokerDown: was true",
        "SparklogUnderReplicated: was true",
        "SparklogGroupBehind: was true",
    ]
    assert "the log has just what was acknowledged: True" in run.text("lost")
    pictures = [cell.id for cell in run.book.cells if cell.cell_type == "code" and run.pictures(cell.id)]
    assert pictures == ["plot", "alerts"]
    assert run.complaints() == []
    assert_nothing_is_left(run)
