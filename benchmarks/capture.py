"""Capture of a project of 1,000 files and 10 MB: all of it, what was edited since, and its parts."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from airflow_training.capture.closure import import_closure
from airflow_training.capture.files import list_files
from airflow_training.capture.layout import lay_out, tree_of
from airflow_training.capture.project import capture_run
from airflow_training.capture.secrets import find_secrets
from benchmarks.report import figure, heading, median, quantile

FILES = 1000
MODULES = 400
ROUNDS = 10


def project(root: Path) -> None:
    """Write 400 modules that import each other, with code, and configuration, prose and vocabularies beside them."""
    block = "".join(
        f"def step_{n}(batch, model, key=None):\n"
        f'    """Do step {n} of the loop, as documented elsewhere."""\n'
        "    tokens = batch.tokens if key is None else batch[key]\n"
        f"    return model(tokens, scale={n})\n\n\n"
        for n in range(40)
    )
    for number in range(MODULES):
        package = root / f"package{number // 40}"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        others = "".join(
            f"from package{n // 40}.module{n} import step_1 as s{n}\n"
            for n in range(number + 1, min(number + 4, MODULES))
        )
        (package / f"module{number}.py").write_text(f"import json\nimport os\n{others}\n\n{block}")
    (root / "train.py").write_text("import package0.module0\n")
    for number in range(FILES - MODULES - 1 - MODULES // 40):
        folder = root / "conf" / f"group{number // 50}"
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(str(number).encode()).hexdigest()
        lines = "".join(f"layer_{n}: {{width: {n}, digest: {digest}}}\n" for n in range(75))
        (folder / f"model{number}.yaml").write_text(lines + "# " + "prose of a config " * 170)
    commands = ("init -q", "add -A", "-c user.name=A -c user.email=a@b.c commit -q -m x")
    for command in commands:
        subprocess.run(["git", *command.split()], cwd=root, check=True, capture_output=True)


def row(name: str, action: Callable[[], object], *, target: str = "") -> None:
    seconds, cpu = [], []
    for _ in range(ROUNDS):
        started, used = time.perf_counter(), time.process_time()
        action()
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    note = f"p95 {quantile(seconds, 0.95):.3g} s; {median(cpu):.3g} s of a core"
    figure(name, median(seconds), "s", target=target, note=note)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        project(root)

        def capture() -> object:
            captured = capture_run(["train.py"], working_dir=root, environ={})
            captured.check()
            return captured

        captured = capture_run(["train.py"], working_dir=root, environ={})
        files = [each for each in captured.tree.entries if each.kind == "file"]
        size = sum(each.size for each in files)
        heading(
            f"Capture of a project: {len(files):,} files, {size / 1e6:.1f} MB, {MODULES} modules"
        )
        row("all of it: files, imports, digests, secrets", capture, target="1 s")
        row("its files listed", lambda: list_files(root))
        row(
            "its imports followed",
            lambda: import_closure(root=root, kind="script", entry="train.py", working_dir=root),
        )
        contents = [(each.path, captured.read(each.sha256)) for each in files]
        row("its contents searched for secrets", lambda: [find_secrets(*each) for each in contents])
        laid = Path(folder) / "laid"
        started = time.perf_counter()
        lay_out(captured.tree, laid, captured.read)
        figure("laid out elsewhere", time.perf_counter() - started, "s")
        row("its digest computed there", lambda: tree_of(laid))
