"""Subjects that no GPU has answered yet: ``simwarp record`` makes their goldens."""

UNRECORDED: set[str] = {"bconv2d-windows"}
