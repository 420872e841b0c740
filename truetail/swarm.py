"""``python -m truetail.swarm``: a Locust process that loads Truetail before Locust reads its options.

The command line is Locust's own. The process ends with its parent when TRUETAIL_PARENT names it (a killed ``truetail run``
leaves no load behind).
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Patch by importing Locust first (it monkey-patches with gevent), then hand over to Locust's main."""
    from locust.main import main as locust_main

    import truetail.plugin  # noqa: F401  registers the options and listeners

    parent = os.environ.get("TRUETAIL_PARENT")
    if parent and os.getppid() != int(parent):
        sys.exit(1)
    locust_main()


if __name__ == "__main__":
    main()
