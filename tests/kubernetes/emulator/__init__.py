"""A stateful emulator of a Kubernetes cluster, for tests of what talks to one."""

from tests.kubernetes.emulator.cluster import Cluster, remote_control
from tests.kubernetes.emulator.control import Control
from tests.kubernetes.emulator.nodes import Node
from tests.kubernetes.emulator.parts import ADMIN_TOKEN

__all__ = ["ADMIN_TOKEN", "Cluster", "Control", "Node", "remote_control"]
