"""How are the limits of transfers changed and told, and what of them holds for the next node too?

All that was changed does, over the setting `rate`, until it is reset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p2pqueue.errors import ArgumentError
from p2pqueue.payload.limit import Limits


def limits_of(rate: int, kept: Mapping[str, Any]) -> Limits:
    """The limits of a node that begins: what was kept, else its setting; a rate of 0 is none."""
    limits = Limits(metered=kept.get("metered", False))
    set_rate(limits, kept.get("rate", rate))
    limits.pause(kept.get("paused", ()), everything=kept.get("all_paused", False))
    return limits


def set_rate(limits: Limits, rate: int) -> None:
    """Lets so many bytes a second go in each direction; 0 lets all go."""
    for limit in (limits.download, limits.upload):
        limit.set(rate or None)


def change(limits: Limits, fields: Mapping[str, Any], *, setting: int) -> None:
    """Changes what is asked for; a reset takes the rate of the setting. Raises `ArgumentError`."""
    rate, metered = fields.get("rate"), fields.get("metered")
    pause, resume = _devices(fields, "pause"), _devices(fields, "resume")
    if rate is not None and (not isinstance(rate, int) or isinstance(rate, bool) or rate < 0):
        raise ArgumentError("rate is a number of bytes a second, 0 for no limit")
    if metered is not None and not isinstance(metered, bool):
        raise ArgumentError("metered is true or false")
    if reset := fields.get("reset") is True:
        limits.metered = False
        rate = setting if rate is None else rate
    if rate is not None:
        set_rate(limits, rate)
    if metered is not None:
        limits.metered = metered
    limits.resume(resume, everything=reset or fields.get("resume_all") is True)
    limits.pause(pause, everything=fields.get("pause_all") is True)


def changes(fields: Mapping[str, Any]) -> bool:
    """Says whether anything is asked for but to be told."""
    return any(value not in (None, False, []) or (name == "metered" and value is False) for name, value in fields.items())


def tell(limits: Limits, *, setting: int) -> dict[str, Any]:
    """How they are, as plain values."""
    told: dict[str, Any] = {"rate": int(limits.download.rate or 0), "rate_setting": setting, "all_paused": limits.all_paused}
    return {**told, "paused": sorted(limits.paused), "metered": limits.metered}


def to_keep(limits: Limits, fields: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """What the nodes to come are told, after it was changed as asked for; `before` is what they were told until now."""
    rate = fields.get("rate")
    if rate is None and fields.get("reset") is not True:
        rate = before.get("rate")
    now = {"all_paused": limits.all_paused, "paused": sorted(limits.paused), "metered": limits.metered}
    return now if rate is None else now | {"rate": rate}


def _devices(fields: Mapping[str, Any], name: str) -> list[str]:
    devices = fields.get(name, [])
    if not isinstance(devices, list) or not all(isinstance(each, str) for each in devices):
        raise ArgumentError(f"{name} is a list of device ids")
    return devices
