"""Forty small projects, each with a way to import: what a capture must find, and scripts that end well only if it did."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["FIXTURES", "ImportFixture"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFixture:
    name: str
    files: Mapping[str, str]
    """Path from the fixture's folder; the project is `project/`, an environment's packages `site/site-packages/`."""
    needed: frozenset[str] = frozenset()
    """Of the project."""
    argv: Sequence[str] = ("train.py",)
    working_dir: str = "project"
    python_path: Sequence[str] = ()
    outside: Mapping[str, frozenset[str]] = field(default_factory=dict)
    import_paths: Sequence[str] | None = None
    dynamic: Sequence[str] = ()
    """`path:line`."""
    problems: Sequence[str] = ()
    missing: Sequence[str] = ()

    def write(self, folder: Path) -> Path:
        """Write it to a folder; the project's root."""
        for path, text in self.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                target.symlink_to(text[3:])
            else:
                target.write_text(text.replace("{here}", str(folder)))
        return folder / "project"

    @property
    def entry(self) -> tuple[str, str]:
        """Kind and entry as a command has them."""
        if self.argv[0] == "-m":
            return "module", self.argv[1]
        inside = os.path.normpath(f"{self.working_dir}/{self.argv[0]}")
        return "script", os.path.relpath(inside, "project")


def _fixture(
    name: str, files: Mapping[str, str], needed: str = "", **more: object
) -> ImportFixture:
    return ImportFixture(name=name, files=files, needed=frozenset(needed.split()), **more)  # type: ignore[arg-type]


_EDITABLE = '{"url": "file://{here}/lib", "dir_info": {"editable": true}}'  # as pip and uv write it
_DIRECT = "site/site-packages/mylib-1.0.dist-info/direct_url.json"
_METADATA = "site/site-packages/mylib-1.0.dist-info/METADATA"
_VERSION = "Metadata-Version: 2.1\nName: mylib\nVersion: 1.0\n"

