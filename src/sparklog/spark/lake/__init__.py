"""Tables that hold what a log held: their columns, their files, and how far each partition has come in them."""
