"""``docs/metrics.md``: the families of metrics, told by the table itself.

``python -m sparklog.metrics.page > docs/metrics.md`` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import definitions
from sparklog.metrics.boards import BOARDS, NOT_TOLD, RECORDED
from sparklog.metrics.exposition import Family
from sparklog.metrics.families import FAMILIES
from sparklog.metrics.kafkas import WATCHED

_HEAD = """\
# Metrics

A broker tells Prometheus its numbers by HTTP, where `sparklog.metrics.port` gives it a port. `sparklog up` gives each
of its brokers one, and names the address.

| path | what it answers |
| --- | --- |
| `/metrics` | the numbers below, in Prometheus's text format 0.0.4 |
| `/health` | 200 when the broker's loop answers |
| `/ready` | 200 while the broker is registered and knows the cluster, until it begins to stop; else 503 and why |

```sh
sparklog broker --config server.properties --metrics-port 9308
curl -s http://127.0.0.1:9308/metrics | grep underreplicated
```

For Prometheus:

```yaml
scrape_configs:
  - job_name: sparklog
    static_configs:
      - targets: ["127.0.0.1:9308"]
```

The page names topics and groups. So the port is on the loopback address unless `sparklog.metrics.host` says
otherwise: there every user of the machine may read it. A broker with an authorizer does not open it to other machines
without `sparklog.metrics.token.file`: Prometheus sends that token with `authorization: {credentials_file: FILE}`.
`sparklog up --secure` has made one. `/health` and `/ready` name nothing and ask for no token. The port speaks plain
HTTP; where it must be TLS, put a proxy before it. It has 64 connections at a time, of one address 16; the last 16 are
for clients on the broker's own machine.

Alert rules, a configuration of Prometheus and a board for Grafana are in `conf/`; what to do about each alert is in
[alerts.md](alerts.md).

What a number costs and what holds of all of them is in [adr/0038](adr/0038-metrics.md). Requests that take long can
have lines in the broker's log: [logging.md](logging.md). Where none is slow that log costs a request 0.1 µs while it is
off, and 0.45 µs while it is on (`python -m benchmarks.counting`, from the interpreter, an upper bound): of the 56 µs of
a Produce of one record 0.2 % and 0.8 %.

A page of 10,000 partitions in 200 topics, with ten groups of 50 offsets each (3.5 MB), costs the loop 33 to 36 ms of
processor time at least, and 37 to 41 in the median, while it serves a producer and a consumer (27 November 2026, three
runs on two cores, at loads of 4 to 12; the day before, on quiet ones, 41 and 51). On the source, at a load of 13, it
cost 65 and 75. The aim is 50 ms. The page is made in steps among the turns of connections, so no client waits for all
of it. `pytest -s tests/integration/test_metrics_long.py` measures it again, by HTTP; a broker tells its own cost as
`sparklog_scrape_cpu_seconds_total`.

This page is made from the code: `python -m sparklog.metrics.page`.

## Processor time of requests

What a request costs the processor is told by two counters, divided; the board has it as a panel:

```text
sum by (instance) (rate(sparklog_loop_cpu_seconds_total[5m]))
  / sum by (instance) (rate(kafka_network_requestmetrics_requests_total[5m]))
```

It is a mean of all APIs, and what the loop does between requests is in it. `process_cpu_seconds_total` in place of the
first counter has the other threads too: flushes, conversions for old clients. To read the processor's clock for each
request would cost each one more than all that is counted of it. So `sparklog_request_loop_seconds_total` is elapsed
time; it says which API takes how much of the loop's:

```text
sum by (request) (rate(sparklog_request_loop_seconds_total[5m]))
  / scalar(sum(rate(sparklog_request_loop_seconds_total[5m])))
```

## Lag of groups

The broker that coordinates a group tells its lag, by partition, in three units. Nothing else has to run.

