"""What a trace is like: lengths, arrivals, shared prefixes, and how large a cache its reuse needs."""
