"""The rules of operators; importing this registers those of every kind that we know."""

from airflow_training.planning.rules import algebra, experts, images, layers, shapes
from airflow_training.planning.rules.registry import (
    Exchange,
    Rule,
    Tensors,
    kinds,
    rule,
    rule_of,
)

__all__ = [
    "Exchange",
    "Rule",
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
