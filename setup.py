"""For tools that ask for a setup.py; all that it would say is in pyproject.toml."""

from setuptools import setup

setup()
