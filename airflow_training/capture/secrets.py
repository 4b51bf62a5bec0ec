"""Secrets in what would travel: by the name of a file, by well-known formats, by random values of telling names. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from airflow_training.capture.secret_patterns import (
    ASSIGNMENT,
    EXPORTED,
    FORMATS,
    QUOTED,
    UNQUOTED,
    URL,
)
from airflow_training.capture.secret_values import is_example, is_placeholder, looks_secret
from airflow_training.errors import Problem

__all__ = ["ALLOWED_BY", "Secret", "find_secrets", "secret_file", "secret_problems", "secret_text"]

ALLOWED_BY = "training: allow-secret"
"""In a comment of the line: what stands there is no secret."""

_WINDOW = 600
"""Characters after the beginning of a match that are looked at: lines of notebooks have megabytes."""
_UNQUOTED_SUFFIXES = (
    "env ini cfg conf properties yaml yml sh bash zsh fish ps1 bat cmd md rst txt dockerfile netrc tf tfvars"
    " make mk npmrc pypirc"
)
_UNQUOTED = frozenset(_UNQUOTED_SUFFIXES.split())
"""Kinds of files in which a value needs no quotes."""
_QUOTES = (b"'", b'"')
_LOCAL_HOST = re.compile(r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|[a-z0-9_-]+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Where a secret stands. What it is, never its value."""

    path: str
    line: int
    what: str


def secret_file(path: str) -> str:
    """What a file is by its name that holds secrets and nothing else, or empty."""
    folder, _, name = path.lower().rpartition("/")
    parent = folder.rpartition("/")[2]
    if name == ".env" or (name.startswith(".env.") and not name.endswith(_TEMPLATES)):
        return "a file of environment variables"
    if name in _FILES:
        return _FILES[name]
    if f"{parent}/{name}" in _FILES:
        return _FILES[f"{parent}/{name}"]
    suffix = name.rpartition(".")[2] if "." in name else ""
    return _SUFFIXES.get(suffix, "")


_TEMPLATES = (".example", ".sample", ".template", ".dist", ".defaults", ".test", ".schema", ".md")
_FILES = {
    ".netrc": "a file of passwords",
    "_netrc": "a file of passwords",
    ".git-credentials": "git's passwords",
    ".pgpass": "PostgreSQL's passwords",
    ".my.cnf": "MySQL's passwords",
    ".pypirc": "the passwords of package registries",
    ".htpasswd": "a file of passwords",
    ".dockercfg": "the passwords of image registries",
    ".docker/config.json": "the passwords of image registries",
    ".aws/credentials": "keys of AWS",
    ".boto": "keys of a cloud",
    ".s3cfg": "keys of a cloud",
    "rclone.conf": "keys of clouds",
    ".kube/config": "keys of clusters",
    "kubeconfig": "keys of clusters",
    "kubeconfig.yaml": "keys of clusters",
    "kubeconfig.yml": "keys of clusters",
    ".databrickscfg": "the tokens of Databricks",
    ".envrc": "a file of environment variables",
    ".huggingface/stored_tokens": "the tokens of Hugging Face",
    "huggingface/stored_tokens": "the tokens of Hugging Face",
    "terraform.tfstate": "the state of Terraform, with its secrets",
    "kaggle.json": "the key of Kaggle",
    "huggingface/token": "the token of Hugging Face",
    ".huggingface/token": "the token of Hugging Face",
    "application_default_credentials.json": "keys of Google Cloud",
    ".vault-token": "the token of Vault",
    **{f"id_{kind}": "a private key" for kind in ("rsa", "dsa", "ecdsa", "ed25519", "ecdsa_sk")},
}
_SUFFIXES = {
    "ppk": "a private key",
    "p12": "a store of private keys",
    "pfx": "a store of private keys",
    "jks": "a store of private keys",
    "keystore": "a store of private keys",
    "kdbx": "a store of passwords",
    "kubeconfig": "keys of clusters",
}


def find_secrets(path: str, content: bytes) -> Sequence[Secret]:
    """Look through a file as it would travel, one answer for each line."""
    what = secret_file(path)
    if what:
        return [Secret(path=path, line=1, what=what)]
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        content = content.decode("utf-16", "replace").encode()
    suffix = _language(path)
    kind = "binary" if b"\0" in content[:8192] else "text" if suffix in _UNQUOTED else "code"
    found: list[Secret] = []
    is_allowed = False
    line, begin, end = 1, 0, -1  # of the line that is looked at, which can have megabytes
    for match in _scanner(kind).finditer(content):
        start = match.start()
        if end < start:
            line += content.count(b"\n", begin, start)
            begin = content.rfind(b"\n", begin, start) + 1 or begin
            end = content.find(b"\n", start)
            end = len(content) if end < 0 else end
            is_allowed = ALLOWED_BY.encode() in content[begin:end]
        if is_allowed or (found and found[-1].line == line):
            continue
        what = _judge(content, start, suffix)
        if what:
            found.append(Secret(path=path, line=line, what=what))
    return found


