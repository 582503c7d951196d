"""Subjects that no GPU has answered yet: ``simwarp record`` makes their goldens."""

UNRECORDED = {"bconv2d-windows", "bmm-bits", "bmm-bits-wgmma"}
