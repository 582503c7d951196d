"""Subjects that no GPU has answered yet: ``simwarp record`` makes their goldens."""

UNRECORDED = {"pack-lines", "bmm-wgmma", "products", "bnn", "bconv2d-wgmma", "bconv2d-wgmma-geometries"}
