"""What layers may be called: they become attributes and variables of Python."""

from __future__ import annotations

import keyword
import re

from airflow_training.errors import Problem

__all__ = ["MODULE_ATTRIBUTES", "bad_name"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

MODULE_ATTRIBUTES = frozenset(
    {
        "T_destination",
        "add_module",
        "apply",
        "bfloat16",
        "buffers",
        "call_super_init",
        "children",
        "compile",
        "cpu",
        "cuda",
        "double",
        "dump_patches",
        "eval",
        "extra_repr",
        "float",
        "forward",
        "get_buffer",
        "get_extra_state",
        "get_parameter",
        "get_submodule",
        "half",
        "ipu",
        "load_state_dict",
        "modules",
        "mtia",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "parameters",
        "register_backward_hook",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
        "register_load_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_module",
        "register_parameter",
        "register_state_dict_post_hook",
        "register_state_dict_pre_hook",
        "requires_grad_",
        "set_extra_state",
        "set_submodule",
        "share_memory",
        "state_dict",
        "to",
        "to_empty",
        "train",
        "training",
        "type",
        "xpu",
        "zero_grad",
    }
)
"""Names that torch.nn.Module has itself."""
_OURS = frozenset({"input", "self", "share", "torch", "nn", "functional"})
"""Names that mean something where generated code uses those of layers, or in a block."""


MAX_NAME = 250
"""Letters of a layer's name, with those of the blocks around it."""


def bad_name(name: str, field: str) -> Problem | None:
    """The problem with the name of a layer."""
    if len(name) > MAX_NAME:
        message = f"has {len(name)} letters with the names of blocks around it; at most {MAX_NAME}"
        return Problem(code="bad_name", field=field, value=f"{name[:20]}...", message=message)
    if not _NAME.fullmatch(name):
        close = re.sub(r"\W+", "_", name).strip("_0123456789")
        hint = f"'{close}' would do" if _NAME.fullmatch(close) else ""
        message = "is no name for a layer: letters, digits and '_', a letter first"
    elif keyword.iskeyword(name) or name in MODULE_ATTRIBUTES | _OURS:
        message, hint = "has another meaning in Python or PyTorch", f"'{name}_1' would do"
    else:
        return None
    return Problem(code="bad_name", field=field, value=name, message=message, hint=hint)
