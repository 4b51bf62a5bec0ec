"""What a name says of its value is one thing to what captures a program and to the hook in it, which may import nothing of the former."""

from __future__ import annotations

import pytest

from airflow_training.capture.secret_patterns import PASSWORD_ENDS, STRONG_ENDS, WEAK_ENDS
from airflow_training.capture.secret_values import is_secret_name
from airflow_training.interception.parameters import plain_values

SECRETS = [
    "password", "dbPassword", "DB_PASSWORD", "mysql.passwd", "pwd", "userPwd", "passphrase", "api_key", "apiKey", "APIKey",
    "OPENAI_API_KEY", "client_secret", "clientSecret", "aws_secret_access_key", "awsSecretAccessKey", "accessKey", "access_token",
    "hf_token", "authToken", "auth", "basic_auth", "refresh-token", "privateKey", "private-key", "fernet_key", "signing_key",
    "account_key", "license_key", "authorization", "proxy_authorization", "credential", "gcpCredentials", "wandb_key", "token", "key",
]  # fmt: skip
OPEN = [
    "lr", "learning_rate", "batchSize", "tokenizer", "tokenizer_name", "author", "keyboard", "keypoints", "compass",
    "passes", "authors", "optimizer", "model", "dataset", "scheduler", "bypass_rate", "hidden", "secondary",
]  # fmt: skip
STRICTER = [
    "max_tokens",
    "pad_token",
    "eosToken",
    "primary_key",
    "sort_key",
    "cache_key",
    "monkey",
    "keys_per_query",
]
"""Words that capture excuses; the hook asks for texts of such names nowhere, and leaves them out."""


def is_left_out(name: str) -> bool:
    return plain_values({name: "x"}) == {}


@pytest.mark.parametrize("name", SECRETS)
def test_both_take_a_value_of_the_name_for_a_secret(name):
    assert is_secret_name(name)
    assert is_left_out(name)


@pytest.mark.parametrize("end", [*PASSWORD_ENDS, *STRONG_ENDS, *WEAK_ENDS])
@pytest.mark.parametrize("form", ["{}", "my_{}", "MY_{}", "my-{}", "my.{}"])
def test_the_hook_leaves_out_whatever_ends_as_names_of_secrets_do(end, form):
    name = form.format(end.upper() if form.isupper() else end)
    assert is_secret_name(name)
    assert is_left_out(name)


@pytest.mark.parametrize("name", OPEN)
def test_both_take_a_value_of_the_name_for_none(name):
    assert not is_secret_name(name)
    assert not is_left_out(name)


@pytest.mark.parametrize("name", STRICTER)
def test_a_text_of_a_name_that_only_looks_so_stays_out_of_the_parameters_and_a_number_does_not(
    name,
):
    assert not is_secret_name(name)
    assert is_left_out(name)
    assert plain_values({name: 3}) == {name: 3}
