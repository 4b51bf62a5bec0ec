"""Contents that a service keeps: whose they are is proved by the bytes that came, and by nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from airflow_training.cloud.packing import PackHeader, header_line
from airflow_training.cloud.service.content import ContentFolder, PackWriter
from airflow_training.errors import InputError

SECRET = b"what only one of them has"
DIGEST = hashlib.sha256(SECRET).hexdigest()


def send(content: ContentFolder, account: str, *parts: tuple[PackHeader, bytes]) -> None:
    """Send a pack as an account, whose submission is made of the content."""
    writer = PackWriter(
        content, account=account, submission=account, wanted=lambda: {DIGEST: len(SECRET)}
    )
    for header, data in parts:
        writer.write(header_line(header) + data)
    writer.close()


def header(size: int, offset: int = 0) -> PackHeader:
    return PackHeader(sha256=DIGEST, size=size, offset=offset)


@pytest.fixture
def content(tmp_path: Path) -> ContentFolder:
    found = ContentFolder(tmp_path)
    send(found, "owner", (header(len(SECRET)), SECRET))
    return found


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([(header(0), b"")], id="nothing"),
        pytest.param([(header(len(SECRET), len(SECRET)), b"")], id="all-has-come"),
        pytest.param([(header(len(SECRET), len(SECRET) - 1), SECRET[-1:])], id="the-end-alone"),
        pytest.param([(header(len(SECRET)), SECRET[::-1])], id="other-bytes"),
        pytest.param([(header(len(SECRET) - 1), SECRET[:-1])], id="a-part-as-all"),
        pytest.param([(header(len(SECRET)), SECRET[:-1])], id="a-part"),
    ],
)
def test_who_does_not_send_all_of_a_content_has_not_sent_it(parts, content):
    with pytest.raises(InputError):
        send(content, "stranger", *parts)
    assert content.holds("owner", DIGEST)
    assert not content.holds("stranger", DIGEST)
    assert content.account_bytes("stranger") == 0
    assert content.path(DIGEST).read_bytes() == SECRET


def test_who_sends_all_of_it_has_sent_it_too(content):
    send(content, "another", (header(len(SECRET)), SECRET))
    assert [content.holds(each, DIGEST) for each in ("owner", "another", "")] == [True, True, False]


def test_where_a_content_cannot_be_kept_nothing_of_it_stays(tmp_path):
    content = ContentFolder(tmp_path)
    (tmp_path / "whole").write_text("no folder")
    for _ in range(2):
        with pytest.raises(OSError, match="whole"):
            send(content, "owner", (header(len(SECRET)), SECRET))
    assert [*content.parts("owner").iterdir()] == []
    assert not content.holds("owner", DIGEST)
