"""How are small immutable values made, where the import of twenty dataclasses would take longer than a child's start?

`dataclass` compiles half a dozen methods for each class, about a millisecond in all. A `Value` is declared, typed,
compared and shown in the same way, and shares its methods with all others.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self, dataclass_transform


@dataclass_transform(frozen_default=True)
class Value:
    """The base of a value: its annotations are its fields, in their order."""

    _fields: ClassVar[frozenset[str]]
    _required: ClassVar[frozenset[str]]
    _defaults: ClassVar[dict[str, Any]]
    __match_args__: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        names = tuple(cls.__annotations__)
        cls.__match_args__ = names  # type: ignore[misc]
        cls._defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
        cls._fields = frozenset(names)
        cls._required = cls._fields - cls._defaults.keys()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = self.__match_args__
        if not kwargs and len(args) == len(names):
            self.__dict__.update(zip(names, args, strict=True))
            return
        given = dict(zip(names, args, strict=False)) if args else {}
        if len(args) > len(names) or not given.keys().isdisjoint(kwargs) or not self._fields >= kwargs.keys():
            raise TypeError(f"{type(self).__name__} takes {', '.join(names)}; not {args!r}, {kwargs!r}")
        found = {**self._defaults, **given, **kwargs}
        if not self._required <= found.keys():
            raise TypeError(f"{type(self).__name__} misses {', '.join(sorted(self._required - found.keys()))}")
        self.__dict__.update({name: found[name] for name in names})

    def changed(self, **changes: Any) -> Self:
        """The same value with other fields."""
        return type(self)(**{**vars(self), **changes})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} can't be changed; `changed` makes another one")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"
