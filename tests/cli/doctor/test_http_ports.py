"""Readiness and clocks, as brokers tell them by HTTP."""

import threading
from email.utils import formatdate
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sparklog.cli.doctor.finding import Severity
from sparklog.cli.doctor.http_ports import Told, ask, http_findings, unheard_findings
from sparklog.structs import Endpoint
from sparklog.testing.clock import ManualClock

NOW_MS = 1_767_225_600_000


def test_clocks_that_may_be_the_same_are_no_finding():
    assert list(http_findings({})) == []
    assert list(http_findings({0: Told(None, (-0.5, 0.6)), 1: Told(None, (2.4, 3.4))})) == []


def test_clocks_that_differ():
    (found,) = http_findings({0: Told(None, (-10, -9)), 1: Told(None, (-0.5, 0.6)), 2: Told(None, (0, 1))})
    assert (found.severity, found.where) == (Severity.WARNING, ("broker 2 is ahead of broker 0",))
    assert found.what.startswith("clocks differ by 9 s")


def test_clocks_that_are_not_known():
    (found,) = unheard_findings([1, 2, 3], heard=[1], here=[2])
    assert (found.severity, found.where) == (Severity.NOTE, ("broker 3",))
    assert "sparklog.metrics.port" in found.advice
    assert "sparklog.metrics.host" in found.advice


def test_the_clock_of_the_only_broker_and_those_of_this_machine_need_not_be_known():
    assert list(unheard_findings([1], heard=[], here=[])) == []
    assert list(unheard_findings([1, 2], heard=[], here=[1, 2])) == []


def test_a_broker_that_is_not_ready():
    (found,) = http_findings({0: Told("the broker is starting", (0, 1))})
    assert (found.severity, found.where) == (Severity.ERROR, ("broker 0",))
    assert "the broker is starting" in found.what


class Port(BaseHTTPRequestHandler):
    """Answers as a broker's port does, ten minutes ahead of us."""

    status = 200

    def do_GET(self):
        self.send_response_only(self.status)
        self.send_header("Date", formatdate(NOW_MS / 1000 + 600, usegmt=True))
        self.end_headers()
        self.wfile.write(b"it is starting\n")

    def log_message(self, *_):
        pass


@pytest.fixture
def port():
    with HTTPServer(("127.0.0.1", 0), Port) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "why"), [(200, None), (503, "it is starting")])
def test_what_a_port_tells(port, monkeypatch, status, why):
    monkeypatch.setattr(Port, "status", status)
    told = ask(Endpoint(*port.server_address), ManualClock(NOW_MS), 60)
    assert told == Told(why, (600, 601))


def test_another_kind_of_port_is_none_of_ours(port, monkeypatch):
    monkeypatch.setattr(Port, "status", 404)
    with pytest.raises(HTTPException):
        ask(Endpoint(*port.server_address), ManualClock(NOW_MS), 60)