FIXTURES: Sequence[ImportFixture] = (
    _fixture(
        "registry-of-its-own-modules",
        {
            "project/train.py": "import nets\nassert nets.found == {'cnn', 'mlp'}, nets.found\n",
            "project/nets/__init__.py": (
                "import importlib, pkgutil\nfound = {each.name for each in pkgutil.iter_modules(__path__)}\n"
                "for name in found:\n    importlib.import_module(f'{__name__}.{name}')\n"
                "    importlib.import_module('.' + name, __package__)\n"
                "    importlib.import_module(__name__ + '.' + name)\n"
            ),
            "project/nets/cnn.py": "import layers\n",
            "project/nets/mlp.py": "",
            "common/layers/__init__.py": "",
        },
        "train.py nets/__init__.py nets/cnn.py nets/mlp.py",
        python_path=["common"],
        outside={"common": frozenset({"layers"})},
        dynamic=["nets/__init__.py:4", "nets/__init__.py:5", "nets/__init__.py:6"],
    ),
    _fixture(
        "module-beside",
        {"project/train.py": "import model\n", "project/model.py": ""},
        "train.py model.py",
    ),
    _fixture(
        "from-module",
        {"project/train.py": "from model import Net\n", "project/model.py": "Net = 1\n"},
        "train.py model.py",
    ),
    _fixture(
        "package",
        {"project/train.py": "import nets\n", "project/nets/__init__.py": ""},
        "nets/__init__.py",
    ),
    _fixture(
        "submodule",
        {
            "project/train.py": "import nets.deep.cnn\n",
            "project/nets/__init__.py": "",
            "project/nets/deep/__init__.py": "",
            "project/nets/deep/cnn.py": "",
        },
        "nets/__init__.py nets/deep/__init__.py nets/deep/cnn.py",
    ),
    _fixture(
        "submodule-by-name",
        {
            "project/train.py": "from nets import cnn\n",
            "project/nets/__init__.py": "",
            "project/nets/cnn.py": "",
        },
        "nets/cnn.py",
    ),
    _fixture(
        "relative",
        {
            "project/train.py": "import nets.cnn\n",
            "project/nets/__init__.py": "",
            "project/nets/cnn.py": "from . import layers\nfrom .blocks import Block\n",
            "project/nets/layers.py": "",
            "project/nets/blocks.py": "Block = 1\n",
        },
        "nets/layers.py nets/blocks.py",
    ),
    _fixture(
        "relative-two-up",
        {
            "project/train.py": "import a.b.c\n",
            "project/a/__init__.py": "",
            "project/a/shared.py": "x = 1\n",
            "project/a/b/__init__.py": "",
            "project/a/b/c.py": "from ..shared import x\nfrom .. import shared\n",
        },
        "a/shared.py a/b/c.py",
    ),
    _fixture(
        "star",
        {
            "project/train.py": "from nets import *\ncnn\n",
            "project/nets/__init__.py": '__all__ = ["cnn"]\n',
            "project/nets/cnn.py": "",
        },
        "nets/cnn.py",
    ),
    _fixture(
        "star-of-a-module",
        {
            "project/train.py": "from helpers import *\nf()\n",
            "project/helpers.py": "from deeper import f\n",
            "project/deeper.py": "def f(): pass\n",
        },
        "helpers.py deeper.py",
    ),
    _fixture(
        "namespace-package",
        {"project/train.py": "import space.part.one\n", "project/space/part/one.py": ""},
        "space/part/one.py",
    ),
    _fixture(
        "namespace-over-two-folders",
        {
            "project/train.py": "import space.one, space.two\n",
            "project/space/one.py": "",
            "other/space/two.py": "",
        },
        "space/one.py",
        python_path=("other",),
        outside={"other": frozenset({"space"})},
    ),
    _fixture(
        "src-layout-by-path",
        {
            "project/scripts/train.py": "import mypkg.core\n",
            "project/src/mypkg/__init__.py": "",
            "project/src/mypkg/core.py": "",
        },
        "src/mypkg/core.py scripts/train.py",
        argv=("scripts/train.py",),
        python_path=("project/src",),
        import_paths=("project/src",),
    ),
    _fixture(
        "src-layout-not-installed-here",
        {
            "project/scripts/train.py": "import mypkg.core\n",
            "project/src/mypkg/__init__.py": "",
            "project/src/mypkg/core.py": "",
        },
        "src/mypkg/core.py",
        argv=("scripts/train.py",),
        import_paths=("project/src",),
    ),
    _fixture(
        "src-layout-editable",
        {
            "project/train.py": "import mypkg\n",
            "project/src/mypkg/__init__.py": "",
            "site/site-packages/__editable__.mypkg-1.0.pth": "{here}/project/src\n",
        },
        "src/mypkg/__init__.py",
        import_paths=("project/src",),
    ),
    _fixture(
        "module-option",
        {
            "project/jobs/__init__.py": "",
            "project/jobs/train.py": "from .model import Net\n",
            "project/jobs/model.py": "Net = 1\n",
        },
        "jobs/__init__.py jobs/train.py jobs/model.py",
        argv=("-m", "jobs.train"),
    ),
    _fixture(
        "module-option-of-a-package",
        {
            "project/jobs/__init__.py": "",
            "project/jobs/__main__.py": "from jobs import model\n",
            "project/jobs/model.py": "",
        },
        "jobs/__main__.py jobs/model.py",
        argv=("-m", "jobs"),
    ),
    _fixture(
        "module-option-below-the-root",
        {"project/code/train.py": "import model\n", "project/code/model.py": ""},
        "code/train.py code/model.py",
        argv=("-m", "train"),
        working_dir="project/code",
    ),
    _fixture(
        "editable-by-path",
        {
            "project/train.py": "import mylib.core\n",
            "lib/src/mylib/__init__.py": "",
            "lib/src/mylib/core.py": "",
            "site/site-packages/__editable__.mylib-1.0.pth": "{here}/lib/src\n",
            _DIRECT: _EDITABLE,
            _METADATA: _VERSION,
        },
        "train.py",
        outside={"mylib": frozenset({"mylib"})},
        import_paths=("imports/mylib",),
    ),
    _fixture(
        "editable-by-mapping",
        {
            "project/train.py": "import mylib.core\nfrom importlib.metadata import version\n"
            "assert version('mylib') == '1.0'\n",
            "lib/code/__init__.py": "",
            "lib/code/core.py": "from . import deeper\n",
            "lib/code/deeper.py": "",
            "site/site-packages/__editable___mylib_1_0_finder.py": "from __future__ import annotations\n"
            "MAPPING: dict[str, str] = {'mylib': '{here}/lib/code'}\nNAMESPACES = {}\n",
            "site/site-packages/__editable__.mylib-1.0.pth": "import __editable___mylib_1_0_finder\n",
            _DIRECT: _EDITABLE,
            _METADATA: _VERSION,
        },
        "train.py",
        outside={"mylib": frozenset({"mylib"})},
    ),
    _fixture(
        "editable-module-by-mapping",
        {
            "project/train.py": "import single\n",
            "lib/single.py": "",
            "site/site-packages/__editable___mylib_1_0_finder.py": "MAPPING = {'single': '{here}/lib/single'}\n",
            _DIRECT: _EDITABLE,
        },
        "train.py",
        outside={"mylib": frozenset({"single.py"})},
    ),
    _fixture(
        "editable-part-of-a-namespace",
        {
            "project/train.py": "import org.part.core\n",
            "lib/part/__init__.py": "",
            "lib/part/core.py": "",
            "site/site-packages/__editable___mylib_1_0_finder.py": "MAPPING = {'org.part': '{here}/lib/part'}\n",
            _DIRECT: _EDITABLE,
        },
        "train.py",
        outside={"mylib": frozenset({"org/part"})},
    ),
    _fixture(
        "editable-of-another-backend",
        {
            "project/train.py": "import mylib\n",
            "lib/src/mylib/__init__.py": "",
            "site/site-packages/_mylib_editable.py": "",
            _DIRECT: _EDITABLE,
        },
        "train.py",
        outside={"mylib": frozenset({"mylib"})},
    ),
    _fixture(
        "own-metadata",
        {
            "project/train.py": "import mylib\n",
            "project/mylib.py": "from importlib.metadata import version\nassert version('mylib') == '1.0'\n",
            "site/site-packages/__editable__.mylib-1.0.pth": "{here}/project\n",
            _DIRECT: _EDITABLE.replace("/lib", "/project"),
            _METADATA: _VERSION,
        },
        "mylib.py",
    ),
    _fixture(
        "sibling-on-the-path",
        {
            "project/train.py": "import shared.tools\n",
            "common/shared/__init__.py": "",
            "common/shared/tools.py": "import other\n",
            "common/other.py": "",
            "common/unused.py": "",
        },
        "train.py",
        python_path=("common",),
        outside={"common": frozenset({"shared", "other.py"})},
    ),
    _fixture(
        "sibling-by-sys-path",
        {
            "project/train.py": "import os, sys\n"
            "sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))\n"
            "import tools\n",
            "common/tools.py": "",
        },
        "train.py",
        outside={"common": frozenset({"tools.py"})},
    ),
    _fixture(
        "parent-by-pathlib",
        {
            "project/scripts/train.py": "import sys\nfrom pathlib import Path\n"
            "ROOT = Path(__file__).resolve().parents[1]\nsys.path.append(str(ROOT / 'lib'))\nimport tools\n",
            "project/lib/tools.py": "",
        },
        "lib/tools.py",
        argv=("scripts/train.py",),
    ),
    _fixture(
        "archive-on-the-path",
        {
            "project/train.py": "import zipped.part\n",
            "zipped/__init__.py": "",
            "zipped/part.py": "",
        },
        "train.py",
        python_path=("libs.zip",),
        outside={"libs.zip": frozenset({""})},
    ),
    _fixture(
        "late",
        {"project/train.py": "def f():\n    import late\nf()\n", "project/late.py": ""},
        "late.py",
    ),
    _fixture(
        "conditional",
        {
            "project/train.py": "import sys\nif sys.platform == 'plan9':\n    import a\nelse:\n    import b\n",
            "project/a.py": "",
            "project/b.py": "",
        },
        "a.py b.py",
    ),
    _fixture(
        "constant-import-module",
        {
            "project/train.py": "import importlib\nimportlib.import_module('nets.cnn')\n",
            "project/nets/__init__.py": "",
            "project/nets/cnn.py": "import other\n",
            "project/other.py": "",
        },
        "nets/cnn.py other.py",
    ),
    _fixture(
        "relative-import-module",
        {
            "project/train.py": "import nets\n",
            "project/nets/__init__.py": "from importlib import import_module as load\nload('.cnn', __package__)\n",
            "project/nets/cnn.py": "",
        },
        "nets/cnn.py",
    ),
    _fixture(
        "constant-dunder-import",
        {"project/train.py": "__import__('hidden')\n", "project/hidden.py": ""},
        "hidden.py",
    ),
    _fixture(
        "named-by-a-variable",
        {
            "project/train.py": "import importlib, sys\nname = 'a' if sys.argv else 'b'\n"
            "importlib.import_module(name)\n",
            "project/a.py": "",
        },
        "train.py",
        dynamic=("train.py:3",),
    ),
    _fixture(
        "named-by-a-prefix",
        {
            "project/train.py": "import importlib\nfor name in ('cnn', 'mlp'):\n"
            "    importlib.import_module(f'nets.{name}')\n",
            "project/nets/__init__.py": "",
            "project/nets/cnn.py": "import used\n",
            "project/nets/mlp.py": "",
            "project/used.py": "",
        },
        "nets/cnn.py nets/mlp.py used.py",
        dynamic=("train.py:3",),
    ),
    _fixture(
        "loaded-by-its-path",
        {
            "project/train.py": "import importlib.util, os\n"
            "spec = importlib.util.spec_from_file_location('plug', os.path.join(os.path.dirname(__file__), 'plug.py'))\n"
            "spec.loader.exec_module(importlib.util.module_from_spec(spec))\n",
            "project/plug.py": "",
        },
        "plug.py",
    ),
    _fixture(
        "package-data",
        {
            "project/train.py": "from importlib.resources import files\n"
            "assert (files('assets') / 'data' / 'table.csv').read_text() == 'a,b'\n",
            "project/assets/__init__.py": "",
            "project/assets/data/table.csv": "a,b",
            "project/assets/data/unused.csv": "a",
        },
        "assets/data/table.csv assets/__init__.py",
    ),
    _fixture(
        "package-data-of-a-folder",
        {
            "project/train.py": "from importlib.resources import files\n"
            "assert {p.name for p in (files('assets') / 'data').iterdir()} == {'a.csv', 'b.npy'}\n",
            "project/.gitignore": "*.npy\n",
            "project/assets/__init__.py": "",
            "project/assets/data/a.csv": "a",
            "project/assets/data/b.npy": "b",
        },
        "assets/data",
    ),
    _fixture(
        "package-data-by-pkgutil",
        {
            "project/train.py": "import assets\n",
            "project/assets/__init__.py": "import pkgutil\n"
            "assert pkgutil.get_data(__name__, 'deep/table.npy') == b'1'\n",
            "project/assets/deep/table.npy": "1",
        },
        "assets/deep/table.npy",
    ),
    _fixture(
        "generated-and-ignored",
        {
            "project/train.py": "import mypkg\n",
            "project/.gitignore": "_version.py\n",
            "project/mypkg/__init__.py": "from mypkg._version import version\n",
            "project/mypkg/_version.py": "version = 1\n",
        },
        "mypkg/_version.py",
    ),
    _fixture(
        "caught",
        {
            "project/train.py": "try:\n    import apex_of_nobody\nexcept ImportError:\n    apex = None\n",
        },
        "train.py",
        missing=("train.py:2: apex_of_nobody",),
    ),
    _fixture(
        "for-type-checkers",
        {
            "project/train.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import nowhere_at_all\n",
        },
        "train.py",
    ),
    _fixture(
        "linked-module",
        {
            "project/train.py": "import lib.tools\n",
            "project/lib": "-> ../common",
            "common/__init__.py": "",
            "common/tools.py": "from lib import deeper\n",
            "common/deeper.py": "",
        },
        "lib/tools.py lib/deeper.py",
    ),
    _fixture(
        "started-by-another",
        {
            "project/launch.py": "import runpy, sys\nrunpy.run_path(sys.argv[1])\n",
            "project/steps/train.py": "import sys\nsys.path.insert(0, 'steps')\nimport step\n",
            "project/steps/step.py": "",
        },
        "launch.py steps/train.py steps/step.py",
        argv=("launch.py", "steps/train.py"),
        dynamic=("launch.py:2",),
    ),
    _fixture(
        "circle",
        {
            "project/train.py": "import a\n",
            "project/a.py": "import b\n",
            "project/b.py": "import a\n",
        },
        "a.py b.py",
    ),
    _fixture(
        "hides-python's-own",
        {"project/train.py": "import queue\nqueue.ours\n", "project/queue.py": "ours = 1\n"},
        "queue.py",
    ),
)
