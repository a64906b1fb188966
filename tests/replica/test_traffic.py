"""What is counted by topic, and what stays when a topic goes."""

from sparklog.replica.traffic import Traffic


def test_partitions_of_a_topic_share_one():
    traffic = Traffic()
    one, other = traffic.enter("t"), traffic.enter("t")
    one.bytes_in += 10
    other.bytes_in += 5
    assert [(name, each.bytes_in) for name, each in traffic.topics()] == [("t", 15)]


def test_a_topic_ends_with_its_last_partition_and_its_numbers_stay_in_the_total():
    traffic = Traffic()
    for _ in range(2):
        traffic.enter("t").records_in += 3
    traffic.enter("u").records_in += 1
    traffic.leave("t")
    assert dict(traffic.topics())["t"].records_in == 6
    traffic.leave("t")
    assert [name for name, _ in traffic.topics()] == ["u"]
    assert traffic.total().records_in == 7
    assert traffic.enter("t").records_in == 0
    assert traffic.total().records_in == 7


def test_what_is_sent_of_a_topic_that_is_gone_is_in_the_total():
    traffic = Traffic()
    traffic.enter("t")
    traffic.send("t", 10, to_follower=False)
    traffic.send("t", 20, to_follower=True)
    traffic.send("gone", 5, to_follower=False)
    assert (traffic.total().bytes_out, traffic.total().replicated_out) == (15, 20)
