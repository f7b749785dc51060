"""Keep what accounting caches out of the user's home, and let all tests share it."""

import os
import tempfile

os.environ["FIXEDGRAPHDP_CACHE"] = tempfile.mkdtemp(prefix="fixedgraphdp-tests-")
