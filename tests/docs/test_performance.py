"""The page of performance against what makes it: each aim of a section is judged there by its own table."""

import importlib
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


@pytest.fixture
def report(monkeypatch):
    """``report(NAME)``: a module of ``benchmarks.report``."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    return lambda name: importlib.import_module(f"benchmarks.report.{name}")


def ratios_of(text, column):
    """The ratio of each figure, which stands in ``column`` of the table."""
    for line in text.splitlines():
        cells = [each.strip() for each in line.strip("|").split("|")]
        if len(cells) > column and re.match(r"[\d.]+$", cells[column]):
            yield {"measurement": cells[0], "figure": cells[1], "ratio": float(cells[column])}


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


def test_the_aims_of_one_record_at_a_time_are_those_that_the_figures_are_judged_by(report):
    text, judge, broker = section("Broker"), report("compared").ratio_aim, report("broker")
    rows = list(ratios_of(text, 4))
    judged = [judge(rows, *each) for each in broker.RATIO_AIMS]
    assert len(judged) == 2
    assert [str(each) for each in judged] == aims_of(text)[-2:]


def test_the_aims_beside_confluent_kafka_are_those_that_the_figures_are_judged_by(report):
    text, judge, client = section("Python client"), report("compared").ratio_aim, report("client")
    rows = list(ratios_of(text, 4))
    judged = [judge(rows, *each) for each in client.RATIO_AIMS]
    assert len(judged) == 2
    assert [str(each) for each in judged] == aims_of(text)[3:5]


@pytest.mark.parametrize(("ratio", "is_reached"), [(0.69, False), (0.7, True)])
def test_a_ratio_is_judged(report, ratio, is_reached):
    rows = [{"measurement": "a", "figure": "f", "ratio": 2.0}, {"measurement": "b", "figure": "f", "ratio": ratio}]
    assert report("compared").ratio_aim(rows, "0.7", 0.7, {"a": "f", "b": "f"}).reached is is_reached


def beside_kafka(text):
    """The rows of a table beside Kafka alone, as a benchmark gives them."""
    for line in text.splitlines():
        cells = [each.strip() for each in line.strip("|").split("|")]
        if len(cells) == 6 and re.match(r"[\d.,]+$", cells[2]):
            yield {
                **dict(zip(("measurement", "figure"), cells[:2], strict=True)),
                **{name: _number(cell) for name, cell in zip(("sparklog", "kafka", "ratio"), cells[2:5], strict=True)},
                "ratios": [_number(each) for each in cells[5].split(" - ")],
            }


def _number(cell):
    return float(cell.replace(",", ""))


def test_the_aims_of_three_replicas_are_those_that_its_figures_are_judged_by(report):
    text = section("Three replicas")
    measured, *judged = report("replication").replication(list(beside_kafka(text))).aims
    assert measured.wanted == "all parts measured whole"  # by what the page has not
    assert len(judged) == 4
    assert aims_of(text)[1:] == [str(each) for each in judged]


@pytest.mark.parametrize(("seconds", "is_reached"), [(0.99, True), (1.0, False)])
def test_how_soon_librdkafka_is_answered_again(report, seconds, is_reached):
    row = {"figure": "s", "kafka": 6.0, "ratio": 6.0, "ratios": [6.0]}
    named = {"after SIGKILL of a leader, 10 partitions": seconds, "after controlled shutdown, 10 partitions": 5.0}
    noticed = {"after SIGKILL of a leader, 10 partitions: once noticed": 5.0}
    rows = [{**row, "measurement": name, "sparklog": each} for name, each in (named | noticed).items()]
    *_, aim = report("replication").replication(rows).aims
    assert (aim.got, aim.reached) == (f"after SIGKILL of a leader, 10 partitions: {seconds:.2f} s", is_reached)


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


@pytest.fixture
def stalls(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    from benchmarks.report.stalls import stalls

    return stalls


def stall(measurement, longest, turn):
    row = {"measurement": measurement, "turn": turn, "longest": longest}
    return {**row, "garbage": 0.0, "p99": 0.0, "longests": [longest]}


def stalls_of(text):
    """The rows of the page, as the benchmark gives them."""
    for line in text.splitlines():
        measurement, *numbers = (each.strip() for each in line.strip("|").split("|"))
        if len(numbers) == 5 and re.match(r"[\d.,]+$", numbers[0]):
            turn, _, longest, _ = (float(each.replace(",", "")) for each in numbers[:4])
            yield stall(measurement, longest, turn)


def test_the_aims_of_stalls_are_those_that_its_figures_are_judged_by(stalls):
    text = section("One client beside another")
    assert aims_of(text) == [str(each) for each in stalls(list(stalls_of(text))).aims]


@pytest.mark.parametrize(
    ("longest", "turn", "reached"),
    [(20.0, 20.0, [True, True]), (20.1, 20.0, [False, True]), (20.0, 20.1, [True, False])],
)
def test_a_stall_is_judged_by_what_another_client_waits_and_by_the_turn(stalls, longest, turn, reached):
    rows = [stall("nothing", 30.0, 30.0), stall("Fetch", longest, turn)]
    assert [each.reached for each in stalls(rows).aims] == reached
