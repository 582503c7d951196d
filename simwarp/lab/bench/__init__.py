"""Products and convolutions of ±1 beside other libraries': problems, peers, and rounds of measurements."""
