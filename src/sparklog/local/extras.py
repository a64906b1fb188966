"""The parts of sparklog that need more packages (``pyproject.toml``), and what to type to have one.

No package index has sparklog: it is installed from a checkout, or from a wheel that was built in one.
"""

from __future__ import annotations

from pathlib import Path


def install_line(extra: str) -> str:
    """The command that installs the part called ``extra``."""
    root = checkout()
    if root is not None:
        return f"pip install '{root}[{extra}]'"
    return f"pip install '.[{extra}]' in a checkout of sparklog, or pip install 'WHEEL[{extra}]' with its wheel"


def checkout() -> Path | None:
    """The checkout that this code runs from; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "pyproject.toml").is_file() else None
