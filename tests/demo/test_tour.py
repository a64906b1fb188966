"""The tour refuses what it cannot do before it starts anything; the command's own test goes on it."""

import importlib.util

import pytest

from sparklog.demo import tour
from sparklog.demo.tour import TourOptions, run
from sparklog.errors import ConfigError


@pytest.fixture
def nothing_starts(monkeypatch):
    def refuse(*_arguments, **_options):
        pytest.fail("a cluster was made")

    monkeypatch.setattr(tour, "LocalCluster", refuse)


@pytest.mark.usefixtures("nothing_starts")
def test_a_directory_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "precious").touch()
    with pytest.raises(ConfigError, match="is not empty: the demo wants a new directory for --data"):
        run(TourOptions(10, 1, tmp_path, tmp_path / "plot.png"), pytest.fail)


@pytest.mark.usefixtures("nothing_starts")
def test_what_is_not_installed_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("delta", "matplotlib") else name)
    with pytest.raises(ConfigError, match=r"the demo needs delta, matplotlib; type: pip install '.*\[demo\]'"):
        run(TourOptions(10, 1, None, tmp_path / "plot.png"), pytest.fail)


@pytest.mark.usefixtures("nothing_starts")
def test_a_picture_without_a_place_is_refused(tmp_path):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "plot.png"
    with pytest.raises(ConfigError, match=r"the picture cannot be written into .*file: choose another place"):
        run(TourOptions(10, 1, None, place), pytest.fail)
