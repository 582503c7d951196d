"""Subjects that no GPU has answered yet: ``simwarp record`` makes their goldens."""

UNRECORDED: set[str] = {"bnn-whole-fsb", "bnn-whole-words"}
