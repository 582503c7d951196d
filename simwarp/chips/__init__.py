"""The table of chips, and the lowering of matrix instructions on each of them."""
