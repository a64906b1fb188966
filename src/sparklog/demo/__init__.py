"""The guided tour: a year of flights from New York through a log, Spark and a Delta table."""
