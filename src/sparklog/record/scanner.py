"""Scanning a segment: its batches are walked end to end and checked whole, and its indexes made anew."""

from __future__ import annotations

from sparklog.record import _impl
from sparklog.record._impl.abc import BatchScanner, ScanLimits

__all__ = ["BatchScanner", "ScanLimits", "make_scanner"]


def make_scanner(limits: ScanLimits) -> BatchScanner:
    """A scanner for one segment, of the codec that is in use."""
    return _impl.codec.BatchScanner(limits)
