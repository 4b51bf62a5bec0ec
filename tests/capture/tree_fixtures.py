"""Twenty-five and more states that a project can be in, made with git where git has a part in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FIXTURES", "TreeFixture", "git"]

Setup = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFixture:
    name: str
    setup: Setup
    """Makes the project in a folder that has `train.py`."""
    there: frozenset[str] = frozenset()
    """Paths from the root that must travel; a folder that is empty ends with `/`, a link is `path -> target`."""
    absent: frozenset[str] = frozenset()
    root: str = "."
    """The project's root, from that folder."""


def git(folder: Path, *command: str) -> str:
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())


def repository(folder: Path, files: Mapping[str, str | bytes] | None = None) -> None:
    write(folder, files or {})
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")


FIXTURES: list[TreeFixture] = []


def fixture(there: str = "", absent: str = "", root: str = ".") -> Callable[[Setup], Setup]:
    def add(setup: Setup) -> Setup:
        FIXTURES.append(
            TreeFixture(
                name=setup.__name__.replace("_", "-"),
                setup=setup,
                there=frozenset(filter(None, there.split("|"))),
                absent=frozenset(filter(None, absent.split("|"))),
                root=root,
            )
        )
        return setup

    return add


@fixture("train.py|a.py")
def committed(folder: Path) -> None:
    repository(folder, {"a.py": "1"})


@fixture("new.py|deep/er.py")
def untracked(folder: Path) -> None:
    repository(folder)
    write(folder, {"new.py": "1", "deep/er.py": "2"})


@fixture("staged.py|changed.py")
def staged_and_changed(folder: Path) -> None:
    repository(folder, {"changed.py": "1"})
    write(folder, {"staged.py": "1", "changed.py": "2"})
    git(folder, "add", "staged.py", "changed.py")
    write(folder, {"changed.py": "3"})


@fixture("train.py", absent="gone.py|dropped.py")
def deleted(folder: Path) -> None:
    repository(folder, {"gone.py": "1", "dropped.py": "1"})
    (folder / "gone.py").unlink()
    git(folder, "rm", "-q", "dropped.py")


@fixture("new_name.py", absent="old_name.py")
def renamed(folder: Path) -> None:
    repository(folder, {"old_name.py": "1"})
    git(folder, "mv", "old_name.py", "new_name.py")


@fixture("train.py")
def no_commits(folder: Path) -> None:
    git(folder, "init", "-q")


@fixture("a.py")
def detached(folder: Path) -> None:
    repository(folder, {"a.py": "1"})
    git(folder, "checkout", "-q", "--detach")


@fixture("a.py")
def unpushed(folder: Path) -> None:
    repository(folder, {"a.py": "1"})
    git(folder, "remote", "add", "origin", "https://example.org/nobody/nothing.git")


@fixture("train.py|lib/a.py", absent="lib/__pycache__/a.pyc")
def no_git(folder: Path) -> None:
    write(folder, {"lib/a.py": "1", "lib/__pycache__/a.pyc": "x"})


@fixture("a.py|keep.log", absent="b.log|secret/x.py|env/bin/python")
def no_git_with_ignore_files(folder: Path) -> None:
    write(
        folder,
        {
            ".gitignore": "*.log\n!keep.log\nsecret/\n",
            "a.py": "1",
            "b.log": "1",
            "keep.log": "1",
            "secret/x.py": "1",
            "env/pyvenv.cfg": "",
            "env/bin/python": "",
        },
    )


@fixture("a/keep.tmp|a/b/deep.tmp|train.py", absent="x.tmp|a/x.tmp|a/b/c.gen|c/train.py")
def no_git_with_nested_ignore_files(folder: Path) -> None:
    write(
        folder,
        {
            ".gitignore": "*.tmp\n/c\n",
            "a/.gitignore": "!keep.tmp\n",
            "a/b/.gitignore": "!*.tmp\n*.gen\n",
            **dict.fromkeys(("x.tmp", "a/x.tmp", "a/keep.tmp", "a/b/deep.tmp", "a/b/c.gen"), "1"),
            "c/train.py": "1",
        },
    )


