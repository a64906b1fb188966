import importlib

import pytest

from sparklog.errors import ConfigError
from sparklog.record import _impl


def test_native_is_the_default():
    codec, reason = _impl.choose(None)
    assert (codec.name, reason) == ("native", None)


@pytest.mark.parametrize("name", ["python", "native"])
def test_forced(name):
    assert _impl.choose(name)[0].name == name


def test_unknown_name():
    with pytest.raises(ConfigError, match="use python or native"):
        _impl.choose("fortran")


def test_missing_native_falls_back_and_says_why(monkeypatch):
    _break_native(monkeypatch)
    codec, reason = _impl.choose(None)
    assert codec.name == "python"
    assert "no compiled module" in reason
    assert "build_ext" in reason


def test_missing_native_raises_when_forced(monkeypatch):
    _break_native(monkeypatch)
    with pytest.raises(ConfigError, match="no compiled module"):
        _impl.choose("native")


def _break_native(monkeypatch):
    real = importlib.import_module

    def import_module(name):
        if name.endswith("native"):
            raise ImportError("no compiled module")
        return real(name)

    monkeypatch.setattr(importlib, "import_module", import_module)
