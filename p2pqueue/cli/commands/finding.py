"""What does one look of `doctor` find?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Finding:
    """What one look found; `mend` says what to do."""

    check: str
    verdict: Verdict
    words: str
    mend: str = ""
