"""Sets the wall clock of a Python process ahead by the seconds that a file says, while it runs: `P2PQ_TEST_CLOCK` names it.

libfaketime does the same for `time.time()`, and makes `time.sleep()` fail where the monotonic clock is to stay real.
"""

import os
import time

_file = os.environ.get("P2PQ_TEST_CLOCK", "")

if _file:
    _real, _real_ns = time.time, time.time_ns

    def _ahead() -> float:
        with open(_file) as file:
            return float(file.read() or 0)

    time.time = lambda: _real() + _ahead()
    time.time_ns = lambda: _real_ns() + int(_ahead() * 1e9)
