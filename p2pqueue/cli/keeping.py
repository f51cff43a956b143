"""How is a space kept: pruned, backed up, restored?"""

from __future__ import annotations
