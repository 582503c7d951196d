"""The version of the distribution, read by the build and by ``simwarp info``."""

__version__ = "0.1.0"
