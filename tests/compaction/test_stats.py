"""The summary of a cleaning: Kafka 3.9.1's lines, each held whole, since programs read them."""

from sparklog.compaction.stats import CleanerStats

MB = 1 << 20


def test_the_summary_has_the_words_and_the_numbers_of_kafkas():
    """By the formats in its ``recordStats``: a MB has 2^20 bytes, and the rate of a phase is of the phase alone."""
    stats = CleanerStats(
        first_offset=1234,
        end_offset=5_000_000,
        map_bytes_read=1024 * MB,
        map_messages_read=4_000_000,
        bytes_read=3 * 1024 * MB,
        messages_read=12_345_678,
        bytes_written=768 * MB,
        messages_written=1_234_567,
        invalid_messages=3,
        keys=1_234_500,
        buffer_utilization=0.4567,
        index_seconds=100.0,
        seconds=1200.0,
    )
    assert stats.summary("users-0", 2) == (
        "Log cleaner thread 2 cleaned log users-0 (dirty section = [1234, 5000000])",
        "3,072.0 MB of log processed in 1,200.0 seconds (2.6 MB/sec).",
        "Indexed 1,024.0 MB in 100.0 seconds (10.2 Mb/sec, 8.3% of total time)",
        "Buffer utilization: 45.7%",
        "Cleaned 3,072.0 MB in 1100.0 seconds (2.8 Mb/sec, 91.7% of total time)",
        "Start size: 3,072.0 MB (12,345,678 messages)",
        "End size: 768.0 MB (1,234,567 messages)",
        "75.0% size reduction (90.0% fewer messages)",
    )


def test_where_no_time_passed_there_is_no_rate_and_of_nothing_no_share():
    assert CleanerStats(end_offset=7, bytes_read=MB, map_bytes_read=MB, messages_read=2).summary("t-0", 0) == (
        "Log cleaner thread 0 cleaned log t-0 (dirty section = [0, 7])",
        "1.0 MB of log processed in 0.0 seconds (- MB/sec).",
        "Indexed 1.0 MB in 0.0 seconds (- Mb/sec, 0.0% of total time)",
        "Buffer utilization: 0.0%",
        "Cleaned 1.0 MB in 0.0 seconds (- Mb/sec, 0.0% of total time)",
        "Start size: 1.0 MB (2 messages)",
        "End size: 0.0 MB (0 messages)",
        "100.0% size reduction (100.0% fewer messages)",
    )
    assert CleanerStats().summary("t-0", 0)[-1] == "100.0% size reduction (100.0% fewer messages)"
