"""Imports onnxruntime without its telemetry."""

from __future__ import annotations

import os
from typing import Any


def load_onnxruntime() -> Any:
    """Return the module onnxruntime, which is not to report to its maker unless the user has set that it may.

    Its import already starts the reporting, so the variable has to be set before; switching it off afterwards is late.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime
