"""Secrets are refused by file and line, without being shown; ordinary projects are left in peace."""

from __future__ import annotations

import json

import pytest

from airflow_training.capture.secrets import find_secrets, secret_problems
from tests.capture.clean_projects import CLEAN
from tests.capture.planted import HF, PLANTED, made


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
