"""Where the public test collections are: the folder that ``POINTSMAN_TEST_DATA`` names, else ``../shared/data``."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(os.environ.get("POINTSMAN_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
