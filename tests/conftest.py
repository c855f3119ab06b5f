"""Every test runs with the shape and type annotations of the package checked, on one thread."""

import os

# Before anything loads torch or a BLAS; the command line's processes inherit it. One thread: the same bytes anywhere.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook("forecaster", "beartype.beartype")

# The same examples in every run, and no failure because a machine was busy.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")
