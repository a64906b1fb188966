"""Makes the pictures of ``docs/web.md`` anew: ``PYTHONPATH=src:tests python -m web.pictures docs/images``."""

import json
import sys
import tempfile
from pathlib import Path

from web.chromium import Chromium
from web.serving import Served

from sparklog.client import Admin, NewTopic, Producer
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.cluster import ClusterHarness

CARRIERS = ("UA", "AA", "DL", "B6")


def main(images):
    with tempfile.TemporaryDirectory() as directory:
        profile = Path(directory) / "chromium"
        profile.mkdir()
        with ClusterHarness(Path(directory) / "cluster", brokers=3) as cluster:
            settings = {"bootstrap.servers": cluster.bootstrap_servers}
            clock = ManualClock(1_385_000_000_000)
            with Admin(settings) as admin, Producer(settings) as producer, Served(settings, clock) as served:
                fill(admin, producer)
                with Chromium(profile) as chromium:
                    take(chromium.page(), served, admin, clock, images)


def fill(admin, producer):
    topics = [NewTopic(name, 6, 3) for name in ("bookings", "clicks", "flights", "weather")]
    admin.create_topics([*topics, NewTopic("aircraft", 3, 3, {"cleanup.policy": "compact"})])
    for number in range(600):
        carrier = CARRIERS[number % len(CARRIERS)]
        flight = {"carrier": carrier, "flight": 100 + number, "origin": "JFK", "dep_delay": (number * 7) % 55 - 9}
        producer.send("flights", json.dumps(flight), key=carrier, timestamp=1_372_939_200_000 + 60_000 * number)
    producer.flush()


def take(page, served, admin, clock, images):
    page.size(1200, 760)
    page.scheme("light")
    page.go(f"http://{served.host}/#/cluster")
    page.wait_text("Protocol of Kafka")
    page.picture(images / "web-cluster.png")
    page.scheme("dark")
    page.go(f"http://{served.host}/#/records?topic=flights&from=oldest&text=UA&where=is-key")
    page.wait("document.querySelectorAll('tbody tr').length > 5")
    page.picture(images / "web-records.png")
    page.scheme("light")
    browser = served.browser()
    for step in range(60):
        admin.alter_group_offsets("dashboard", {TopicPartition("flights", 0): step // 2 + step % 7})
        browser.rows("/api/group?id=dashboard")
        clock.advance(5)
    page.size(420, 800, mobile=True)
    page.go(f"http://{served.host}/#/group?id=dashboard")
    page.wait("document.querySelector('svg.chart')")
    page.picture(images / "web-group.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
