"""`python -m headway`."""

from __future__ import annotations

import sys

from headway.cli.main import main

sys.exit(main())
