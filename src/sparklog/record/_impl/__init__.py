"""The choice between the two codecs.

``SPARKLOG_IMPL=python`` or ``native`` forces one and raises ConfigError if it is missing. Otherwise the native one
is taken, and where it cannot be imported the pure one; ``fallback_reason`` then keeps why.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, cast

from sparklog.errors import ConfigError

if TYPE_CHECKING:
    from sparklog.record._impl.abc import Codec

VARIABLE = "SPARKLOG_IMPL"
_MODULES = {"python": "sparklog.record._impl.pure", "native": "sparklog.record._impl.native"}


def load(name: str) -> Codec:
    """The codec called ``python`` or ``native``.

    Raises ConfigError for another name, and where it cannot be imported.
    """
    if name not in _MODULES:
        raise ConfigError(f"{VARIABLE}={name!r} is not an implementation: use python or native")
    try:
        return cast("Codec", importlib.import_module(_MODULES[name]))
    except ImportError as error:
        raise ConfigError(
            f"the {name} record codec cannot be loaded ({error}); build it with 'python setup.py build_ext --inplace'"
        ) from error


def choose(forced: str | None) -> tuple[Codec, str | None]:
    """The codec, and why it is not the native one where that was to be expected."""
    if forced:
        return load(forced), None
    try:
        return load("native"), None
    except ConfigError as error:
        return load("python"), str(error)


codec, fallback_reason = choose(os.environ.get(VARIABLE))