def secret_text(value: str) -> str:
    """What secret a text without a name holds, as an argument or a variable's value, or empty."""
    found = find_secrets("", value.encode("utf-8", "surrogateescape"))
    return found[0].what if found else ""


def secret_problems(secrets: Sequence[Secret], *, allowed: Collection[str] = ()) -> list[Problem]:
    """Refusals of what was found, but for what is `allowed` as FILE or FILE:LINE."""
    return [
        Problem(
            code="secret",
            field=f"{each.path}:{each.line}",
            message=f"{each.what} would travel",
            hint=(
                "keep it in a cluster secret or an Airflow connection, and leave the file out by .trainingignore;"
                f" if it is no secret: --allow-secret {each.path}:{each.line}"
            ),
        )
        for each in secrets
        if each.path not in allowed and f"{each.path}:{each.line}" not in allowed
    ]


def _language(path: str) -> str:
    """The suffix that tells how values are written; of `Dockerfile.gpu` and `.env.example` the beginning does."""
    name = path.lower().rpartition("/")[2]
    for begin, kind in ((".env", "env"), ("dockerfile", "dockerfile"), ("makefile", "mk")):
        if name.startswith(begin):
            return kind
    return name.rpartition(".")[2]


@cache
def _scanner(kind: str) -> Any:
    """All that is worth a look, as one automaton: a pass over ten megabytes takes a fraction of a second."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 << 20
    formats = [expression for _, expression in FORMATS]
    value = QUOTED if kind == "code" else f"(?:{QUOTED}|{UNQUOTED})"
    # on a command line or in an address, in whatever file
    option = f"(?i)(?:--|[?&]){ASSIGNMENT[4:]}{UNQUOTED}"
    parts = [*formats, URL, EXPORTED, ASSIGNMENT + value, option]
    if kind == "binary":
        parts = formats
    return re2.compile("|".join(f"(?:{part})" for part in parts).encode(), options)


@cache
def _formats() -> re.Pattern[str]:
    return re.compile("|".join(f"({expression})" for _, expression in FORMATS))


_URL = re.compile(URL)
_ASSIGNED = re.compile(
    ASSIGNMENT.replace(r"[\w.-]*(?:", r"(?P<name>[\w.-]*(?:", 1).replace(
        r"authorization)", r"authorization))", 1
    )
    + r"(?P<value>[rbf]?(?:\"{3}[^\"\\\n]*|'{3}[^'\\\n]*)|[rbf]?\\?\"[^\"\\\n]*|[rbf]?\\?'[^'\\\n]*|(?:bearer |basic |token )?[^\s,;\"'\\]+)"
)


def _named(match: re.Match[str]) -> str:
    return FORMATS[(match.lastindex or 1) - 1][0]


def _judge(content: bytes, start: int, suffix: str) -> str:
    text = content[start : start + _WINDOW].decode("utf-8", "replace")
    match = _formats().match(text)
    if match is not None and not is_example(match.group()):
        return _named(match)
    if (match := _URL.match(text)) is not None:
        return "a password in an address" if _is_secret_address(match.group()) else ""
    in_address = text[:1] in ("?", "&")
    text = text[in_address:]
    match = _ASSIGNED.match(text)
    if match is None:
        return ""
    exported = re.match(EXPORTED, text) is not None
    value = match["value"]
    bare = re.sub(r"^[rbf]?\\?(?:\"{3}|'{3}|[\"'])", "", value)
    if in_address:
        bare = bare.partition("&")[0]
    inner = _formats().search(value) or _formats().match(text, match.end("value") - len(bare))
    if inner is not None and not is_example(inner.group()):
        return _named(inner)
    if (address := _URL.search(value)) is not None and _is_secret_address(address.group()):
        return "a password in an address"
    name = match["name"]
    separated = match.group()[len(name) : match.start("value") - match.start()]
    quoted = bare != value
    if not separated.strip() and not name.startswith("-") and not (quoted and suffix == "sql"):
        return ""  # `key value` is an assignment on a command line only: --key value
    free = in_address or exported or name.startswith("--")
    if not quoted and suffix not in _UNQUOTED and not free:
        return ""
    if "," in separated and (
        suffix not in ("py", "ipynb", "js", "ts")
        or content[max(start - 1, 0) : start] not in _QUOTES
    ):
        return ""  # `"name", value` of a call: neither `name, value` nor what ends a path
    bare = re.sub(r"(?i)^(?:bearer|basic|token) ", "", bare)
    return f"a random value of {name.strip('-.')}" if looks_secret(name, bare) else ""


def _is_secret_address(address: str) -> bool:
    user, _, rest = address.partition("://")[2].partition(":")
    password, _, host = rest.rpartition("@")
    if is_placeholder(password) or is_placeholder(host) or password == user:
        return False
    if _LOCAL_HOST.fullmatch(host):  # of a container beside the script, as in every tutorial
        return looks_secret("password", password)
    return True
