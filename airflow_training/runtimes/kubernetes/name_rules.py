"""The rules that Kubernetes has for names, by kind, as the strictest server in use knows them. Pure.

From "Object Names and IDs", "Labels and Selectors" and the API reference; what only older servers
refuse is a rule of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

__all__ = [
    "ANNOTATION_KEY",
    "CONFIG_KEY",
    "CONTAINER_RESOURCE",
    "DNS_LABEL",
    "DNS_SUBDOMAIN",
    "ENV_NAME",
    "FINALIZER",
    "LABEL_KEY",
    "LABEL_VALUE",
    "OLD_ENV_NAME",
    "PORT_NAME",
    "Rule",
]

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"(?=.{{1,253}}(/|$)){_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one kind of name has to look like."""

    words: str
    pattern: str
    most: int = 63
    """Characters."""
    usual: Collection[str] = ()
    """Names of which one may be meant."""
    taken: Collection[str] = ()
    """By us, in the same list."""
    taken_prefix: str = ""
    """The same of all that begin so, but for what is `free`; "": of nothing."""
    free: Collection[str] = ()

    def refusal(self, name: str) -> tuple[str, str] | None:
        """Return (code, why) for a name that a server refuses; None for a good one."""
        if len(name) > self.most:
            return "name_too_long", f"has {len(name)} characters, Kubernetes takes {self.most}"
        if not re.fullmatch(self.pattern, name):
            return "bad_name", f"is refused by Kubernetes, which wants {self.words}"
        if name in self.taken:
            return "duplicate", "is a name that airflow-training gives in every pod"
        if self.taken_prefix and name.startswith(self.taken_prefix) and name not in self.free:
            return (
                "duplicate",
                f"is refused: what begins with {self.taken_prefix} airflow-training sets itself",
            )
        return None


DNS_LABEL = Rule(
    words="a DNS label: lower-case letters, digits and '-', letter or digit at both ends",
    pattern=_LABEL,
)
"""Of containers and volumes, hosts, subdomains, namespaces."""
DNS_SUBDOMAIN = Rule(
    words="a DNS subdomain: lower-case letters, digits, '-' and '.', letter or digit at both ends"
    " of each part",
    pattern=_SUBDOMAIN,
    most=253,
)
"""Of pods, ConfigMaps, Secrets, PodGroups, and of what pods refer to."""
LABEL_VALUE = Rule(
    words="a label value: letters, digits, '-', '_' and '.', letter or digit at both ends",
    pattern=rf"({_QUALIFIED})?",
)
LABEL_KEY = Rule(
    words="a label key: at most 63 letters, digits, '-', '_' and '.', letter or digit at both ends,"
    " with a DNS subdomain and '/' before it where it has a prefix",
    pattern=rf"({_SUBDOMAIN}/)?{_QUALIFIED}",
    most=253 + 1 + 63,
)
ANNOTATION_KEY = Rule(
    words=LABEL_KEY.words.replace("a label key", "an annotation's key", 1),
    # a server reads the keys of annotations in lower case
    pattern=rf"(?i:{LABEL_KEY.pattern})",
    most=LABEL_KEY.most,
)
FINALIZER = Rule(
    words="a qualified name such as example.com/mine",
    pattern=rf"foregroundDeletion|orphan|kubernetes|{_SUBDOMAIN}/{_QUALIFIED}",
    most=LABEL_KEY.most,
)
PORT_NAME = Rule(
    words="a port's name: lower-case letters, digits and single '-', letter or digit at both ends,"
    " with at least one letter",
    pattern=r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*",
    most=15,
)
CONFIG_KEY = Rule(
    words="a key of a ConfigMap or Secret: letters, digits, '-', '_' and '.'",
    pattern=r"(?!\.\.?$|\.\.)[-._a-zA-Z0-9]+",
    most=253,
)
CONTAINER_RESOURCE = Rule(
    words="cpu, memory, ephemeral-storage, hugepages-<size>, or a name with a domain such as"
    " nvidia.com/gpu",
    pattern=rf"cpu|memory|ephemeral-storage|hugepages-{_QUALIFIED}|{_SUBDOMAIN}/{_QUALIFIED}",
    usual=("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "amd.com/gpu"),
    most=LABEL_KEY.most,
)
_ANY_LENGTH = 32 * 1024
ENV_NAME = Rule(
    words="a variable's name: printable ASCII without '='", pattern="[ -<>-~]+", most=_ANY_LENGTH
)
OLD_ENV_NAME = Rule(
    words="a variable's name: letters, digits, '_', '-' and '.', no digit and no '..' at the"
    " beginning",
    pattern=r"(?!\.$|\.\.)[-._a-zA-Z][-._a-zA-Z0-9]*",
    most=_ANY_LENGTH,
)
"""Of servers before 1.32."""
