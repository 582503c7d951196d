"""The parts of the PTX parser, from tokens to function bodies; `simwarp.ptx.parse` combines them."""
