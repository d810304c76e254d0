"""What scripts/bench.py measures: ``measure`` returns numbers, or None after a part of the work."""