@fixture("run.sh")
def modes(folder: Path) -> None:
    repository(folder, {"run.sh": "#!/bin/sh\n", "private.py": "1"})
    (folder / "run.sh").chmod(0o755)
    (folder / "private.py").chmod(0o600)


@fixture("latest.yaml -> conf/a.yaml|conf/up.py -> ../train.py|d -> conf|dangling -> nowhere")
def links_inside(folder: Path) -> None:
    repository(folder, {"conf/a.yaml": "1"})
    (folder / "latest.yaml").symlink_to("conf/a.yaml")
    (folder / "conf" / "up.py").symlink_to("../train.py")
    (folder / "d").symlink_to("conf")
    (folder / "dangling").symlink_to("nowhere")


@fixture("absolute.py -> train.py|sub/absolute.py -> ../train.py")
def absolute_links_inside(folder: Path) -> None:
    repository(folder, {"sub/a.py": "1"})
    (folder / "absolute.py").symlink_to(folder / "train.py")
    (folder / "sub" / "absolute.py").symlink_to(folder / "train.py")


@fixture("outside.yaml", absent="etc|circle-a|circle-b|nothing")
def links_outside(folder: Path) -> None:
    repository(folder)
    outside = folder.parent / f"{folder.name}-outside"
    write(outside, {"outside.yaml": "lr: 1", "etc/passwd": "x"})
    (folder / "outside.yaml").symlink_to(outside / "outside.yaml")
    (folder / "etc").symlink_to(outside / "etc")
    (folder / "circle-a").symlink_to("circle-b")
    (folder / "circle-b").symlink_to("circle-a")
    (folder / "nothing").symlink_to("/nothing/at/all")


def _with_submodule(folder: Path) -> Path:
    other = folder.parent / f"{folder.name}-other"
    other.mkdir()
    repository(other, {"sub.py": "1", ".gitignore": "*.tmp\n"})
    repository(folder)
    git(folder, "submodule", "--quiet", "add", str(other), "vendor/sub")
    git(folder, "commit", "-q", "-m", "sub")
    return folder / "vendor" / "sub"


@fixture("vendor/sub/sub.py|.gitmodules", absent="vendor/sub/.git")
def submodule(folder: Path) -> None:
    _with_submodule(folder)


@fixture("vendor/sub/sub.py|vendor/sub/own.py", absent="vendor/sub/x.tmp")
def submodule_with_new_files(folder: Path) -> None:
    write(_with_submodule(folder), {"own.py": "1", "x.tmp": "1"})


@fixture("vendor/sub/")
def submodule_that_was_not_fetched(folder: Path) -> None:
    _with_submodule(folder)
    git(folder, "submodule", "--quiet", "deinit", "-f", "vendor/sub")


@fixture("tools/inner.py", absent="tools/.git/config")
def repository_in_a_repository(folder: Path) -> None:
    repository(folder)
    write(folder, {"tools/inner.py": "1"})
    git(folder / "tools", "init", "-q")


@fixture("a/keep.tmp|a/b/deep.tmp|top.py", absent="x.tmp|a/x.tmp|a/b/c.gen")
def nested_ignores(folder: Path) -> None:
    repository(
        folder,
        {
            ".gitignore": "*.tmp\n",
            "a/.gitignore": "!keep.tmp\n",
            "a/b/.gitignore": "!*.tmp\n*.gen\n",
            "top.py": "1",
        },
    )
    write(
        folder, dict.fromkeys(("x.tmp", "a/x.tmp", "a/keep.tmp", "a/b/deep.tmp", "a/b/c.gen"), "1")
    )


@fixture("tracked.log|local.yaml", absent="big/notes.md|x.local")
def own_ignore_file(folder: Path) -> None:
    repository(
        folder,
        {
            ".gitignore": "*.yaml\n*.local\n",
            "tracked.log": "1",
            "big/notes.md": "1",
            ".trainingignore": "big/\n!local.yaml\n",
        },
    )
    write(folder, {"local.yaml": "1", "x.local": "1"})


