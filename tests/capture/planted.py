"""Secrets planted in twelve kinds of places. None is real: each is made here, of parts, so that no scanner finds one."""

from __future__ import annotations

import base64
import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["PLANTED", "Planted", "made"]


def made(length: int, alphabet: str = string.ascii_letters + string.digits, seed: str = "") -> str:
    """Random-looking characters, the same in each run."""
    text, number = "", 0
    while len(text) < length:
        digest = hashlib.sha256(f"{seed}/{number}/{length}".encode()).digest()
        text += "".join(alphabet[byte % len(alphabet)] for byte in digest)
        number += 1
    return text[:length]


_PASS = "pass" + "word"
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + "234567"
_BODY = "\n".join(made(64, seed=f"pem{n}") for n in range(4))
_PRIVATE = "-----BEGIN " + "RSA PRIVATE" + f" KEY-----\n{_BODY}\n-----END RSA PRIVATE KEY-----\n"
_OPENSSH = "-----BEGIN " + f"OPENSSH PRIVATE KEY-----\n{_BODY}\n-----END OPENSSH PRIVATE KEY-----\n"
AWS = "AK" + "IA" + made(16, _UPPER, "aws")
AWS_SECRET = made(40, seed="aws-secret")
GITHUB = "gh" + "p_" + made(36, seed="github")
HF = "h" + "f_" + made(34, string.ascii_letters, "hf")
OPENAI = "s" + "k-proj-" + made(48, seed="openai")
SLACK = "xo" + "xb-" + made(12, string.digits, "s") + "-" + made(24, seed="slack")
GOOGLE = "AI" + "za" + made(35, seed="google")
STRIPE = "sk" + "_live_" + made(24, seed="stripe")
WANDB = made(40, _HEX, "wandb")
JWT = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (b'{"alg":"HS256","typ":"JWT"}', b'{"user":"somebody","id":81}', made(32).encode())
)
PASSWORD = "Tr0ub4dor&3" + made(4, seed="p")  # training: allow-secret
URL = f"https://deploy:{made(18, seed='url')}@git.company.com/team/lib.git"
SERVICE_ACCOUNT = json.dumps(
    {
        "type": "service_account",
        "private_key_id": made(40, _HEX),
        "private_key": _PRIVATE.replace("RSA ", ""),
    },
    indent=2,
)
KUBECONFIG = (
    "apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user:\n    client-key-data: "
    + base64.b64encode(_PRIVATE.encode()).decode()
    + "\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    place: str
    path: str
    text: str
    line: int
    secret: str


def _at(place: str, path: str, text: str, secret: str) -> Planted:
    position = text.find(secret.split("\n")[0])
    line = text.count("\n", 0, max(position, 0)) + 1
    return Planted(place=place, path=path, text=text, line=line, secret=secret.split("\n")[0])


def _file(place: str, path: str, text: str, secret: str) -> Planted:
    """A file that is refused by its name, whatever stands in it."""
    return Planted(place=place, path=path, text=text, line=1, secret=secret)


def _notebook(source: Sequence[str], output: str = "") -> str:
    cell = {
        "cell_type": "code",
        "metadata": {},
        "execution_count": 1,
        "source": list(source),
        "outputs": [{"output_type": "stream", "name": "stdout", "text": [output]}],
    }
    return json.dumps(
        {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1
    )


def _python() -> Mapping[str, tuple[str, str]]:
    return {
        "aws": (f'import boto3\nKEY = "{AWS}"\n', AWS),
        "aws_secret": (f'aws_secret_access_key = "{AWS_SECRET}"\n', AWS_SECRET),
        "github": (f"# clone with {GITHUB}\n", GITHUB),
        "hf": (f'from huggingface_hub import login\nlogin("{HF}")\n', HF),
        "openai": (f"client = OpenAI(api_key='{OPENAI}')\n", OPENAI),
        "wandb": (f'import os\n\nos.environ["WANDB_API_KEY"] = "{WANDB}"\n', WANDB),
        "default": (f'os.environ.setdefault("COMET_API_KEY", "{made(25)}")\n', made(25)),
        "password": (f'conn = connect(user="me", password="{PASSWORD}")\n', PASSWORD),
        "url": (
            f'engine = create_engine("postgresql://me:{PASSWORD[:11]}@db.company.com/x")\n',
            PASSWORD[:11],
        ),
        "jwt": (f'headers = {{"Authorization": "Bearer {JWT}"}}\n', JWT),
        "bearer": (f'headers = {{"Authorization": "Bearer {made(40)}"}}\n', made(40)),
        "dict": (f'config = {{"lr": 0.1, "client_secret": "{made(32)}"}}\n', made(32)),
        "pem": (f'KEY = """{_PRIVATE}"""\n', "-----BEGIN"),
        "docstring": (f'"""Run with SLACK_TOKEN={SLACK}."""\n', SLACK),
        "bytes": (f'secret_key = b"{made(32, _HEX)}"\n', made(32, _HEX)),
        "camel": (f'const_ = {{"clientSecret": "{made(30)}"}}\n', made(30)),
    }


PLANTED: Sequence[Planted] = (
    *(_at("python", f"src/{name}.py", text, secret) for name, (text, secret) in _python().items()),
    _file("file of variables", ".env", f"LR=0.1\nHF_TOKEN={HF}\n", HF),
    _file("file of variables", "conf/.env.local", f"DB_PASSWORD={PASSWORD}\n", PASSWORD),
    _at("file of variables", "train.env", f"LR=0.1\nHF_TOKEN={HF}\n", HF),
    _at("file of variables", "prod.env", f"EPOCHS=3\nDB_PASSWORD={PASSWORD}\n", PASSWORD),
    _at("file of variables", ".env.example", f"A=1\nWANDB_API_KEY={WANDB}\n", WANDB),
    _at("yaml", "conf/a.yaml", f"lr: 0.1\nwandb:\n  api_key: {WANDB}\n", WANDB),
    _at("yaml", "conf/b.yml", f"db:\n  password: '{PASSWORD}'\n", PASSWORD),
    _at("yaml", "conf/c.yaml", f"storage:\n  access_key: {AWS}\n  x: 1\n", AWS),
    _at("yaml", "docker-compose.yml", f"environment:\n  - OPENAI_API_KEY={OPENAI}\n", OPENAI),
    _at("yaml", "conf/d.yaml", f"token: {GITHUB}\n", GITHUB),
    _at("yaml", "conf/e.yaml", f"fernet_key: {made(43)}=\n", made(43)),
    _at("json", "conf/a.json", f'{{\n  "lr": 1,\n  "apiKey": "{made(32)}"\n}}\n', made(32)),
    _at("json", "conf/sa.json", SERVICE_ACCOUNT, '"private_key": '),
    _at("json", "conf/b.json", f'{{"token": "{SLACK}"}}', SLACK),
    _at("json", "conf/c.json", f'{{"a": 1,\n"password": "{PASSWORD}"}}', PASSWORD),
    _at("toml or ini", "conf/a.toml", f'[wandb]\napi_key = "{WANDB}"\n', WANDB),
    _at("toml or ini", "conf/b.ini", f"[db]\npassword = {PASSWORD}\n", PASSWORD),
    _at("toml or ini", "setup.cfg", f"[x]\nurl = {URL}\n", URL),
    _at("toml or ini", ".streamlit/secrets.toml", f'key = 1\nopenai_key = "{OPENAI}"\n', OPENAI),
    _at(
        "toml or ini",
        "alembic.ini",
        f"[a]\nsqlalchemy.url = mysql://u:{PASSWORD[:10]}@db.x.org/a\n",
        "mysql",
    ),
    _at("notebook", "a.ipynb", _notebook([f"api_key = '{made(40)}'\n"]), made(40)),
    _at("notebook", "b.ipynb", _notebook([f'login("{HF}")\n', "x = 1\n"]), HF),
    _at("notebook", "c.ipynb", _notebook(["print(1)\n"], f"token is {GITHUB}\n"), GITHUB),
    _at("notebook", "d.ipynb", _notebook([f'os.environ["X_SECRET"] = "{made(32)}"\n']), made(32)),
    _at("shell", "run.sh", f"#!/bin/sh\nexport AWS_SECRET_ACCESS_KEY={AWS_SECRET}\n", AWS_SECRET),
    _at("shell", "a.sh", f"python train.py --api-key {made(32)}\n", made(32)),
    _at("shell", "b.sh", f'curl -H "Authorization: token {made(40)}" x\n', made(40)),
    _at("shell", "c.sh", f"set -e\ngit clone {URL}\n", URL),
    _at("shell", "Makefile", f"push:\n\tDOCKER_PASSWORD='{PASSWORD}' docker push x\n", PASSWORD),
    _at("image", "Dockerfile", f"FROM python\nENV HF_TOKEN={HF}\n", HF),
    _at("image", "docker/Dockerfile", f"FROM x\nARG PIP_URL={URL}\n", URL),
    _at("image", "Dockerfile.gpu", f'ENV NEPTUNE_API_TOKEN="{made(60)}"\n', made(60)),
    _at("requirements", "requirements.txt", f"torch\ngit+{URL}#egg=lib\n", URL),
    _at(
        "requirements", ".npmrc", f"//registry.example-host.org/:_authToken={made(36)}\n", made(36)
    ),
    _at("requirements", "pip.conf", f"[global]\nindex-url = {URL}\n", URL),
    _file("credentials", ".netrc", f"machine a login b {_PASS} {PASSWORD}\n", PASSWORD),
    _file("credentials", "home/.aws/credentials", f"[default]\nkey = {AWS}\n", AWS),
    _file("credentials", "kubeconfig", KUBECONFIG, "client-key"),
    _at("credentials", "cluster.yaml", KUBECONFIG, "client-key"),
    _file("credentials", ".pypirc", f"[pypi]\npassword = {PASSWORD}\n", PASSWORD),
    _file("credentials", ".kaggle/kaggle.json", f'{{"key":"{made(32, _HEX)}"}}', made(32, _HEX)),
    _file("credentials", ".git-credentials", URL, URL),
    _file("key files", "keys/id_ed25519", _OPENSSH, "OPENSSH"),
    _at("key files", "keys/server.pem", f"subject=x\n{_PRIVATE}", "-----BEGIN"),
    _at("key files", "keys/tls.key", _PRIVATE, "-----BEGIN"),
    _file("key files", "keys/store.p12", "x", "store"),
    _at("text", "README.md", f"# Use\n\nexport OPENAI_API_KEY={OPENAI}\n", OPENAI),
    _at("text", "notes.txt", f"login: me\npassword: {PASSWORD}\n", PASSWORD),
    _at(
        "text",
        "docs/a.rst",
        f"a\nb\nhooks at https://hooks.slack.com/services/T0/{made(30)}\n",
        "https",
    ),
    _at("text", "TODO", f"stripe {STRIPE}\n", STRIPE),
    _at(
        "other code",
        "deploy.tf",
        f'provider "x" {{\n  secret_key = "{AWS_SECRET}"\n}}\n',
        AWS_SECRET,
    ),
    _at("other code", "app.js", f"const k = '{GOOGLE}';\n", GOOGLE),
    _at("other code", "Main.java", f'String password = "{PASSWORD}";\n', PASSWORD),
    _at("other code", "x.sql", f"-- a\nCREATE USER a PASSWORD '{PASSWORD}';\n", PASSWORD),
)
