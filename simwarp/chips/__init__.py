"""The table of chips, and their lowering of matrix instructions."""
