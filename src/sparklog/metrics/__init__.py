"""Metrics of one broker, for Prometheus: what is counted and what is read, and the HTTP port that tells it.

What holds is in ``docs/adr/0038-metrics.md``. ``families`` is the table of what there is, ``collectors`` read the
broker, and ``endpoint`` answers.
"""
