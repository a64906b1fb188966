"""What is written; how fast is not tested."""

from sparklog.cli.perf.producing import random_values


def test_values_have_the_size_and_are_the_same_again():
    values = random_values(5, 7)
    assert [len(each) for each in values.to_pylist()] == [7] * 5
    assert len(set(values.to_pylist())) == 5
    assert values.to_pylist() == random_values(5, 7).to_pylist()
    assert values.to_pylist() != random_values(5, 7, seed=1).to_pylist()
