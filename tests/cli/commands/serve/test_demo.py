"""``sparklog demo`` from end to end, on the first few thousand flights."""

import json
import re
import subprocess

import pytest

from sparklog.demo.flights import load_flights

FLIGHTS = 3000
HOUR_MS = 3_600_000
DEADLINE_S = 400


@pytest.fixture(scope="module")
def flights():
    """Time, aircraft and value of each flight that the tour takes."""
    loaded = load_flights(FLIGHTS)
    values = map(json.loads, loaded.value.to_pylist())
    return list(zip(loaded.timestamp.to_pylist(), loaded.key.to_pylist(), values, strict=True))


@pytest.mark.timeout(DEADLINE_S + 60)
def test_the_tour_tells_the_truth_and_leaves_a_picture_only(
    spawn, delta_jars, tmp_path, flights, processes_left, quick_spark
):
    picture, temporary = tmp_path / "delays.png", tmp_path / "temporary"
    temporary.mkdir()
    tour = spawn(
        *("demo", "--flights", FLIGHTS, "--partitions", 3, "--plot", picture),
        environ={**quick_spark, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = tour.communicate(timeout=DEADLINE_S)
    assert (tour.returncode, err) == (0, ""), f"{out}\n{err}"  # whole: by its text it is known whether to try again
    assert processes_left() == []
    assert list(temporary.glob("sparklog-demo-*")) == []

    lines = out.splitlines()
    assert lines[-1] == f"picture    {picture}"
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")

    size = sum(len(key or b"") + len(json.dumps(value, separators=(",", ":"))) for _, key, value in flights)
    told = {line.split()[0]: line for line in lines if line.strip()}
    steps = [line.strip() for line in lines if line.startswith(" ") and line.endswith(" ...")]
    assert steps[:2] == ["starting a cluster ...", "replaying flights ..."]
    assert len(steps) == 9
    assert told["replay"].startswith(f"replay     3,000 flights, {size / 1e6:.1f} MB in ")
    assert told["replay"].endswith(", to 3 partitions")
    assert told["copy"].startswith(f"copy       3,000 flights, {size / 1e6:.1f} MB in ")
    assert told["copy"].endswith(", by Spark to another topic, killed in the middle and run again")
    in_log, of_killed = re.fullmatch(
        r"once       the copy's log has ([\d,]+) records, ([\d,]+) of them by what was killed;"
        r" read_committed shows each flight once",
        told["once"],
    ).groups()
    assert int(in_log.replace(",", "")) == FLIGHTS + int(of_killed.replace(",", ""))
    assert told["stream"].startswith("stream     3,000 flights, ")
    assert told["read"].startswith("read back  3,000 flights, ")
    aircraft = len({key for _, key, _ in flights if key is not None})
    assert told["verified"] == (
        "verified   all 3,000 flights arrived exactly as sent: the checksums of 3 partitions agree,"
        f" and each of {aircraft:,} aircraft is in order"
    )
    windows = len({(time // HOUR_MS, value["carrier"], value["origin"]) for time, _, value in flights})
    assert told["table"] == f"table      {windows:,} windows (hour, carrier, airport) in Delta, 3,000 flights"
    for airport in ("EWR", "JFK", "LGA"):
        assert_group(told[airport], [value for _, _, value in flights if value["origin"] == airport])
    assert_group(told["UA"], [value for _, _, value in flights if value["carrier"] == "UA"])


def assert_group(line, values):
    """The line of a table has these flights' number, their share that never left, and their mean delay."""
    delays = [value["dep_delay"] for value in values if value["dep_delay"] is not None]
    count, cancelled, mean = re.search(r" ([\d,]+) +([\d.]+)% +(-?[\d.]+) min", line).groups()
    assert count == f"{len(values):,}"
    assert cancelled == f"{1 - len(delays) / len(values):.1%}".rstrip("%")
    assert float(mean) == pytest.approx(sum(delays) / len(delays), abs=0.051)
