"""The packages that read and write values, which not everybody needs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sparklog.errors import ConfigError


def needed(module: str) -> Any:
    """The module. Raises ConfigError, which says what to install, if it is not there."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ConfigError(
            f"values of a schema registry need {package}; type: pip install {package} (or sparklog's extra registry)"
        ) from None