| name | unit | how exact it is |
| --- | --- | --- |
| `kafka_consumergroup_lag` | offsets | As ListOffsets would say. Gaps that compaction has left count. |
| `sparklog_group_lag_bytes` | bytes as stored | Never too few; at most `index.interval.bytes` and one batch too many. |
| `sparklog_group_lag_seconds` | s | A lower bound: since which scrape there has been a record at that offset. |

Bytes are those of batches as they are stored, compressed or not. The offset index and the sizes of segments tell them;
no record is read. A broker asks the leader of a partition that it does not hold, every ten seconds at most. So such a
lag is up to a scrape and ten seconds old; its bytes are then taken in proportion to the offsets that are left. A broker
of Kafka's tells no bytes. `sparklog group describe` shows offsets and bytes as the leaders tell them at that moment.

## Settings

| setting | default | meaning |
| --- | --- | --- |
"""
_KAFKAS = """
## Kafka's numbers

They have the names that the JMX exporter's example for Kafka (`kafka-2_0_0.yml`) makes, so that boards and alert rules
for Kafka show them.

"""
_WATCHED = """
## What Kafka's operators watch

Kafka's documentation has a list ("Monitoring", for brokers with ZooKeeper). For each bean of it stands here what a
broker tells instead, or why it does not. `PerSec` of a bean becomes `_total`: a counter.

| Kafka's bean (`kafka.`…) | here | what to know |
| --- | --- | --- |
"""
_BOARDS = """
## Boards and alert rules of others

Boards that were made for the names of the JMX exporter's example work as they are. Others have other names for the
same numbers: `conf/prometheus/names.yml` has recording rules that make them. Add it to `rule_files`; it costs the
brokers nothing. What boards choose targets by is yours: `job`, `env`, `namespace` are labels of `static_configs`.

Of the series that these ask a broker for, so many are told, made by those rules, and not there (as they were on
27 November 2026):

| board | where | told | by rules | not there |
| --- | --- | --- | --- | --- |
"""
_MISSING = """
What is not there:

| series | why, and what there is |
| --- | --- |
"""
_OURS = """
## Numbers of sparklog's own

"""
_TABLE = """\
| name | kind | labels | meaning |
| --- | --- | --- | --- |
"""
_PROCESS = """
Beside these stand those that prometheus-client has of every process: `process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_open_fds`, `python_gc_collections_total` and their like.
"""


def page() -> str:
    """The whole file."""
    kafkas = [each for each in FAMILIES if each.name.startswith("kafka_")]
    ours = [each for each in FAMILIES if each not in kafkas]
    return (
        _HEAD
        + _settings()
        + _KAFKAS
        + _TABLE
        + _rows(kafkas)
        + _WATCHED
        + _watched()
        + _BOARDS
        + _boards()
        + _MISSING
        + "".join(f"| `{name}` | {why} |\n" for name, why in NOT_TOLD.items())
        + _OURS
        + _TABLE
        + _rows(ours)
        + _PROCESS
    )


def _settings() -> str:
    found = [each for _, each in definitions(BrokerConfig).values() if each.name.startswith("sparklog.metrics.")]
    return "".join(f"| `{each.name}` | {each.format(each.default) or 'none'} | {each.doc} |\n" for each in found)


def _watched() -> str:
    return "".join(
        f"| `{each.bean}` | {', '.join(f'`{name}`' for name in each.names) or 'not here'} | {each.note} |\n"
        for each in WATCHED
    )


def _boards() -> str:
    recorded = {name for group in RECORDED.values() for name in group}
    lines = []
    for each in BOARDS:
        names = [asked.partition("{")[0] for asked in each.asked]
        made = sum(name in recorded for name in names)
        missing = sum(name in NOT_TOLD for name in names)
        lines.append(f"| {each.title} | {each.place} | {len(names) - made - missing} | {made} | {missing} |\n")
    return "".join(lines)


def _rows(families: Iterable[Family]) -> str:
    return "".join(
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.help} |\n"
        for each in families
    )


if __name__ == "__main__":
    sys.stdout.write(page())
