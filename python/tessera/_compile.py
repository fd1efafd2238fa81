"""Compiling a PyTorch module for the host."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree

from tessera._choice import Choice
from tessera._compiled import Argument, CompiledModel, Interface, Size, leaves_of
from tessera._arguments import checked_threads, chosen
from tessera._held import Held, parts_of
from tessera._layers import SparsityReport
from tessera._settings import Settings
from tessera._tessera import whole_number
from tessera.graph._from_torch import (
    Imported,
    UnsupportedModuleError,
    arguments_of,
    import_module,
    refused_result,
    require_example,
    require_readable,
)
from tessera.graph._graph import Graph

#: Names of the dimensions of inputs that may have several sizes: {"input_ids": {0: "batch", 1: "tokens"}}.
DynamicShapes = Mapping[str, Mapping[int, Any]]

_LARGEST = 2**31 - 1


def compile(
    module: nn.Module,
    example_inputs: Tensor | Sequence[Any] | Mapping[str, Any],
    *,
    dynamic_shapes: DynamicShapes | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
    measure: bool = False,
    max_shapes: int = 8,
    threads: int = 0,
    check: Literal["some", "all"] = "some",
) -> CompiledModel:
    """Make a module that is called with inputs of these shapes fast on the host, for inference.

    The zeros of its weights are kept, whether they are stored as numbers, by `torch.nn.utils.prune`, as CSR or BSR
    tensors or in a `SparseLinear`. A layer becomes sparse, in the blocks that suit its zeros, where this is predicted
    to be at least a tenth faster, or with `measure` has been measured to be; `print` the result to see which layers are
    sparse, and why the others are not. A mapping gives inputs by name.

    `dynamic_shapes` names dimensions that may have other sizes than in the example: {"ids": {0: "batch"}}. Each size is
    prepared when it first occurs, at most `max_shapes` sizes at a time, and all sizes share the weights. With
    `buckets`, inputs are padded with zeros to the next size listed, and results are cut back. Whether padding changes a
    result is checked by running the module: here for each bucket, and for other combinations of buckets in the first
    call that has them.

    Weights that change in place (an optimizer's step, `load_state_dict`) or are replaced are read again before the next
    call. Writes through `.data` or NumPy, which PyTorch does not record, are seen at once if they change most of a
    tensor. Smaller writes, and changes of hooks and of plain attributes such as `eps`, are seen after a bounded number
    of calls, each of which compares a part of the module: call `refresh()`, or use `check="all"` to compare everything
    at each call.

    Raises ValueError for a module in training mode, and for weights that are not finite floating-point numbers of at
    most 32 bits on the CPU; `graph.UnsupportedModuleError`, with a list of the missing operations, for operations that
    are not supported.
    """
    _require_ready(module)
    args, kwargs = _arguments(module, example_inputs)
    max_shapes = whole_number("max_shapes", max_shapes, 1)
    chosen("check", check, ("some", "all"))
    compiler = _Compiler(module, args, kwargs, _sizes(dynamic_shapes), Choice(measure), max_shapes)
    compiler.checks_all = check == "all"
    return compiler.compile(_buckets(buckets), checked_threads(threads))


def _arguments(
    module: nn.Module, given: Tensor | Sequence[Any] | Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copies of the arguments, so that a tensor given twice is two inputs; by name in the order of forward()."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(given, Mapping):
        order = [name for name in inspect.signature(module.forward).parameters if name in given]
        kwargs = {name: given[name] for name in [*order, *(name for name in given if name not in order)]}
    else:
        args = arguments_of(given)

    def copied(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return torch.from_numpy(leaf.copy())
        if not isinstance(leaf, Tensor):
            return leaf
        if leaf.device.type != "cpu":
            raise ValueError(f"an example input is on {leaf.device}: give one on the CPU")
        return leaf.detach().clone().resolve_neg().resolve_conj()

    copies = _pytree.tree_map(copied, (args, kwargs))
    return copies[0], copies[1]


def _sizes(dynamic_shapes: DynamicShapes | None) -> dict[str, dict[int, str]]:
    """Names of dimensions, by the path of an input; a torch.export.Dim has its name in __name__."""
    if not isinstance(dynamic_shapes, (Mapping, type(None))):
        raise TypeError("dynamic_shapes must be a mapping from inputs to {dimension: name}")
    sizes: dict[str, dict[int, str]] = {}
    for path, dims in (dynamic_shapes or {}).items():
        if not isinstance(dims, Mapping):
            raise TypeError(f"dynamic_shapes[{path!r}] must be a mapping from dimensions to names")
        for dim, size in dims.items():
            name = getattr(size, "__name__", size)
            if name is None:
                continue  # static
            if not isinstance(name, str):
                raise TypeError(f"dynamic_shapes[{path!r}][{dim}] is {size!r}: name the dimension by a string")
            sizes.setdefault(path, {})[dim] = name
    return sizes


def _buckets(buckets: Mapping[str, Sequence[int]] | None) -> dict[str, list[int]]:
    checked = {}
    for name, sizes in (buckets or {}).items():
        if not sizes:
            raise ValueError(f"there are no buckets of {name!r}: list sizes")
        checked[name] = sorted({whole_number(f"a bucket of {name!r}", size, 1, _LARGEST) for size in sizes})
    return checked


def _require_ready(module: nn.Module) -> None:
    require_readable(module)
    has_mode = "eval" not in vars(module)  # modules of exported programs replace eval()
    for path, each in module.named_modules():
        where = f"its part {path!r}" if path else "the module"
        if each.training and has_mode:
            raise ValueError(
                f"{where} is in training mode, in which dropout draws and norms change: call eval() on the module"
            )
    _require_values(module)


def _require_values(module: nn.Module) -> None:
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.dtype.is_complex:
            raise ValueError(f"{name} is {tensor.dtype}, which is not possible: use real and imaginary parts")
        if tensor.dtype == torch.float64:
            raise ValueError(f"{name} is {tensor.dtype}: convert the module, by module.float()")
        if tensor.is_inference():
            raise ValueError(f"{name} was made in inference mode, where changes are not recorded: make it outside")
    _require_finite(module)


class _Compiler:
    def __init__(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        sizes: dict[str, dict[int, str]],
        choice: Choice,
        max_shapes: int,
    ) -> None:
        self.module = module
        self.choice = choice
        self.max_shapes = max_shapes
        self.names = _names_of(module, args, kwargs)
        self.leaves, self.spec = _pytree.tree_flatten((args, kwargs))
        given = dict(zip(self.names, (*args, *kwargs.values()), strict=True))
        self.paths = [path for name in self.names for path, _ in leaves_of(given[name], name)]
        for path, leaf in zip(self.paths, self.leaves, strict=False):
            require_example(path, leaf)
        self.sizes = self._by_leaf(sizes)
        self.interface: Interface | None = None
        #: Combinations of buckets in which padding changes no result.
        self.verified: set[tuple[int, ...]] = set()
        self.folded: set[str] = set()
        self.constants: list[Tensor] = []
        self.held = Held(module, ())
        self.settings = Settings(module)
        #: Whether each call compares all contents and settings.
        self.checks_all = False

    def _by_leaf(self, sizes: dict[str, dict[int, str]]) -> dict[tuple[int, int], str]:
        by_leaf = {}
        present: dict[str, int] = {}
        for path, dims in sizes.items():
            if path not in self.paths:
                raise ValueError(f"dynamic_shapes names {path!r}; the inputs are {', '.join(self.paths)}")
            i = self.paths.index(path)
            for dim, name in dims.items():
                if not isinstance(self.leaves[i], Tensor) or not 0 <= dim < self.leaves[i].dim():
                    raise ValueError(f"dynamic_shapes names dimension {dim} of {path}, which does not exist")
                by_leaf[i, dim] = name
                size = self.leaves[i].shape[dim]
                if present.setdefault(name, size) != size:
                    raise ValueError(f"{name!r} is {present[name]} in the example and, in {path}, {size}")
        return by_leaf

    def compile(self, buckets: dict[str, list[int]], threads: int) -> CompiledModel:
        present = self._present()
        for name in buckets:
            if name not in present:
                raise ValueError(f"buckets of {name!r}; dynamic_shapes names {', '.join(present) or 'nothing'}")
        imported = self._import(present)
        self.interface = interface = self._interface(imported)
        interface.buckets = buckets
        if buckets:
            interface.output_sizes = self._output_sizes()
        report = SparsityReport(self.choice.measure, self.choice.layers)
        model = CompiledModel(
            interface,
            report,
            threads=threads,
            most_shapes=self.max_shapes,
            make=self.graph_for,
            verify=self.verify_padding if buckets else None,
            follow=self.follow,
        )
        padded = interface.padded({name: min(size, *buckets.get(name, [size])[-1:]) for name, size in present.items()})
        graph = imported.graph if padded == present else self.graph_for(padded)
        model.add(tuple(sorted(padded.items())), graph)
        if buckets:
            self.verify_padding(model, padded)
            for i in range(max(map(len, buckets.values()))):
                model.prepare({**present, **{name: each[min(i, len(each) - 1)] for name, each in buckets.items()}})
        return model

    def _present(self) -> dict[str, int]:
        """The sizes of the example."""
        return {name: self.leaves[i].shape[dim] for (i, dim), name in self.sizes.items()}

    def graph_for(self, sizes: dict[str, int]) -> Graph:
        try:
            imported = self._import(sizes)
        except UnsupportedModuleError:
            raise
        except ValueError as error:
            raise ValueError(f"{_at(sizes)}{error}") from error
        if self.interface is not None and (now := self._interface(imported)) != self.interface:
            raise ValueError(f"the module returns something else {self._difference(now, sizes)}")
        return imported.graph

    def _difference(self, now: Interface, sizes: dict[str, int]) -> str:
        """The circumstances in which results differ from the example's, and what to do."""
        assert self.interface is not None
        if now.structure == self.interface.structure and now.dtypes != self.interface.dtypes:
            types = [", ".join(dict.fromkeys(each.dtypes)) for each in (now, self.interface)]
            return f"than when it was compiled, values of {types[0]} instead of {types[1]}: compile it again"
        if sizes == self._present():
            return "than when it was compiled: compile it again"
        return f"{_at(sizes)}than at the example's sizes: compile it separately for these"

    def _import(self, sizes: dict[str, int]) -> Imported:
        args, kwargs = self.inputs_of(sizes)
        with _dense(self.module), _evaluating(self.module):
            imported = import_module(self.module, args, kwargs, self.choice)
        self.folded |= imported.folded
        self.constants += imported.constants
        self.held = Held(self.module, self.constants)
        self.settings = Settings(self.module)
        return imported

    def inputs_of(self, sizes: dict[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The example inputs with these sizes: cut off, or repeated."""
        leaves = list(self.leaves)
        for (i, dim), name in self.sizes.items():
            places = torch.arange(sizes[name]) % self.leaves[i].shape[dim]
            leaves[i] = leaves[i].index_select(dim, places)
        args, kwargs = _pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs

    def _interface(self, imported: Imported) -> Interface:
        numbers = [i for i, name in enumerate(imported.inputs) if name is not None]
        arguments = [
            Argument(path, numbers.index(i), None) if i in numbers else Argument(path, None, leaf)
            for i, (path, leaf) in enumerate(zip(self.paths, self.leaves, strict=True))
        ]
        outputs = [each for each in imported.outputs if isinstance(each, tuple)]
        interface = Interface(
            self.names,
            arguments,
            [str(imported.inputs[i]) for i in numbers],
            [str(self.leaves[i].dtype).removeprefix("torch.") for i in numbers],
            [name for name, _ in outputs],
            [str(dtype).removeprefix("torch.") for _, dtype in outputs],
            _structure(imported),
            positional=_positional(self.module, self.names),
        )
        interface.input_sizes = {(numbers.index(i), dim): Size(name) for (i, dim), name in self.sizes.items()}
        if self.interface is not None:
            interface.output_sizes, interface.buckets = self.interface.output_sizes, self.interface.buckets
        return interface

    def _output_sizes(self) -> dict[tuple[int, int], Size]:
        """How sizes of results follow from input sizes with buckets, found by runs of the module at three of each."""
        assert self.interface is not None
        largest = {**self._present(), **{name: sizes[-1] for name, sizes in self.interface.buckets.items()}}
        shapes = self._result_shapes(largest)
        found: dict[tuple[int, int], Size] = {}
        for name, most in largest.items():
            if name not in self.interface.buckets:
                continue
            fewer = [size for size in (most - 1, most - 2) if size > 0]
            others = {size: self._result_shapes({**largest, name: size}) for size in fewer}
            for i, shape in enumerate(shapes):
                for dim, size in enumerate(shape):
                    rule = self._rule(name, most, size, {at: each[i][dim] for at, each in others.items()})
                    if rule is None:
                        continue
                    if (i, dim) in found:
                        raise ValueError(
                            f"dimension {dim} of result {i} depends on {found[i, dim].name!r} and {name!r}, which "
                            "cannot be padded: give one of them no buckets"
                        )
                    found[i, dim] = rule
        self._require_one_size(largest, shapes, found)
        return found

    def _require_one_size(
        self, largest: dict[str, int], shapes: list[tuple[int, ...]], found: dict[tuple[int, int], Size]
    ) -> None:
        """Raise ValueError if a result's size that follows from buckets also depends on a size without buckets."""
        assert self.interface is not None
        for name in [each for each in largest if found and each not in self.interface.buckets]:
            for size in (largest[name] - 1, largest[name] + 1, 2 * largest[name]):
                try:
                    others = self._result_shapes({**largest, name: size}) if size > 0 else shapes
                except ValueError:
                    continue  # a size that the module does not take
                if list(map(len, others)) != list(map(len, shapes)):
                    continue
                for (i, dim), rule in found.items():
                    if others[i][dim] != shapes[i][dim]:
                        raise ValueError(
                            f"dimension {dim} of result {i} depends on {rule.name!r} and {name!r}, which cannot be "
                            f"padded: give {rule.name!r} no buckets"
                        )

    @staticmethod
    def _rule(name: str, most: int, size: int, others: dict[int, int]) -> Size | None:
        if all(other == size for other in others.values()):
            return None
        factor = size - others[most - 1]
        rule = Size(name, factor, size - factor * most)
        if any(factor * at + rule.more != other for at, other in others.items()):
            raise ValueError(f"sizes of results do not follow from {name!r} evenly: give it no buckets")
        return rule

    def _result_shapes(self, sizes: dict[str, int]) -> list[tuple[int, ...]]:
        return [tuple(each.shape) for each in self._results(sizes)]

    def _results(self, sizes: dict[str, int]) -> list[Tensor]:
        args, kwargs = self.inputs_of(sizes)
        with torch.no_grad(), _evaluating(self.module), self._keeping_settings():
            try:
                leaves, _ = _pytree.tree_flatten(self.module(*args, **kwargs))
            except Exception as error:
                at = ", ".join(f"{name} {size}" for name, size in sizes.items())
                raise ValueError(f"the module cannot run at {at}, which the buckets allow: {error}") from error
        return [each for each in leaves if isinstance(each, Tensor)]

    @contextlib.contextmanager
    def _keeping_settings(self) -> Iterator[None]:
        """Ignore assignments by the module within this context.

        Each check of padding runs the module; if its assignments counted as changes, they would cause the next check.
        """
        were_unchanged = self.settings.are_unchanged()
        try:
            yield
        finally:
            if were_unchanged:
                self.settings = Settings(self.module)

    def _takes(self, sizes: dict[str, int]) -> bool:
        try:
            self._results(sizes)
        except ValueError:
            return False
        return True

    def verify_padding(self, model: CompiledModel, padded: dict[str, int]) -> None:
        """Raise ValueError if padding changes the results for the smallest or the largest sizes that these buckets pad.

        Combinations in which only some sizes are smallest are checked too, if the module takes them.
        """
        buckets = model.interface.buckets
        combination = tuple(padded[name] for name in buckets)
        if combination in self.verified:
            return
        least = {name: max([0, *(size for size in each if size < padded[name])]) + 1 for name, each in buckets.items()}
        most = {name: max(size, padded[name] - 1) for name, size in least.items()}
        smaller = [name for name, size in least.items() if size < padded[name]]
        subsets = (names for count in range(1, len(smaller)) for names in itertools.combinations(smaller, count))
        some = [{name: least[name] for name in names} for names in subsets]
        for few in (least, most, *(each for each in some if self._takes({**padded, **each}))):
            sizes = {**padded, **few}
            args, kwargs = self.inputs_of(sizes)
            found = [torch.as_tensor(each) for _, each in leaves_of(model(*args, **kwargs)) if hasattr(each, "shape")]
            for wanted, result in zip(self._results(sizes), found, strict=True):
                self._compare(wanted, result, sizes, padded)
        self.verified.add(combination)

    @staticmethod
    def _compare(wanted: Tensor, found: Tensor, sizes: dict[str, int], padded: dict[str, int]) -> None:
        if not _is_close(wanted, found):
            what = " and ".join(
                f"{name!r} from {size} to {padded[name]}" for name, size in sizes.items() if padded[name] != size
            )
            raise ValueError(
                f"zeros that pad {what} change the results: give the module an input that masks them, such as an "
                "attention mask with the same dimensions, or no buckets"
            )

    # Weights that change.

    def follow(self, model: CompiledModel, *, changed: bool = False, fully: bool = False) -> None:
        """Give the sessions the present weights; `changed` says that some have changed, `fully` compares all."""
        if not changed and self._is_unchanged(fully or self.checks_all):
            return
        with model._lock:
            require_readable(self.module)
            _require_values(self.module)
            has_same_settings = self.settings.are_unchanged()
            if changed or not has_same_settings or not self._set(model):
                self.choice.forget()
                self.folded.clear()
                self.constants.clear()
                model.restart()
            if changed or not has_same_settings:
                self.verified.clear()
                self.settings = Settings(self.module)
            self.held = Held(self.module, self.constants)

    def _is_unchanged(self, fully: bool) -> bool:
        settings = self.settings
        return self.held.is_unchanged(fully) and (settings.are_unchanged() if fully else settings.look_unchanged())

    def _set(self, model: CompiledModel) -> bool:
        """Set changed parameters of sessions in place; False if anything else has changed, or zeros have moved."""
        session = model._first
        if session is None or not self.held.has_same_parts:
            return False
        natives = set(session._native.parameters)
        if any(set(each.session._native.parameters) - natives for each in model._sessions.values()):
            return False  # a session has weights that the first one lacks or has in another form
        forms, folded = _forms_by_parameter(natives), _forms_by_parameter(self.folded)
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        values = {}
        for tensor in self.held.changed():
            name = names.get(id(tensor))
            if name not in forms or name in folded or tensor.layout is not torch.strided:
                return False
            array = tensor.detach().float().numpy()
            for native, of, is_transposed in forms[name]:
                if native in self.folded:
                    return False
                part = array if of is None else array[of]
                fitting = self.choice.values_of(native, part.T if is_transposed else part)
                if fitting is None or fitting.size != session.get(native).size:
                    return False
                values[native] = fitting
        for native, array in values.items():
            session._native.set(native, array)
        return True


def _at(sizes: dict[str, int]) -> str:
    """Sizes as the beginning of a message on them."""
    return f"at {', '.join(f'{name} {size}' for name, size in sizes.items())} " if sizes else ""


def _is_close(wanted: Tensor, found: Tensor) -> bool:
    """Whether results with padding equal results without; integers, such as positions, must be equal exactly."""
    if wanted.shape != found.shape:
        return False
    if not wanted.is_floating_point():
        return torch.equal(found.to(wanted.dtype), wanted)
    finite = wanted.float()[torch.isfinite(wanted.float())]
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    return torch.allclose(found.float(), wanted.float(), rtol=2e-3, atol=1e-3 * scale, equal_nan=True)


#: The name of a form: a parameter's name, a part of the parameter, and suffixes for the form.
_FORM = re.compile(r"(.+?)(?:\[(\d+)(?::(\d+))?\])?(\.transposed)?(?:\.sparse)?")


def _forms_by_parameter(natives: set[str]) -> dict[str | None, list[tuple[str, slice | int | None, bool]]]:
    """The forms of each parameter of a module in sessions: name, part (or None), whether transposed."""
    forms: dict[str | None, list[tuple[str, slice | int | None, bool]]] = {}
    for native in natives:
        found = _FORM.fullmatch(native)
        assert found is not None
        part: slice | int | None = None
        if found[2] is not None:
            part = int(found[2]) if found[3] is None else slice(int(found[2]), int(found[3]))
        forms.setdefault(found[1], []).append((native, part, found[4] is not None))
    return forms


def _require_finite(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if not all(bool(torch.isfinite(part).all()) for part in parts_of(parameter)[-1:]):
            raise ValueError(f"{name} holds NaN or infinity: parameters must be finite")


def _names_of(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Names of the arguments, in their order; arguments in *args are numbered."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"the example inputs do not fit the module: {error}") from None
    names: list[str] = []
    for name, parameter in bound.signature.parameters.items():
        if len(names) == len(args):
            break
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names.extend(f"{name}[{i}]" for i in range(len(args) - len(names)))
        else:
            names.append(name)
    return names + list(kwargs)


def _positional(module: nn.Module, names: list[str]) -> int:
    """How many of the first names are positional arguments of `forward`, in this order."""
    count = 0
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return count + sum(name.startswith(f"{parameter.name}[") for name in names[count:])
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY or names[count : count + 1] != [parameter.name]:
            break
        count += 1
    return count


@contextlib.contextmanager
def _dense(module: nn.Module) -> Iterator[None]:
    """Within this context, parameters and buffers in sparse layouts are dense, so that PyTorch can export them."""
    sparse: list[tuple[dict[str, Any], str, Tensor]] = [
        (place, name, tensor)
        for owner in module.modules()
        for place in (owner._parameters, owner._buffers)
        for name, tensor in place.items()
        if tensor is not None and tensor.layout is not torch.strided
    ]
    try:
        for place, name, tensor in sparse:
            dense = tensor.detach().to_dense()
            place[name] = nn.Parameter(dense, requires_grad=False) if isinstance(tensor, nn.Parameter) else dense
        yield
    finally:
        for place, name, tensor in sparse:
            place[name] = tensor


@contextlib.contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Within this context, all modules are in evaluation mode."""
    training = [each for each in module.modules() if each.training]
    try:
        for each in training:
            each.training = False
        yield
    finally:
        for each in training:
            each.training = True


def _structure(imported: Imported) -> Any:
    """The results' structure, as `assemble` takes it."""
    leaves: list[Any] = []
    count = Counter[str]()
    for each in imported.outputs:
        is_array = isinstance(each, tuple)
        leaves.append(count["arrays"] if is_array else ["value", each])
        count["arrays"] += is_array
    built = _pytree.tree_unflatten(leaves, imported.output_spec) if imported.output_spec else leaves[0]
    return _described(built)


def _fields_of(built: tuple[Any, ...]) -> Sequence[str] | None:
    """The names of a tuple's parts, if they have any, as in `torch.return_types`."""
    is_of_pytorch = type(built) in torch.return_types.all_return_types
    fields: Sequence[str] | None = getattr(built, "__match_args__" if is_of_pytorch else "_fields", None)
    return fields


def _described(built: Any) -> Any:
    if isinstance(built, int) or (isinstance(built, list) and built and built[0] == "value"):
        return built
    if isinstance(built, tuple):
        fields = _fields_of(built)
        parts = [_described(each) for each in built]
        return ["tuple", parts] if fields is None else ["named", dict(zip(fields, parts, strict=True))]
    if isinstance(built, list):
        return ["list", [_described(each) for each in built]]
    if isinstance(built, Mapping) and all(isinstance(name, str) for name in built):
        kind = "dict" if type(built) in (dict, OrderedDict) else "outputs"
        return [kind, {name: _described(each) for name, each in built.items()}]
    raise ValueError(refused_result(type(built).__name__))
