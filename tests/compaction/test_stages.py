"""What is told of the stages of a job."""

from sparklog.compaction.stages import Stage, StageTimes

MB = 1 << 20


def test_each_stage_and_each_task_is_told_in_kafkas_words():
    stages = StageTimes()
    stages.add(Stage.REWRITE, 4.0, 400 * MB)
    stages.add(Stage.MAP, 1.5, 50 * MB)
    stages.add(Stage.MAP, 2.5, 50 * MB)
    stages.add(Stage.SWAP, 0.0, 10 * MB)
    assert stages.summary() == (
        "Indexed 100.0 MB in 4.0 seconds (25.0 Mb/sec, 50.0% of total time), tasks: 1.5 2.5",
        "Rewrote 400.0 MB in 4.0 seconds (100.0 Mb/sec, 50.0% of total time), tasks: 4.0",
        "Swapped in 10.0 MB in 0.0 seconds (- Mb/sec, 0.0% of total time), tasks: 0.0",
    )
    assert str(stages) == "map 4.0 s in 2, rewrite 4.0 s in 1, swap 0.0 s in 1"


def test_of_what_did_not_take_place_nothing_is_told():
    assert (StageTimes().summary(), str(StageTimes())) == ((), "")
