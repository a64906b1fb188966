"""The page of performance against what makes it: each aim of a section is judged there by its own table."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
COLUMNS = ("measurement", "figure", "sparklog", "peer", "other", "ratio", "rounds")


@pytest.fixture
def lake(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    from benchmarks.report.lake import lake

    return lake


def section(title):
    (found,) = re.findall(rf"^## {title}$(.*?)^(?:## |<!-- end)", PAGE, re.MULTILINE | re.DOTALL)
    return found


def rows_of(text):
    """As a benchmark gives them, but for what the page leaves out."""
    for line in text.splitlines():
        cells = dict(zip(COLUMNS, (each.strip() for each in line.strip("|").split("|")), strict=False))
        if len(cells) == len(COLUMNS) and re.match(r"[\d.,]+$", cells["sparklog"]):
            numbers = {
                name: float(cells[name].replace(",", "")) for name in ("sparklog", "other", "ratio") if cells[name]
            }
            part = "union" if cells["measurement"].endswith("from table and log") else ""
            yield {
                **{name: text for name, text in cells.items() if text},
                "peer": cells["peer"],
                **numbers,
                "part": part,
            }


def aims_of(text):
    return [
        line.removeprefix("- ") for line in text.splitlines() if re.match(r"- (Reached|\*\*Not reached\*\*): ", line)
    ]


def test_the_aims_of_log_and_lake_are_those_that_its_figures_are_judged_by(lake):
    text = section("Log and lake")
    judged = lake(list(rows_of(text))).aims
    assert len(judged) == 6
    assert aims_of(text) == [str(each) for each in judged]


@pytest.mark.parametrize(("megabytes", "is_reached"), [(299.0, False), (300.0, True)])
def test_what_a_core_offloads(lake, megabytes, is_reached):
    row = {"part": "", "measurement": "offload 1000 B", "figure": "of CPU time: MB/s", "sparklog": megabytes}
    (aim,) = lake([{**row, "peer": ""}]).aims
    assert aim.reached is is_reached


def test_a_load_is_judged_beside_a_producer_and_what_the_disk_allows_is_told(lake):
    made = {"part": "", "measurement": "load 1000 B", "peer": "p", "sparklog": 400.0, "ratios": [2.0]}
    beside = {**made, "figure": "MB/s", "other": 200.0, "ratio": 2.0}
    disk = {**made, "figure": "of the disk: MB/s", "other": 450.0, "ratio": 0.89}
    aim, _ = lake([beside, disk]).aims
    assert aim.reached
    assert aim.got == "2.00 times, where a plain write to the disk is 2.25 times as fast"
