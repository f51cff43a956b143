"""Which parameters does a task have, and do these arguments fit them?

Arguments become a map of parameter to value when a job is enqueued, so that a mistake shows where it is made. A
default that wasn't overridden is left to the worker's task.
"""

from __future__ import annotations

import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from p2pqueue.errors import ArgumentError, ConfigError

_FILE_NAMES = ("File", "p2pqueue.File")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a task. `annotation` is its text, empty where there is none."""

    name: str
    annotation: str
    is_file: bool
    required: bool
    default: Any = None

    def describe(self) -> dict[str, Any]:
        """A plain map: name, annotation, is_file, required, and the default where it is plain data."""
        plain = self.default is None or isinstance(self.default, (bool, int, float, str))
        shown = {} if self.required else {"default": self.default if plain else repr(self.default)}
        return {"name": self.name, "annotation": self.annotation, "is_file": self.is_file, "required": self.required} | shown


class Signature:
    """The parameters of a handler."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the task {name!r} is no function with a signature: {error}") from error
        kinds = {parameter.name: parameter.kind for parameter in self._signature.parameters.values()}
        for parameter, kind in kinds.items():
            if kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
                star = "*" if kind is inspect.Parameter.VAR_POSITIONAL else ""
                raise ConfigError(f"the parameter {star}{parameter} of the task {name!r} has no name on the wire; take a list, or name it")
        self.takes_any = inspect.Parameter.VAR_KEYWORD in kinds.values()
        named = [p for p in self._signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        self._names = frozenset(p.name for p in named)
        self._positional = tuple(p.name for p in named if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._required = frozenset(p.name for p in named if p.default is inspect.Parameter.empty)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The map of parameter to value. Raises `ArgumentError`, naming the parameter and what the task takes."""
        if len(args) > len(self._positional):
            raise self._refuse(f"takes at most {len(self._positional)} arguments by position, and {len(args)} were given")
        bound = dict(zip(self._positional, args, strict=False)) if args else {}
        for name, value in kwargs.items():
            if name in bound:
                raise self._refuse(f"got the argument {name!r} twice")
            if name not in self._names and not self.takes_any:
                raise self._refuse(f"has no parameter {name!r}{self._nearest(name)}")
            bound[name] = value
        if self._required and not self._required <= bound.keys():
            missing = [name for name in self._positional if name in self._required - bound.keys()]
            missing += sorted(self._required - bound.keys() - set(missing))
            raise self._refuse(f"misses {', '.join(map(repr, missing))}")
        for name in self.file_parameters:
            value = bound.get(name)
            if isinstance(value, (str, os.PathLike)):
                raise self._refuse(f"takes a File as {name!r}; pass File({os.fspath(value)!r})")
        return bound

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters by name, in their order; a catch-all `**rest` is none."""
        hints = self._hints
        return tuple(
            Parameter(
                name=p.name,
                annotation=_text(p.annotation),
                is_file=_is_file(hints.get(p.name), p.annotation),
                required=p.default is inspect.Parameter.empty,
                default=None if p.default is inspect.Parameter.empty else p.default,
            )
            for p in self._signature.parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        )

    @cached_property
    def file_parameters(self) -> frozenset[str]:
        """The names of the parameters that take a `File`."""
        return frozenset(parameter.name for parameter in self.parameters if parameter.is_file)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self._function)
        except (NameError, TypeError, AttributeError, SyntaxError):
            return {}  # an annotation that only a type checker can resolve: its text decides

    def _refuse(self, reason: str) -> ArgumentError:
        return ArgumentError(f"{self._name}() {reason}; it takes {self._shown() or 'no arguments'}")

    def _shown(self) -> str:
        return str(self._signature.replace(return_annotation=inspect.Signature.empty))[1:-1]

    def _nearest(self, name: str) -> str:
        import difflib

        near = difflib.get_close_matches(name, self._names, 1)
        return f" (did you mean {near[0]!r}?)" if near else ""


def _text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation
    return annotation.__qualname__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else str(annotation)


def _is_file(hint: Any, annotation: Any) -> bool:
    if hint is None:
        parts = _text(annotation).removeprefix("Optional[").removesuffix("]").split("|")
        return any(part.strip() in _FILE_NAMES for part in parts)
    candidates = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return any(isinstance(each, type) and (each.__module__, each.__qualname__) == ("p2pqueue.payload.file", "File") for each in candidates)
