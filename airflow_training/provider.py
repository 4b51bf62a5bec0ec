"""What Airflow shows of this package as a provider. Imports nothing of Airflow: it runs at start-up."""

from __future__ import annotations

from typing import Any

from airflow_training import __version__
from airflow_training.settings import OPTIONS

__all__ = ["get_provider_info"]


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata; `config` is the table in `settings`.

    Airflow calls it by the entry point `apache_airflow_provider`; nobody else needs to.

    >>> sorted(get_provider_info()["config"])
    ['training']
    """
    return {
        "package-name": "airflow-training",
        "name": "Training",
        "description": "Declarative training jobs for every framework, as Airflow DAGs.",
        "versions": [__version__],
        "config": {
            "training": {
                "description": "Training jobs: where the store is, what jobs may ask for.",
                "options": {
                    name: {
                        "description": option.description,
                        "type": option.type,
                        "default": option.default,
                        "example": None,
                        "version_added": None,
                        "sensitive": option.sensitive,
                    }
                    for name, option in OPTIONS.items()
                },
            }
        },
    }
