"""A whole cluster on this machine: its ZooKeeper, its brokers, and the JARs that both it and Spark need."""
