"""With which code is a connection closed, and what does it mean for the device that reads it?

The codes go in the clear in WebSocket's closing frame: whoever could forge one could as well cut the connection. The
words are this side's own; nothing that a stranger wrote is shown. Pure.
"""

from __future__ import annotations

from typing import Final

BYE = 4000
OTHER_PROTOCOL = 4001
MALFORMED = 4002
STRANGER = 4003
REFUSED = 4004
DUPLICATE = 4005
MYSELF = 4006
TOO_MANY = 4007
TOO_SLOW = 4008
NO_INVITATION = 4009
CLONE = 4010
LOST = 4011
FAULT = 4012
FLOODED = 4013

GOES_OFFLINE: Final = "it goes offline"  # why a device says goodbye that goes on working by itself

WORDS: Final = {
    BYE: "it left",
    OTHER_PROTOCOL: "it speaks another version of the protocol",
    MALFORMED: "it could not read what this device sent",
    STRANGER: "it belongs to another space",
    REFUSED: "it doesn't admit this device",
    DUPLICATE: "the two devices are linked already",
    MYSELF: "that address is this device's own",
    TOO_MANY: "too many connections come from this address; it will be tried again",
    TOO_SLOW: "this device was too slow for it",
    NO_INVITATION: "no invitation is open there",
    CLONE: "another running device has the same key",
    LOST: "it heard nothing of this device for a while",
    FAULT: "something went wrong there; its log says what",
    FLOODED: "this device sent it more than it could take",
}


def words(code: int | None) -> str:
    """What a connection's closing means, in words."""
    return WORDS.get(code or 0, "the connection was closed")
