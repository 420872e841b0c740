"""``python -m truetail`` is the command ``truetail``."""

import sys

from truetail.cli import main

sys.exit(main())
