"""Records as text: what ``produce`` reads and ``consume`` prints, as columns on the one side and lines on the other."""
