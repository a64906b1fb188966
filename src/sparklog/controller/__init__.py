"""The controller: the one broker that decides who leads each partition, and tells the others."""
