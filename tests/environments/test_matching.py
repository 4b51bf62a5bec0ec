"""Whatever differs between two Pythons is found before anything is sent: used as it is and told, installed, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.environments.matching import Match, match
from airflow_training.environments.model import InstalledDistribution, PythonEnvironment
from airflow_training.errors import InputError
from tests.environments.records import RECORD, catalogue_of, dist, with_dist, without

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIT = {"origin": "git", "url": "https://git.example.com/team/metrics.git", "commit": COMMIT}
CUDA = replace(
    with_dist(
        RECORD,
        dist("torch", "2.9.1+cu126", build="cuda 12.6"),
        dist("torchvision", "0.24.1+cu126"),
    )
)
"""The same, where there are GPUs."""


def outcomes(found: Match) -> dict[str, tuple[str, str]]:
    return {each.name: (each.kind, each.outcome) for each in found.differences}


def test_an_equal_image_is_used_as_it_is():
    found = match(RECORD, catalogue_of(RECORD))
    assert (found.kind, found.differences, found.digest) == ("image", [], "")


MUTANTS = [
    # id, what the laptop has, what the image has, name, kind, outcome, a part of the requirements or the fix
    ("python-older", RECORD, replace(RECORD, python="3.10.14"), "python", "python", "refused", "uv venv --python 3.10"),
    ("python-newer", RECORD, replace(RECORD, python="3.12.1"), "python", "python", "refused", "uv venv --python 3.12"),
    ("python-patch", RECORD, replace(RECORD, python="3.11.9"), "python", "python", "told", ""),
    ("implementation", replace(RECORD, implementation="pypy"), RECORD, "implementation", "implementation", "refused", "uv venv --python 3.11"),
    ("image-of-pypy", RECORD, replace(RECORD, implementation="pypy"), "implementation", "implementation", "refused", "uv venv --python pypy3.11"),
    ("free-threaded", replace(RECORD, free_threaded=True), RECORD, "threading", "threading", "refused", "uv venv --python 3.11"),
    ("image-free-threaded", RECORD, replace(RECORD, free_threaded=True), "threading", "threading", "refused", "uv venv --python 3.11t"),
    ("mac-laptop", replace(RECORD, system="darwin", machine="arm64", libc=""), RECORD, "platform", "platform", "told", ""),
    ("arm-cluster", RECORD, replace(RECORD, machine="aarch64"), "platform", "platform", "told", ""),
    ("windows-laptop", replace(RECORD, system="win32", machine="AMD64", libc=""), RECORD, "platform", "platform", "told", ""),
    ("libc-version", RECORD, replace(RECORD, libc="glibc 2.28"), "libc", "libc", "told", ""),
    ("libc-musl", RECORD, replace(RECORD, libc="musl"), "libc", "libc", "told", ""),
    ("conda", replace(RECORD, conda=True), RECORD, "conda", "conda", "told", ""),
    ("framework-patch", RECORD, with_dist(RECORD, dist("torch", "2.9.0+cpu")), "torch", "version", "rebuilt", "torch==2.9.1"),
    ("framework-newer", RECORD, with_dist(RECORD, dist("torch", "2.10.0+cpu")), "torch", "version", "rebuilt", "torch==2.9.1"),
    ("framework-missing", RECORD, without(RECORD, "torch"), "torch", "missing", "rebuilt", "torch==2.9.1"),
    ("framework-second", RECORD, with_dist(RECORD, dist("torchvision", "0.24.0+cpu")), "torchvision", "version", "rebuilt", "torchvision==0.24.1"),
    ("cpu-to-cuda", RECORD, CUDA, "torch", "build", "told", ""),
    ("cuda-minor", with_dist(RECORD, dist("torch", "2.9.1+cu124", build="cuda 12.4")), CUDA, "torch", "build", "told", ""),
    ("cuda-unlabelled", with_dist(RECORD, dist("torch", "2.9.1", build="cuda 12.8")), CUDA, "torch", "build", "told", ""),
    ("cuda-to-cpu", CUDA, RECORD, "torch", "build", "rebuilt", "torch==2.9.1+cu126"),
    ("cuda-to-rocm", CUDA, with_dist(RECORD, dist("torch", "2.9.1+rocm6.2", build="hip 6.2")), "torch", "build", "rebuilt", "torch==2.9.1+cu126"),
    ("other-name-of-a-build", with_dist(RECORD, dist("xgboost-cpu", "3.0.5")), with_dist(RECORD, dist("xgboost", "3.0.5")), "xgboost-cpu", "build", "told", ""),
    ("other-name-other-version", with_dist(RECORD, dist("tensorflow-cpu", "2.20.0")), with_dist(RECORD, dist("tensorflow", "2.19.0")), "tensorflow-cpu", "version", "rebuilt", "tensorflow-cpu==2.20.0"),
    ("missing", RECORD, without(RECORD, "tqdm"), "tqdm", "missing", "installed", "tqdm==4.67.0"),
    ("older", RECORD, with_dist(RECORD, dist("numpy", "1.26.4")), "numpy", "version", "installed", "numpy==2.1.0"),
    ("older-pre-release", RECORD, with_dist(RECORD, dist("numpy", "2.1.0rc1")), "numpy", "version", "installed", "numpy==2.1.0"),
    ("newer", RECORD, with_dist(RECORD, dist("numpy", "2.2.0")), "numpy", "version", "told", ""),
    ("no-number", with_dist(RECORD, dist("tool", "2004d")), with_dist(RECORD, dist("tool", "2004c")), "tool", "version", "installed", "tool==2004d"),
    ("editable", with_dist(RECORD, dist("mine", "0.1", origin="editable", url="file:///home/user/mine")), RECORD, "mine", "editable", "told", ""),
    ("folder", with_dist(RECORD, dist("mine", "0.1", origin="folder", url="file:///home/user/mine")), RECORD, "mine", "folder", "refused", "pip install -e /home/user/mine"),
    ("folder-other-version", with_dist(RECORD, dist("mine", "0.2", origin="folder", url="file:///home/user/mine")), with_dist(RECORD, dist("mine", "0.1")), "mine", "folder", "refused", "pip install -e /home/user/mine"),
    ("git", with_dist(RECORD, dist("metrics", "0.3", **GIT)), RECORD, "metrics", "missing", "installed", f"metrics @ git+https://git.example.com/team/metrics.git@{COMMIT}"),
    ("git-other-commit", with_dist(RECORD, dist("metrics", "0.3", **GIT)), with_dist(RECORD, dist("metrics", "0.3", **{**GIT, "commit": "f" * 40})), "metrics", "origin", "installed", f"@{COMMIT}"),
    ("git-instead-of-index", with_dist(RECORD, dist("metrics", "0.3")), with_dist(RECORD, dist("metrics", "0.3", **GIT)), "metrics", "origin", "installed", "metrics==0.3"),
    ("archive", with_dist(RECORD, dist("thing", "1.0", origin="archive", url="https://files.example.com/thing-1.0.zip", hashes=("sha256:" + "a" * 64,))), RECORD, "thing", "missing", "installed", "thing @ https://files.example.com/thing-1.0.zip --hash=sha256:aaaa"),
    ("own-build", with_dist(RECORD, dist("torch", "2.9.1a0+gitdeadbee")), RECORD, "torch", "own_build", "refused", "pip install torch==2.9.1a0"),
    ("own-build-of-others", with_dist(RECORD, dist("numpy", "2.1.0+mine")), RECORD, "numpy", "own_build", "refused", "pip install numpy==2.1.0"),
    ("conda-package", with_dist(RECORD, dist("scipy", "1.15.0", origin="conda")), RECORD, "scipy", "missing", "installed", "scipy==1.15.0"),
    ("of-another-platform", with_dist(RECORD, dist("appnope", "0.1.4", marker='sys_platform == "darwin"')), RECORD, "appnope", "platform_only", "told", ""),
    ("for-the-other-platform", with_dist(replace(RECORD, system="darwin", machine="arm64"), dist("uvloop", "0.22.0", marker='sys_platform == "linux"', installed=False)), RECORD, "uvloop", "missing", "installed", "uvloop==0.22.0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("local", "image", "name", "kind", "outcome", "text"),
    [pytest.param(*row[1:], id=row[0]) for row in MUTANTS],
)
def test_every_difference_is_found_by_name(
    local: PythonEnvironment,
    image: PythonEnvironment,
    name: str,
    kind: str,
    outcome: str,
    text: str,
):
    if outcome == "refused":
        with pytest.raises(InputError) as refused:
            match(local, catalogue_of(image))
        (problem,) = [each for each in refused.value.problems if each.field == name]
        assert problem.hint == text
        assert problem.message.startswith(str(problem.value))
        assert "image has" in problem.message
        return
    found = match(local, catalogue_of(image))
    assert outcomes(found)[name] == (kind, outcome)
    assert all(each.local != each.target for each in found.differences)
    kinds = {"told": "image", "installed": "on_top", "rebuilt": "own"}
    assert found.kind == kinds[outcome]
    assert any(text in line for line in found.requirements) or not text


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(with_dist(RECORD, dist("jupyter", "1.0")), id="extra"),
        pytest.param(with_dist(RECORD, dist("transformers", "4.57.0")), id="extra-framework"),
        pytest.param(with_dist(RECORD, dist("pip", "25.3"), dist("uv", "0.9.0")), id="tools"),
    ],
)
def test_what_only_the_image_has_does_not_matter(image: PythonEnvironment):
    assert match(RECORD, catalogue_of(image)).differences == []


def test_installers_and_this_package_are_no_part_of_the_script():
    local = with_dist(
        RECORD,
        dist("pip", "25.3"),
        dist("airflow-training", "0.2", origin="folder", url="file:///x"),
    )
    assert match(local, catalogue_of(RECORD)).kind == "image"


def test_what_the_script_does_without_can_be_left_out():
    local = with_dist(RECORD, dist("mine", "0.1", origin="folder", url="file:///home/user/mine"))
    assert match(local, catalogue_of(RECORD), leave_out={"mine"}).kind == "image"


def test_all_refusals_come_at_once():
    local = with_dist(RECORD, dist("mine", "0.1", origin="folder", url="file:///home/user/mine"))
    with pytest.raises(InputError) as refused:
        match(local, catalogue_of(replace(RECORD, python="3.12.1")))
    assert [each.field for each in refused.value.problems] == ["python", "mine"]


def test_the_image_that_satisfies_wins_over_those_that_need_something():
    worse, better = without(RECORD, "tqdm"), CUDA
    found = match(RECORD, catalogue_of(worse, replace(RECORD, python="3.13.0"), better))
    assert (found.image.name, found.kind) == ("third", "image")


def test_an_environment_of_the_cache_wins_over_one_to_build():
    catalogue = catalogue_of(without(RECORD, "tqdm"), without(RECORD, "click", "tqdm"))
    (second,) = catalogue.images[1:]
    there = match(RECORD, replace(catalogue, images=[second])).digest
    found = match(RECORD, catalogue, cached={there})
    assert (found.image.name, found.cached) == ("other", True)
    assert not match(RECORD, catalogue).cached
    assert match(RECORD, catalogue).image.name == "image"


def test_a_target_that_builds_nothing_refuses_what_no_image_has():
    catalogue = catalogue_of(without(RECORD, "tqdm"), builds=False)
    with pytest.raises(InputError, match=r"tqdm: 4\.67\.0 here, image has none"):
        match(RECORD, catalogue)
    digest = match(RECORD, replace(catalogue, builds=True)).digest
    assert match(RECORD, catalogue, cached={digest}).cached


def test_on_top_installs_only_what_the_image_lacks():
    found = match(RECORD, catalogue_of(without(RECORD, "tqdm")))
    assert (found.requirements, found.resolve) == (["tqdm==4.67.0"], False)


def test_an_own_environment_has_all_of_it_and_leaves_the_build_to_the_target():
    found = match(RECORD, catalogue_of(without(CUDA, "torch")))
    assert found.requirements == [
        "click==8.1.7", "numpy==2.1.0", "pillow==11.0.0", "torch==2.9.1", "torchvision==0.24.1", "tqdm==4.67.0",
    ]  # fmt: skip
    assert found.resolve  # another build of torch brings packages of its own


def test_hashes_of_the_lock_are_kept_where_the_same_files_are_installed():
    digest = "sha256:" + "b" * 64
    local = with_dist(
        RECORD,
        dist("tqdm", "4.67.0", hashes=(digest,)),
        dist("torch", "2.9.1+cpu", hashes=(digest,)),
    )
    found = match(local, catalogue_of(without(RECORD, "tqdm", "torch")))
    assert f"tqdm==4.67.0 --hash={digest}" in found.requirements
    assert "torch==2.9.1" in found.requirements


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(replace(RECORD, python="3.11.8"), id="python"),
        pytest.param(replace(RECORD, libc="glibc 2.39"), id="libc"),
        pytest.param(replace(RECORD, platform="linux-aarch64"), id="platform"),
        pytest.param(with_dist(RECORD, dist("numpy", "2.1.1")), id="packages"),
    ],
)
def test_environments_on_different_bases_are_different(image: PythonEnvironment):
    one = match(RECORD, catalogue_of(without(RECORD, "tqdm")))
    other = match(RECORD, catalogue_of(without(image, "tqdm")))
    assert one.digest == match(RECORD, catalogue_of(without(RECORD, "tqdm"))).digest
    assert len({one.digest, other.digest, ""}) == 3


def test_a_target_without_any_python_is_refused():
    with pytest.raises(InputError, match="offers no Python"):
        match(RECORD, catalogue_of())


@pytest.mark.parametrize(
    ("mine", "kind"),
    [
        (dist("mine", "0.1", origin="folder", url="file:///home/user/mine"), "folder"),
        (dist("mine", "0.1+mine"), "own_build"),
    ],
)
def test_what_only_the_image_has_is_not_lost_in_an_environment_of_its_own(
    mine: InstalledDistribution, kind: str
):
    local = with_dist(RECORD, mine)
    image = with_dist(RECORD, dist("mine", mine.version))
    assert match(local, catalogue_of(image)).kind == "image"
    with pytest.raises(InputError) as refused:  # another torch: without the packages of the image
        match(local, catalogue_of(without(image, "torch")))
    assert [each.field for each in refused.value.problems] == ["mine"], kind


def test_an_environment_of_its_own_has_no_newer_packages_of_the_image():
    image = with_dist(without(RECORD, "torch"), dist("numpy", "2.2.0"))
    found = match(RECORD, catalogue_of(image))
    assert "numpy==2.1.0" in found.requirements
    assert outcomes(found)["numpy"] == ("version", "rebuilt")


def test_a_distribution_is_left_out_however_its_name_is_spelled():
    local = with_dist(RECORD, dist("my-own", "0.1", origin="folder", url="file:///home/user/my"))
    assert match(local, catalogue_of(RECORD), leave_out={"My_Own"}).kind == "image"


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("file:///home/user/my%20code", "pip install -e '/home/user/my code'"),
        ("https://hg.example.com/mine", "pip install --force-reinstall mine==0.1"),
        ("file:///tmp/mine-0.1-py3-none-any.whl", "pip install --force-reinstall mine==0.1"),
    ],
)
def test_what_mends_a_folder_can_be_typed(url: str, fix: str):
    local = with_dist(RECORD, dist("mine", "0.1", origin="folder", url=url))
    with pytest.raises(InputError) as refused:
        match(local, catalogue_of(RECORD))
    assert [each.hint for each in refused.value.problems] == [fix]
