"""Every process of a test that has this folder on its path has nothing that only Linux has."""

import os
import sys
from pathlib import Path

# These look for the system that they are on, and need the real one.
import numba  # noqa: F401
import numpy as np  # noqa: F401
import psutil  # noqa: F401
import torch  # noqa: F401

for name in ("memfd_create", "eventfd", "pidfd_open", "sched_getaffinity", "sched_setaffinity"):
    delattr(os, name)
sys.platform = "darwin"

from remuda.system.processes import activity  # noqa: E402

activity.PROC = Path("/there is none")
