"""What metrics count on the way of a request costs a busy broker less than a hundredth of its processor time.

``benchmarks/counting.py`` has the additions. A request's time is that of a real broker's loop, which is given many at
once, as a busy one is. Both are processor time, and the least of many rounds, so that other work of the machine changes
little.
"""

import ast
import re
from pathlib import Path

import pytest
from integration import wire

from sparklog import not_compiled
from sparklog.errors import ErrorCode
from sparklog.net.request_meter import RequestMeter
from sparklog.replica.traffic import FIELDS, Traffic
from sparklog.structs import TopicPartition

ROOT = Path(__file__).parents[2]
SHARE = 0.01
OF_INTERPRETER = 1 if not_compiled else 2
"""So many times as long the additions take here, where the interpreter runs them, as it does with a whole request."""
TIMES, ROUNDS = 2_000, 30
AT_ONCE, TURNS = 50, 40
RECORDS = [b"%0100d" % number for number in range(100)]
ON_THE_WAY = ("net/channel.py", "broker/dispatch.py", "replica/manager.py", "broker/apis/records/fetch.py")
"""Where requests are counted."""
RARE = {"enter", "leave", "failed_produces", "failed_fetches"}
"""What is counted, or called, for no ordinary request."""
_COUNTERS = re.compile(r"(\bmeter|meters\[.*\]|\btraffic|\bof_topic|\bfound)$")


@pytest.fixture
def counting(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import counting

    return counting


def cpu_s(pid):
    """What the first thread of a process has worked, in seconds: a broker's loop."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def time_of(pid, connection, tp, batch):
    """The processor time (s) of one of many requests that come at once."""
    begun = cpu_s(pid)
    for _ in range(AT_ONCE):
        wire.send_produce(connection, tp, batch)
    for _ in range(AT_ONCE):
        assert wire.receive_produced(connection)[0] is ErrorCode.NONE
    return (cpu_s(pid) - begun) / AT_ONCE


@pytest.mark.integration
def test_counting_takes_less_than_a_hundredth_of_a_produce(cluster, topic, counting, record_property):
    batch, tp = wire.batch_of(*RECORDS), TopicPartition(topic, 0)
    broker = cluster.broker(0)
    with wire.connect(broker.address) as connection:
        wire.create_topic(connection, topic, 1)
        request = min(time_of(broker.pid, connection, tp, batch) for _ in range(TURNS))
    cost = counting.costs(TIMES, ROUNDS)
    counted = (cost[counting.REQUEST] + cost[counting.NO_LOG] + cost[counting.PRODUCED]) / OF_INTERPRETER
    record_property("share", counted / request)
    assert counted < SHARE * request, f"{counted * 1e9:.0f} ns of {request * 1e6:.1f} µs"


def counters_in(path):
    """The names of what a module adds to, or calls, of meters and of traffic."""
    known = {*FIELDS, *dir(RequestMeter), *dir(Traffic)}
    nodes = (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Attribute))
    return {each.attr for each in nodes if _COUNTERS.search(ast.unparse(each.value)) and each.attr in known}


def test_what_is_measured_is_what_is_counted_on_the_way():
    counted = set().union(*(counters_in(ROOT / "src" / "sparklog" / each) for each in ON_THE_WAY)) - RARE
    assert counted == counters_in(ROOT / "benchmarks" / "counting.py") - RARE
    assert {"begin", "queued_s", "loop_s", "answer", "produces", "records_in", "bytes_in", "send"} <= counted