@fixture("forced.log", absent="x.log")
def tracked_although_ignored(folder: Path) -> None:
    write(folder, {".gitignore": "*.log\n", "forced.log": "1", "x.log": "1"})
    git(folder, "init", "-q")
    git(folder, "add", "-f", "forced.log")
    git(folder, "add", "train.py", ".gitignore")
    git(folder, "commit", "-q", "-m", "first")


@fixture("windows.py|unix.py")
def line_ends(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "config", "core.autocrlf", "true")
    write(
        folder, {"windows.py": b"a = 1\r\nb = 2\r\n", "unix.py": b"a = 1\n", ".gitattributes": ""}
    )
    git(folder, "add", "windows.py", "train.py")
    git(folder, "commit", "-q", "-m", "first")


@fixture(
    "with space.py|new\nline.py|quote\"'.py|ünïcödé.py|-dash.py|tab\t.py|back\\slash.py|#hash.py"
)
def odd_names(folder: Path) -> None:
    repository(folder)
    names = ("with space.py", "new\nline.py", "quote\"'.py", "ünïcödé.py", "-dash.py", "tab\t.py")
    write(folder, dict.fromkeys((*names, "back\\slash.py", "#hash.py"), "1"))


@fixture("out/|logs/deep/|ignored/|tracked/empty/")
def empty_folders(folder: Path) -> None:
    repository(folder, {".gitignore": "ignored/\n*.log\n", "tracked/a.py": "1"})
    for path in ("out", "logs/deep", "ignored", "tracked/empty"):
        (folder / path).mkdir(parents=True)
    write(folder, {"ignored/x.bin": "1"})


@fixture("a.py")
def without_prefix_in_diffs(folder: Path) -> None:
    repository(folder, {"a.py": "1"})
    git(folder, "config", "diff.noprefix", "true")
    git(folder, "config", "core.quotePath", "true")
    git(folder, "config", "status.relativePaths", "false")
    write(folder, {"a.py": "2"})


@fixture("lib.py", root=".hidden/project")
def hidden_parent_folder(folder: Path) -> None:
    repository(folder, {".hidden/project/lib.py": "1"})


@fixture("lib.py|new.py", absent="ignored.tmp|../train.py", root="sub/project")
def root_below_the_repository(folder: Path) -> None:
    repository(folder, {"sub/project/lib.py": "1", ".gitignore": "*.tmp\n"})
    write(folder, {"sub/project/new.py": "1", "sub/project/ignored.tmp": "1"})


@fixture("lib.py", root="ignored/project")
def root_that_git_ignores(folder: Path) -> None:
    repository(folder, {".gitignore": "ignored/\n"})
    write(folder, {"ignored/project/lib.py": "1"})


@fixture("both.py")
def in_conflict(folder: Path) -> None:
    repository(folder, {"both.py": "1"})
    git(folder, "checkout", "-q", "-b", "other")
    write(folder, {"both.py": "2"})
    git(folder, "commit", "-q", "-am", "two")
    git(folder, "checkout", "-q", "main")
    write(folder, {"both.py": "3"})
    git(folder, "commit", "-q", "-am", "three")
    subprocess.run(["git", "merge", "other"], cwd=folder, capture_output=True, check=False)


@fixture("a.py")
def work_tree_of_another(folder: Path) -> None:
    other = folder.parent / f"{folder.name}-main"
    other.mkdir()
    repository(other, {"a.py": "1", "train.py": ""})
    (folder / "train.py").unlink()
    git(other, "worktree", "add", "-q", str(folder))


@fixture("small.txt|pkg/table.csv", absent="data/x.csv|big.txt|weights.pt")
def data_and_models(folder: Path) -> None:
    repository(folder, {"small.txt": "1", "data/x.csv": "1", "weights.pt": "1"})
    write(folder, {"big.txt": b"x" * (2 << 20), "pkg/__init__.py": "", "pkg/table.csv": "1"})
