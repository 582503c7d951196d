"""Subjects that no GPU has answered yet: ``simwarp record`` makes their goldens."""

UNRECORDED: set[str] = {"bmm-bits", "bmm-bits-wgmma", "bnn-whole-fsb", "bnn-whole-words", "bnn-words"}
