"""Reading imports by lines and by the syntax tree gives the same, on Python's own library and on odd spellings."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from airflow_training.capture.import_lines import plain_imports
from airflow_training.capture.imports import Certainty, Import, module_facts

LIBRARY = Path(sysconfig.get_path("stdlib"))
MODULES = [
    *sorted((LIBRARY / "asyncio").glob("*.py")),
    *sorted((LIBRARY / "email").glob("*.py")),
    *sorted((LIBRARY / "unittest").glob("*.py")),
    *sorted((LIBRARY / "concurrent" / "futures").glob("*.py")),
    *sorted(LIBRARY.glob("[t-z]*.py")),
]


def names(imports: list[Import]) -> set[tuple[str, int, tuple[str, ...], int]]:
    return {(each.module, each.level, tuple(each.names), each.line) for each in imports}


def check(source: bytes) -> bool:
    """Compare both ways; whether lines were enough."""
    found = plain_imports(source)
    if found is None:
        return False
    facts = module_facts(source, file="module.py")
    certain = [each for each in facts.imports if each.certainty is Certainty.CERTAIN]
    every = names([each for each, _ in found])
    assert names(list(facts.imports)) <= every
    assert names([each for each, sure in found if sure]) <= names(certain)
    return True


def test_the_library_of_python_is_read_the_same_both_ways():
    read = [check(path.read_bytes()) for path in MODULES]
    assert len(read) > 80
    assert sum(read) > len(read) / 2


@pytest.mark.parametrize(
    "source",
    [
        "import a\n",
        "import a.b as c, d  # why\n",
        "from a import b as c, d\n",
        "from a import *\n",
        "from . import b\n",
        "from .. a import b\n",
        "from ...a.b import (\n    c,  # one\n    d as e,\n)\n",
        "from a import (b)\n",
        "if x:\n    import a\n",
        "def f():\n\tfrom a import b\n",
        "import a\r\nfrom b import c\r\n",
        "import a; import b\n",
        "from a import b; x = 1\n",
        "try: import a\nexcept ImportError: pass\n",
        "from a \\\n    import b\n",
        "import a, \\\n    b\n",
        "from a import b, \\\n    c\n",
        '"""Text.\n\nimport a\n"""\nimport b\n',
        "'''\nfrom here to there it is far\n'''\n",
        'x = """\nimport a\n"""\nimport b\n',
        "import módulo\n",
        "from a import(b)\n",
        "imports = 1\nfrom_here = 2\n",
        "x = [\nfrom_a,\n]\nyield_ = 1\n",
        "def f():\n    yield\n    raise X from e\n",
        "from __future__ import annotations\nimport a\n",
        "import a",
        "from a import b",
    ],
)
def test_spellings(source):
    check(source.encode())
