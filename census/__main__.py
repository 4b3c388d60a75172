"""`python -m census`."""

from census.cli import run

run()
