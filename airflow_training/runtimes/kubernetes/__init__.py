"""The Kubernetes adapter: pods, services and gang objects; no CRD and no controller of our own."""

from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime

__all__ = ["KubernetesRuntime"]
