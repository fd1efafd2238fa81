"""Arguments of the wrong kind, for every public function: one sentence names the right kind."""

import inspect

import pytest

import tessera
import tessera.graph
import tessera.pack


class Odd:
    """An object that nothing takes."""


CALLS = [(), (Odd(),), (Odd(), Odd()), (Odd(), Odd(), Odd()), (1,), ("x",), (None,), (b"", 1)]


def public(module, prefix, seen):
    """All public classes and functions of a module and those below it, by name."""
    for name in dir(module):
        value = getattr(module, name)
        if name.startswith("_") or id(value) in seen:
            continue
        seen.add(id(value))
        if inspect.ismodule(value) and value.__name__.startswith("tessera"):
            yield from public(value, f"{prefix}{name}.", seen)
        elif callable(value) and str(getattr(value, "__module__", "")).startswith("tessera"):
            yield f"{prefix}{name}", value


def modules():
    yield tessera
    for name in ("nn", "snn"):
        try:
            yield __import__(f"tessera.{name}", fromlist=[name])
        except ImportError:
            continue


PUBLIC = dict(item for module in modules() for item in public(module, f"{module.__name__}.", set()))


@pytest.fixture(autouse=True)
def _threads():
    """Some of what is called sets them."""
    yield
    tessera.set_num_threads(0)


@pytest.mark.parametrize("name", PUBLIC)
def test_messages_are_ours(name, capsys):
    for arguments in CALLS:
        try:
            PUBLIC[name](*arguments)
        except Exception as error:
            text = str(error)
            assert "incompatible function" not in text and "nanobind" not in text, text
            assert "\n    1. " not in text, text


def test_messages_name_what_is_taken_and_given():
    with pytest.raises(TypeError, match=r"^Butterfly\(\) takes \(inputs: int, .*\); given are \(str\)$"):
        tessera.Butterfly("x")
    with pytest.raises(TypeError, match=r"^Butterfly\(\) takes .*; given are \(\)$"):
        tessera.Butterfly()


def test_methods_and_attributes_too():
    product = tessera.Spmm(tessera.Weight(tessera.generate(16, 16, 0.5, block_size=4)), 3)
    for name in dir(product):
        member = getattr(type(product), name)
        if name.startswith("__") and name != "__call__" or not callable(member):
            continue
        with pytest.raises(TypeError) as caught:
            member(product, *([Odd()] * 9))
        assert "incompatible function" not in str(caught.value)
