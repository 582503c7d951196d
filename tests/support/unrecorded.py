"""Subjects that no GPU has answered yet: ``simwarp record`` makes their goldens."""

UNRECORDED: set[str] = set()
