"""How are the limits of transfers read and changed while a node runs?

What is changed here holds until the node ends; the setting `rate` holds from its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p2pqueue.errors import ArgumentError
from p2pqueue.payload.limit import Limits


def limits_of(rate: int) -> Limits:
    """The limits of a node that begins, by its setting: 0 for none."""
    limits = Limits()
    set_rate(limits, rate)
    return limits


def set_rate(limits: Limits, rate: int) -> None:
    """Lets so many bytes a second go in each direction; 0 lets all go."""
    for limit in (limits.download, limits.upload):
        limit.set(rate or None)


def change(limits: Limits, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Changes what is asked for, and tells how the limits are then. Raises `ArgumentError`."""
    rate, metered = fields.get("rate"), fields.get("metered")
    pause, resume = _devices(fields, "pause"), _devices(fields, "resume")
    if rate is not None and (not isinstance(rate, int) or isinstance(rate, bool) or rate < 0):
        raise ArgumentError("rate is a number of bytes a second, 0 for no limit")
    if metered is not None and not isinstance(metered, bool):
        raise ArgumentError("metered is true or false")
    if rate is not None:
        set_rate(limits, rate)
    if metered is not None:
        limits.metered = metered
    limits.resume(resume, everything=fields.get("resume_all") is True)
    limits.pause(pause, everything=fields.get("pause_all") is True)
    return tell(limits)


def tell(limits: Limits) -> dict[str, Any]:
    """How they are, as plain values."""
    told: dict[str, Any] = {"rate": int(limits.download.rate or 0), "all_paused": limits.all_paused}
    return {**told, "paused": sorted(limits.paused), "metered": limits.metered}


def _devices(fields: Mapping[str, Any], name: str) -> list[str]:
    devices = fields.get(name, [])
    if not isinstance(devices, list) or not all(isinstance(each, str) for each in devices):
        raise ArgumentError(f"{name} is a list of device ids")
    return devices
