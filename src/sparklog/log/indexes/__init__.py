"""The indexes of a segment: each finds a place in its ``.log`` file, or tells what lies there; all can be made anew."""
