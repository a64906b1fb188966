"""A rate that processes of one machine keep together."""

import os
import struct

import pytest

from sparklog.compaction.host_rate import HostRate, shared_place
from sparklog.testing.clock import ManualClock


@pytest.fixture
def place(tmp_path):
    return tmp_path / "rate"


def test_what_one_moves_the_others_wait_for(place):
    clock = ManualClock()
    first, second = (HostRate(clock, 1000.0, place) for _ in range(2))
    assert first.owe(500) == 0.5
    assert second.owe(500) == 1.0
    assert first.owe(1000) == 2.0
    clock.advance(1.5)
    assert second.owe(500) == 1.0
    clock.advance(10)
    assert first.owe(100) == pytest.approx(0.1)


def test_rates_may_differ(place):
    clock = ManualClock()
    assert HostRate(clock, 1000.0, place).owe(1000) == 1.0
    assert HostRate(clock, 100.0, place).owe(100) == 2.0


def test_a_file_of_something_else_is_not_read(place):
    place.write_bytes(b"abc")
    assert HostRate(ManualClock(), 1000.0, place).owe(500) == 0.5


def test_a_file_of_another_user_is_not_read(place, caplog, monkeypatch):
    place.write_bytes(struct.pack("<d", 1e12))
    monkeypatch.setattr(os, "getuid", lambda: place.stat().st_uid + 1)
    assert HostRate(ManualClock(), 1000.0, place).owe(500) == 0.5
    assert "belongs to another user; remove it" in caplog.text


@pytest.mark.parametrize("rate", [1e300, float("inf")])
def test_without_a_limit_there_is_no_file(place, rate):
    assert HostRate(ManualClock(), rate, place).owe(1 << 40) == 0.0
    assert not place.exists()


def test_where_there_can_be_no_file_the_rate_is_kept_alone(tmp_path, caplog):
    rate = HostRate(ManualClock(), 1000.0, tmp_path / "none" / "rate")
    assert rate.owe(500) == 0.5
    assert "is not shared with the other tasks" in caplog.text


def test_a_link_that_somebody_has_laid_is_not_followed(tmp_path, place):
    place.symlink_to(tmp_path / "victim")
    assert HostRate(ManualClock(), 1000.0, place).owe(500) == 0.5
    assert not (tmp_path / "victim").exists()


def test_the_place_is_one_for_all_processes_of_a_user():
    assert shared_place() == shared_place()
    assert shared_place().name.startswith("sparklog-cleaner-rate-")
