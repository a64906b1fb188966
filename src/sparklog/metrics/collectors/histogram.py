"""A meter's buckets as a histogram of Prometheus's, or as percentiles like those of Kafka's beans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparklog.metrics.exposition import Exposition, Family, label_text
from sparklog.net.request_meter import BOUNDS_S, RequestMeter, quantile

QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""As the JMX exporter writes those that Kafka's histograms have."""

_BUCKETS_A_LE = 6
"""So many buckets of a meter are one of the histogram: each ends at three times the one before."""


def add_histogram(page: Exposition, family: Family, meter: RequestMeter, *labels: str) -> None:
    """Add the samples of one histogram of seconds."""
    lines, seen = page.lines(family), 0
    for number, count in enumerate(meter.buckets):
        seen += count
        if number == len(BOUNDS_S) or number % _BUCKETS_A_LE == _BUCKETS_A_LE - 1:
            end = f"{BOUNDS_S[number]:.6g}" if number < len(BOUNDS_S) else "+Inf"
            lines.append(f"{family.name}_bucket{label_text((*family.labels, 'le'), (*labels, end))} {seen}\n")
    text = label_text(family.labels, labels)
    lines += (f"{family.name}_sum{text} {meter.total_s}\n", f"{family.name}_count{text} {seen}\n")


def add_percentiles(page: Exposition, family: Family, buckets: Sequence[int], *labels: str) -> None:
    """Add the milliseconds that shares of what is in ``buckets`` did not exceed."""
    for share in QUANTILES:
        page.add(family, round(1000 * quantile(buckets, float(share)), 3), *labels, share)
