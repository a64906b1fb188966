"""Jobs on the files of a cluster: each has a ``run(spark, options)`` that returns a report."""
