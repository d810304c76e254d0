"""What scripts/bench.py measures: ``measure`` returns numbers, or an exit status."""
