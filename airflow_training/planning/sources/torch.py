"""A `torch.nn.Module` to its computation view, through torch.export. Torch is imported only here.

What torch.export refuses (Python that branches on data, for one) is traced by running it once on the
example inputs and recording the operators (make_fx): the view is of the way it went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from airflow_training.errors import InputError
from airflow_training.planning.view.computation import ComputationView, TensorKind
from airflow_training.planning.view.units import cut_into_units

__all__ = ["trace"]


def trace(
    module: object,
    example_inputs: Sequence[Any],
    *,
    trips: Mapping[str, float] | None = None,
    probabilities: Mapping[str, Sequence[float]] | None = None,
) -> ComputationView:
    """Return the view of a module's forward pass, cut into the units that a pipeline may part.

    Dimension 0 of the inputs is taken for the batch. The module should return its loss; whatever it
    returns is what gradients start from. Types of floating point that are the parameters' own become the
    precision of the strategy.

    Args:
        module: A `torch.nn.Module`, on any device (`meta` needs no memory).
        example_inputs: What `forward` is called with.
        trips: How often loops run, by the name of their node in the view; once, unless told.
        probabilities: How often each branch of a condition is taken; equally often, unless told.

    Raises:
        InputError: Torch is not installed, or the module cannot be traced with these inputs.

    """
    try:
        import torch
    except ImportError as error:
        raise _error(
            "torch_missing", "tracing a module needs torch", "pip install torch"
        ) from error
    from airflow_training.planning.sources import aten_operators  # noqa: F401 - registers them
    from airflow_training.planning.sources.aten import GraphWriter

    if not isinstance(module, torch.nn.Module):
        message = f"{type(module).__name__} is no torch.nn.Module"
        raise _error("bad_module", message, "give an instance, not the class")
    graph, given = _traced(torch, module, tuple(example_inputs))
    dtype = next((p.dtype for p in module.parameters() if p.dtype.is_floating_point), torch.float32)
    scribe = GraphWriter(graph, dtype, trips or {}, probabilities or {})
    return cut_into_units(scribe.view(type(module).__name__, given))


_CRITICAL = 50
"""Level of the standard library's logging."""
Given = list[tuple[str, TensorKind]]
"""Name and kind of each placeholder of a graph."""


def _traced(torch: Any, module: Any, inputs: tuple[Any, ...]) -> tuple[Any, Given]:
    """Return a graph of functional operators, and what its placeholders are."""
    torch._logging.set_logs(all=_CRITICAL)  # we say ourselves what went wrong
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            return _exported(torch, module, inputs)
    except Exception as error:  # noqa: BLE001 - whatever torch and the user's code raise
        refused = error
    try:
        return _recorded(torch, module, inputs)
    except Exception as error:  # noqa: BLE001 - as above
        said = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        hint = "try `module(*inputs)` first"
        raise _error("bad_module", f"the module does not run on its inputs: {said}", hint) from (
            refused
        )


def _exported(torch: Any, module: Any, inputs: tuple[Any, ...]) -> tuple[Any, Given]:
    from airflow_training.planning.sources.aten import decompositions

    program = torch.export.export(module, inputs, strict=False).run_decompositions(decompositions())
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    given: Given = []
    for spec in signature.input_specs:
        name = spec.arg.name
        kind: TensorKind = "input"
        if name in signature.inputs_to_parameters:
            kind = "parameter"
        elif name in names:
            kind = "buffer"
        given.append((names.get(name, name), kind))
    results = program.graph.output_node().args[0]
    kept = set(signature.user_outputs)
    program.graph.output_node().args = (
        tuple(node for node in results if getattr(node, "name", None) in kept),
    )
    return program.graph_module, given


def _recorded(torch: Any, module: Any, inputs: tuple[Any, ...]) -> tuple[Any, Given]:
    from torch.fx.experimental.proxy_tensor import make_fx

    from airflow_training.planning.sources.aten import decompositions

    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    parameters = {name for name, _ in module.named_parameters()}

    def run(held: dict[str, Any], inputs: tuple[Any, ...]) -> Any:
        return torch.func.functional_call(module, held, inputs)

    table = dict(decompositions().items())
    record = make_fx(
        torch.func.functionalize(run),
        decomposition_table=table,
        # The values of the example inputs decide where Python branches on data.
        _error_on_data_dependent_ops=False,
    )
    graph = record(held, inputs)
    flat = torch.utils._pytree.tree_leaves(inputs)
    given: Given = [(name, "parameter" if name in parameters else "buffer") for name in held]
    given += [(f"input{place}", "input") for place, _ in enumerate(flat)]
    return graph, given


def _error(code: str, message: str, hint: str) -> InputError:
    return InputError.of(code=code, field="module", message=message, hint=hint)
