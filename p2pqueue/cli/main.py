"""How does the program start?

As little as possible is imported here, the rest inside `call`: a Ctrl-C then meets somebody who takes it quietly.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # importing typing would cost more than all the rest here
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

_INTERRUPTED = 130  # that of `edge`, which may not be there yet


def main() -> NoReturn:
    """The entry point of the program."""
    try:
        _open_what_is_closed()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        code = call()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    gc.freeze()  # the interpreter would look through everything once more at its end, a tenth of a short command's time
    sys.exit(code)


def call(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line to its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        from p2pqueue.cli import quick

        if quick.answer(words):
            return 0
        from p2pqueue.cli import app

        return app.run(words)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _open_what_is_closed() -> None:
    """Leads the standard streams that the caller closed (`>&-`) nowhere, before the database gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the lowest free number comes first, which is the stream's own
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
