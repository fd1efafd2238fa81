"""The settings of a module besides tensors, and whether they have changed."""

from __future__ import annotations

import dis
import inspect
import itertools
import operator
from collections.abc import Iterator
from types import CodeType
from typing import Any, TypeVar

import torch
from torch import nn

from tessera import _tessera

_T = TypeVar("_T")

#: All settings have their turn within this number of calls; each call compares at least that many values and dicts.
_CALLS, _LEAST_VALUES, _LEAST_DICTIONARIES = 32, 32, 16

_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype)

#: Attributes of all modules. The mode is not a setting: modules are compiled in evaluation mode.
_OF_ALL = frozenset(vars(nn.Module()))


class Settings:
    """A record of the plain attribute values of a module and its parts, their hooks, and replacements of `forward`.

    Attributes that calls of a module or its hooks assign themselves, such as a number of calls, are ignored.
    """

    def __init__(self, module: nn.Module) -> None:
        values: list[tuple[dict[str, Any], str, Any]] = []
        hooks: list[dict[int, Any]] = []
        unpatched: list[dict[str, Any]] = []
        assigned: dict[type[nn.Module], set[str]] = {}
        for each in module.modules():
            kind = type(each)
            if kind not in assigned:
                assigned[kind] = _assigned_by_calls(kind) | _OF_ALL
            own_hooks: list[dict[int, Any]] = [each._forward_pre_hooks, each._forward_hooks]
            aside = assigned[kind].union(*(_assigned_in(_code_of(hook)) for some in own_hooks for hook in some.values()))
            attributes = vars(each)
            values += [
                (attributes, name, value)
                for name, value in attributes.items()
                if name not in aside and (_is_plain(value) or name == "forward")
            ]
            if "forward" not in attributes:
                unpatched.append(attributes)
            hooks += own_hooks
        #: For each turn: dictionaries, names in them, and the values under these names.
        self._values = [
            ([of for of, _, _ in some], [name for _, name, _ in some], [value for _, _, value in some])
            for some in _parted(values, _LEAST_VALUES)
        ]
        #: For each turn: dictionaries of hooks, and all their hooks, one after another.
        self._hooks = [
            # In the order of registration, unlike `each.values()`, which begins with a hook that was prepended.
            (some, [hook for each in some for hook in dict.values(each)])
            for some in _parted(hooks, _LEAST_DICTIONARIES)
        ]
        #: For each turn: the attributes of modules that have the `forward` of their class.
        self._unpatched = list(_parted(unpatched, _LEAST_DICTIONARIES))
        self._turn = 0

    def look_unchanged(self) -> bool:
        """Compare the settings whose turn it is."""
        turn = self._turn = self._turn + 1
        return (
            _tessera.have_values(*self._hooks[turn % len(self._hooks)])
            and (not self._values or _tessera.have_items(*self._values[turn % len(self._values)]))
            and not (self._unpatched and _any_has_forward(self._unpatched[turn % len(self._unpatched)]))
        )

    def are_unchanged(self) -> bool:
        return (
            all(_tessera.have_values(*some) for some in self._hooks)
            and all(_tessera.have_items(*some) for some in self._values)
            and not any(map(_any_has_forward, self._unpatched))
        )


def _any_has_forward(attributes: list[dict[str, Any]]) -> bool:
    return any(map(operator.contains, attributes, itertools.repeat("forward")))


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(type(each) in _PLAIN for each in value))


def _parted(given: list[_T], least: int) -> Iterator[list[_T]]:
    """Divide values into parts of at least `least`, one for each turn."""
    size = max(least, -(-len(given) // _CALLS))
    for start in range(0, len(given), size):
        yield given[start : start + size]


def _code_of(function: Any) -> CodeType | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _assigned_in(code: CodeType | None) -> set[str]:
    if code is None:
        return set()
    return {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_ATTR"}


def _assigned_by_calls(kind: type[nn.Module]) -> set[str]:
    """Names of attributes that are assigned by `forward`, or by other methods that it mentions."""
    assigned: set[str] = set()
    left, seen = ["forward"], {"forward"}
    while left:
        code = _code_of(getattr(kind, left.pop(), None))
        if code is None:
            continue
        assigned |= _assigned_in(code)
        mentioned = {name for name in code.co_names if not hasattr(nn.Module, name)} - seen
        seen |= mentioned
        left += mentioned
    return assigned
