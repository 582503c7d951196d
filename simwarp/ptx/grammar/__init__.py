"""The parts of the parser, from tokens to function bodies; `simwarp.ptx.parse` puts them together."""
