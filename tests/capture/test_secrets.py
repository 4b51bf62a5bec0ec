"""Secrets are refused by file and line, without being shown; ordinary projects are left in peace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_training.capture.secrets import find_secrets, secret_problems
from tests.capture.clean_projects import CLEAN
from tests.capture.planted import HF, PLANTED, WANDB, made


def test_sixty_secrets_stand_in_twelve_kinds_of_places():
    assert len(PLANTED) >= 60
    assert len({each.place for each in PLANTED}) >= 12


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: f"{each.place}-{each.path}")
def test_a_planted_secret_is_refused_by_file_and_line(planted):
    problems = secret_problems(find_secrets(planted.path, planted.text.encode()))
    assert f"{planted.path}:{planted.line}" in [each.field for each in problems]
    told = json.dumps([str(each) for each in problems])
    assert len(planted.secret) < 12 or planted.secret not in told
    assert all("--allow-secret" in each.hint and "cluster secret" in each.hint for each in problems)


@pytest.mark.parametrize("name", sorted(CLEAN))
def test_a_clean_project_is_not_refused(name):
    found = [
        secret
        for path, text in CLEAN[name].items()
        for secret in find_secrets(path, text if isinstance(text, bytes) else text.encode())
    ]
    assert found == []


def test_there_are_twenty_clean_projects():
    assert len(CLEAN) >= 20


def test_a_line_can_say_that_it_holds_no_secret():
    text = f'a = "{HF}"  # training: allow-secret, of a test\nb = "{HF}"\n'
    assert [each.line for each in find_secrets("a.py", text.encode())] == [2]


@pytest.mark.parametrize("allowed", ["a.py", "a.py:1"])
def test_the_command_line_can_say_so_too(allowed):
    found = find_secrets("a.py", f'a = "{HF}"\n'.encode())
    assert len(secret_problems(found)) == 1
    assert secret_problems(found, allowed=[allowed]) == []
    assert len(secret_problems(found, allowed=["a.py:2", "b.py"])) == 1


@pytest.mark.parametrize(
    "text",
    [
        f'wandb.login(key="{WANDB}")\n',
        f'wandb.login(\n    relogin=True,\n    key="{WANDB}",\n)\n',
        f"!wandb login {WANDB}\n",
        json.dumps({"cells": [{"source": [f'wandb.login(key="{WANDB}")']}]}),
    ],
)
def test_a_key_that_is_given_to_a_login_is_found(text):
    assert [each.what for each in find_secrets("a.ipynb", text.encode())] == [
        "a key of Weights & Biases"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "join(pwd, './data/philox-testset-1.csv')",
        'PLACES = ["Resources/Db::Instance/MasterUserPassword", "Resources/Iam::V1/Password"]',
        "machine api.wandb.ai login user password $WANDB_API_KEY",
        "machine example-host.org login user password {token}",
    ],
)
def test_what_only_reads_like_a_password_is_none(text):
    assert find_secrets("a.py", text.encode()) == []


def test_lines_are_counted_over_many_that_are_none():
    text = "\n".join(f'  "token": "abcdefgh{n}",' for n in range(50)) + f'\n\n"hub": "{HF}"\n'
    assert [each.line for each in find_secrets("a.json", text.encode())] == [52]


def test_this_repository_holds_none():
    """A test that plants one makes it of parts: a capture of this repository is not refused."""
    top = Path(__file__).parents[2]
    texts = [
        path
        for folder in ("airflow_training", "benchmarks", "docs", "tests")
        for suffix in ("py", "md", "yaml", "toml", "sh")
        for path in (top / folder).rglob(f"*.{suffix}")
        if "node_modules" not in path.parts
    ]
    assert len(texts) > 100
    found = [
        each
        for path in texts
        for each in find_secrets(path.relative_to(top).as_posix(), path.read_bytes())
    ]
    assert [f"{each.path}:{each.line}: {each.what}" for each in found] == []


_VALUE = made(32, seed="ways")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("conf.py", f'class Conf:\n    api_key: str = "{_VALUE}"\n'),
        ("conf.py", f'class Conf:\n    api_key: str | None = "{_VALUE}"\n'),
        ("train.py", f'#\nparser.add_argument("--api-key", type=str, default="{_VALUE}")\n'),
        ("train.py", f'#\nkey = os.environ.get("WANDB_API_KEY") or "{WANDB}"\n'),
        ("train.py", f'#\nWANDB_KEY = "{WANDB}"\n'),
        ("train.yaml", f"#\nwandb_key: {WANDB}\n"),
        ("train.py", f'#\nrequests.get("https://example-host.org/x?a=1&api_key={_VALUE}&b=2")\n'),
        ("train.py", f'#\nAPI_KEY = """{_VALUE}"""\n'),
        ("train.py", f"#\nAPI_KEY = (\n    '{_VALUE}'\n)\n"),
        ("a.ipynb", f'{{"outputs":\n[{{"text": ["API_KEY={_VALUE}\\n"]}}]}}'),
    ],
)
def test_a_secret_is_found_however_it_is_written(path, text):
    assert [each.line for each in find_secrets(path, text.encode())] == [2]


@pytest.mark.parametrize("path", [".envrc", ".databrickscfg", "x/huggingface/stored_tokens"])
def test_more_files_that_hold_nothing_else(path):
    assert [each.line for each in find_secrets(path, b"x")] == [1]


def test_a_line_is_told_once():
    assert len(find_secrets("a.py", f'token = "{HF}", "{HF}"\n'.encode())) == 1


def test_text_of_windows_is_read_too():
    content = f'lr = 1\r\nhf_token = "{HF}"\r\n'
    assert [s.line for s in find_secrets("a.ps1", content.encode("utf-16"))] == [2]


def test_a_secret_in_a_binary_file_is_found():
    content = b"\0\1\2" * 100 + b"\n" + HF.encode() + b"\0"
    assert [each.what for each in find_secrets("lib.so", content)] == ["a Hugging Face token"]


def test_a_line_of_a_megabyte_is_no_matter():
    content = f'"{made(64) * (1 << 14)}", api_key="{made(32)}"'.encode()
    assert len(find_secrets("a.py", content)) == 1
