"""Twenty small projects after public ones, full of what looks random and is no secret."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping

from tests.capture.planted import made

__all__ = ["CLEAN"]

_SHA = hashlib.sha256(b"x").hexdigest()
_MD5 = hashlib.md5(b"x").hexdigest()
_UUID = str(uuid.UUID(bytes=hashlib.md5(b"y").digest()))
_PICTURE = base64.b64encode(hashlib.sha512(b"p").digest() * 200).decode()

CLEAN: Mapping[str, Mapping[str, str | bytes]] = {
    "torchvision-script": {
        "train.py": "import torch, torchvision\nmodel_urls = {\n"
        f'    "resnet18": "https://download.example.org/models/resnet18-{_SHA[:8]}.pth",\n}}\n'
        "torch.manual_seed(0)\nkey = torch.rand(3)\n",
    },
    "checksums": {
        "download.py": f'MD5 = "{_MD5}"\nSHA = {{"train.tar": "{_SHA}"}}\n'
        f'files = [("cifar-10-python.tar.gz", "{_MD5}")]\ncache_key = "{_SHA}"\n',
        "sums.txt": f"{_SHA}  a.tar\n{_MD5}  b.tar\n",
    },
    "lock-files": {
        "uv.lock": f'version = 1\n[[package]]\nname = "torch"\nsdist = {{ hash = "sha256:{_SHA}", size = 1 }}\n',
        "poetry.lock": f'[metadata]\ncontent-hash = "{_SHA}"\nfiles = [\n {{file = "a.whl", hash = "sha256:{_SHA}"}},\n]\n',
        "package-lock.json": json.dumps(
            {"packages": {"a": {"integrity": "sha512-" + made(86) + "=="}}}, indent=1
        ),
        "yarn.lock": f"a@1:\n  integrity sha512-{made(86)}==\n",
    },
    "requirements-with-hashes": {
        "requirements.txt": f"torch==2.3 \\\n    --hash=sha256:{_SHA} \\\n    --hash=sha256:{_SHA}\n",
    },
    "tokenizer": {
        "tokenizer.json": json.dumps(
            {
                "added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": True}],
                "model": {
                    "vocab": {
                        "token": 1,
                        "secret": 2,
                        "password": 3,
                        "\u0120key": 4,
                        "api_key": 5,
                        **{made(14, seed=str(n)): n for n in range(300)},
                    },
                    "merges": ["\u0120 t", "pass word", "to ken"],
                },
            }
        ),
        "tokenizer_config.json": '{"pad_token": "[PAD]", "eos_token": "<|endoftext|>",\n'
        ' "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}',
        "special_tokens_map.json": '{"unk_token": {"content": "<unk>"}, "cls_token": "[CLS]"}',
        "merges.txt": "pass word\nto ken\nkey s\n",
        "vocab.txt": "password\nsecret\ntoken\nkey=\n",
    },
    "notebook-with-pictures": {
        "plot.ipynb": json.dumps(
            {
                "cells": [
                    {
                        "cell_type": "code",
                        "id": _SHA[:8],
                        "source": ["plt.plot(x)\n", "key = 'loss'\n"],
                        "outputs": [{"data": {"image/png": _PICTURE, "text/plain": "<Figure>"}}],
                    },
                    {
                        "cell_type": "markdown",
                        "source": [f"![a](data:image/png;base64,{_PICTURE})"],
                    },
                ]
            }
        ),
    },
    "html-report": {
        "report.html": f'<img src="data:image/png;base64,{_PICTURE}"><div id="{_UUID}" class="sk-toggleable__label-arrow">',
        "style.css": ".sk-estimator-doc-link.fitted:hover { color: #fff }\n",
    },
    "uuids": {
        "ids.py": f'RUN = "{_UUID}"\nsession_key = "{_UUID}"\n',
        "ids.yaml": f"run: {_UUID}\nkey: {_UUID}\ntoken: {_UUID}\n",
    },
    "hydra": {
        "conf/config.yaml": "defaults:\n  - model: bert\nwandb:\n  api_key: ${oc.env:WANDB_API_KEY}\n"
        "db:\n  password: ${DB_PASSWORD}\n  url: postgresql://${USER}:${PASSWORD}@db.company.com/x\n",
        "conf/model/bert.yaml": "_target_: models.BertModelForKeyValueAttention2D\nkey_dim: 64\nnum_tokens: 512\n",
    },
    "environment-read": {
        "train.py": 'import os\ntoken = os.environ["HF_TOKEN"]\napi_key = os.getenv("OPENAI_API_KEY", "")\n'
        'password = getpass.getpass("Password of the database: ")\nsecret = get_secret_value(name="training/db-1")\n',
        ".env.example": "HF_TOKEN=your-token-here\nWANDB_API_KEY=\nOPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxx\n",
    },
    "placeholders": {
        "README.md": "export HF_TOKEN=hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\nexport AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE\n"
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n"
        "curl -H 'Authorization: Bearer <your token>' x\npassword: changeme123!A\n"
        "git clone https://user:password@github.com/x/y.git\nhttps://username:your_token@example.com\n",
        "docs.md": "token: ghp_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX\n",
    },
    "compose-of-a-tutorial": {
        "docker-compose.yaml": "environment:\n  POSTGRES_USER: airflow\n  POSTGRES_PASSWORD: airflow\n"
        "  AIRFLOW__DATABASE__SQL_ALCHEMY_CONN: postgresql+psycopg2://airflow:airflow@postgres/airflow\n"
        "  AIRFLOW__CORE__FERNET_KEY: ''\n  MYSQL_ROOT_PASSWORD: password\n  REDIS: redis://:redispass@redis:6379/0\n"
        "  URL: mysql://digits:digits@db.company.com/x\n",
    },
    "attention": {
        "attention.py": "class Attention(nn.Module):\n    def forward(self, query, key, value, key_padding_mask=None):\n"
        "        key = self.key_projection(key)\n        scores = query @ key.transpose(-2, -1)\n"
        "        tokens = self.tokenizer(text, return_tensors='pt')\n        token_type_ids=tokens['token_type_ids']\n",
    },
    "jax-keys": {
        "train.py": "key = jax.random.PRNGKey(0)\nrng_key, subkey = jax.random.split(key)\n"
        'params = model.init({"params": key, "dropout": subkey}, x)\nkeys = ["input_ids", "attention_mask_2D_v1"]\n',
    },
    "sort-keys": {
        "util.py": "sorted(x, key=lambda a: a[1])\ngroup_key = 'department_2_regionA_x'\n"
        "primary_key='CustomerAccountId20250101'\nsort_key = \"validation/top5_accuracy@epoch12\"\n",
    },
    "state-dict": {
        "convert.py": 'mapping = {"transformer.h.0.attn.c_attn.weight": "layers.0.attention.query_key_value.weight"}\n'
        'key = "model.layers.11.self_attn.k_proj.weight"\nnew_key = "encoder.layer.0.attention.self.key.bias"\n',
    },
    "public-keys": {
        "deploy.pub": f"ssh-rsa AAAAB3NzaC1yc2E{made(300)} me@host\n",
        "keys/id_rsa.pub": f"ssh-rsa AAAAB3NzaC1yc2E{made(300)} me@host\n",
        "cert.pem": f"-----BEGIN CERTIFICATE-----\n{made(64)}\n{made(64)}\n-----END CERTIFICATE-----\n",
        "crypt.py": 'if data.startswith("-----BEGIN RSA PRIVATE KEY-----"):\n    raise ValueError("a private key")\n',
    },
    "web-app": {
        "app.py": 'app.config["SECRET_KEY"] = os.environ["SECRET_KEY"]\ntoken_url="https://auth.example.com/oauth/token"\n'
        'oauth = OAuth2PasswordBearer(tokenUrl="token")\nauth_header_name = "X-Api-Key-2024-Version"\n'
        'headers = {"Authorization": f"Bearer {token}"}\nAPI_KEY_HEADER = "X-API-Key"\npassword_field="user_password_2"\n',
        "login.html": '<input type="password" name="password" autocomplete="current-password">\n',
    },
    "tests-of-a-library": {
        "test_auth.py": 'client.login(username="test", password="test1234")\ntoken = "fake-token-123"\n'
        'api_key="test-key"\nassert parse("http://user:pass@localhost:8080/")\nsecret = "secret"\npassword="hunter2"\n',
    },
    "data-cards": {
        "dataset_infos.json": json.dumps(
            {"download_checksums": {"a": {"num_bytes": 1, "checksum": _SHA}}, "key": _SHA}
        ),
        "model_index.json": '{"_class_name": "StableDiffusionPipeline", "tokenizer": ["transformers", "CLIPTokenizer"]}',
        "generation_config.json": '{"eos_token_id": 2, "forced_bos_token_id": 1, "max_new_tokens": 20}',
        "README.md": f"commit {_SHA[:40]}\ndoi: 10.1234/zenodo.1234567\narXiv:1706.03762\n",
    },
    "small-binary": {
        "ops.so": hashlib.sha512(b"z").digest() * 3000,
        "table.bin": bytes(range(256)) * 100,
    },
    "cluster-of-references": {
        "pod.yaml": "env:\n- name: HF_TOKEN\n  valueFrom:\n    secretKeyRef:\n      name: huggingface-token-prod2\n      key: HF_TOKEN\n"
        "imagePullSecrets:\n- name: registry-pull-secret-2025a\n",
        "values.yaml": "existingSecret: my-release-postgresql-1\nsecretName: tls-certificate-2025\npasswordKey: postgres-password\n",
    },
}
