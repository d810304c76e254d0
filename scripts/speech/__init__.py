"""The parts of speech_example.py: sentences, and their n-best lists out of spoken sound."""
