"""`python -m census`."""

import sys

from census.cli import main

sys.exit(main())
