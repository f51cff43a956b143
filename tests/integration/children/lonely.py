"""A process that does nothing but run one handler in a pool: it is there to be killed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.integration.children.stage import Stage


async def main() -> None:
    stage = Stage(Path(sys.argv[1]), size=2)
    await stage.pool.start()
    print("started", flush=True)
    await stage.run(sys.argv[2], **json.loads(sys.argv[3]))


if __name__ == "__main__":
    asyncio.run(main())
