"""Tasks of Spark that die, over a session that does what a test says."""

from pyspark.errors import PySparkException

from sparklog.compaction.task import Failure
from sparklog.spark.batch.tasks import SparkTasks, TaskFailed


class Dying(SparkTasks):
    """Where a task is deadly, all in the same job of Spark die with it."""

    def __init__(self, deadly):
        super().__init__(None, None)
        self.deadly = deadly
        self.jobs = []

    def _run_all(self, tasks):
        self.jobs.append(list(tasks))
        if self.deadly & set(tasks):
            raise PySparkException("Python worker exited unexpectedly\n\tat java.lang.Thread")
        return [f"done {each}" for each in tasks]


def test_a_task_that_dies_fails_itself_alone():
    runner = Dying({2})
    outcomes = runner.run([0, 1, 2, 3, 4])
    died = outcomes.pop(2)
    assert outcomes == [f"done {each}" for each in (0, 1, 3, 4)]
    assert died == TaskFailed(Failure.GONE, "its task died: PySparkException: Python worker exited unexpectedly")


def test_where_nothing_dies_all_is_one_job():
    runner = Dying(set())
    assert runner.run([]) == []
    assert runner.run([5, 6]) == ["done 5", "done 6"]
    assert runner.jobs == [[5, 6]]
