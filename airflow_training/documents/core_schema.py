"""What plain scalars mean in YAML 1.2 (its core schema), and a reader of nodes that follows it."""

from __future__ import annotations

import re

from yaml.nodes import Node, ScalarNode, SequenceNode
from yaml.resolver import BaseResolver

__all__ = ["BOOL", "FLOAT", "INT", "MERGE", "NULL", "STR", "CoreSchema", "NodeReader"]

NULL, BOOL = "tag:yaml.org,2002:null", "tag:yaml.org,2002:bool"
INT, FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
STR, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


class CoreSchema(BaseResolver):
    """What plain scalars mean in YAML 1.2."""

    def resolve(self, kind: type[Node], value: str, implicit: tuple[bool, bool]) -> str:
        """Return the tag; the base class's general way takes three times as long."""
        if kind is not ScalarNode:
            found = self.DEFAULT_SEQUENCE_TAG if kind is SequenceNode else self.DEFAULT_MAPPING_TAG
            return str(found)
        if implicit[0]:
            for tag, pattern in self.yaml_implicit_resolvers.get(value[:1], ()):
                if pattern.match(value):
                    return str(tag)
        return STR


for _tag, _pattern, _first in (
    (NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (BOOL, r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (INT, r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        FLOAT,
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    (MERGE, r"<<", ["<"]),
):
    CoreSchema.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), _first)

try:
    from yaml._yaml import CParser

    class NodeReader(CParser, CoreSchema):
        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            CoreSchema.__init__(self)

except ImportError:  # PyYAML without libyaml: slower, same answers
    from yaml.composer import Composer
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner

    class NodeReader(Reader, Scanner, Parser, Composer, CoreSchema):  # type: ignore[no-redef] # the same class without libyaml
        def __init__(self, text: str) -> None:
            Reader.__init__(self, text)
            Scanner.__init__(self)
            Parser.__init__(self)
            Composer.__init__(self)
            CoreSchema.__init__(self)
