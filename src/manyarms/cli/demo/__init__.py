"""`manyarms demo`: a made-up shop, from its log to a decision."""
