"""How is a space kept: pruned, backed up, restored?"""

from __future__ import annotations

from pathlib import Path

import click

from p2pqueue.cli import edge, output, quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.output import plain
