"""Independent reference implementations: scalar twins of rows and lanes, vector clocks, exact sums."""
