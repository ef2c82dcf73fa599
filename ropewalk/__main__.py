"""``python -m ropewalk``."""

import sys

from ropewalk.cli import main

sys.exit(main())
