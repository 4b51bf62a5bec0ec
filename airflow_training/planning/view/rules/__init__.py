"""The rules of operators; importing this registers those of every kind that we know.

| kinds | inputs | attributes |
|---|---|---|
| `matmul` | two tensors, a bias | `equation`, an einsum of all inputs: `bm,mn,n->bn` |
| `elementwise` | tensors that broadcast | `function`, `flops` per element |
| `reduce` | one | `dims`, `function` (`sum`, `mean`, `max`, `min`), `keep` |
| `sum_of` | tensors of one shape | |
| `transpose`, `reshape` | one | `order` of a transpose |
| `split`, `concatenate` | one; some | `dim`, `interleaved` of a split |
| `softmax` | one | `dim` |
| `norm`, `group_norm`, `batch_norm` | data, weight, bias | `rank`, where there is no weight |
| `attention` | query, key, value | `heads_first`, `causal` |
| `gated` | gate and value in one | |
| `embedding` | numbers, table | |
| `cross_entropy` | logits, labels | |
| `conv`, `pool` | data, weight, bias; data | `window` of a pool |
| `top_k`, `dispatch`, `combine` | see `experts` | |
| `cond`, `while_loop`, `scan` | see `control_flow`: they are laid open, and so have no rule | |
| `adam` | what `training` writes | |

Every operator may have `recompute`, the modes in which the backward pass runs it again.
"""

from airflow_training.planning.view.rules import algebra, experts, images, layers, shapes
from airflow_training.planning.view.rules.registry import (
    OperatorCommunication,
    OperatorRule,
    Tensors,
    kinds,
    rule,
    rule_of,
)

__all__ = [
    "OperatorCommunication",
    "OperatorRule",
    "Tensors",
    "algebra",
    "experts",
    "images",
    "kinds",
    "layers",
    "rule",
    "rule_of",
    "shapes",
]
