"""stub"""

from tests.kubernetes.emulator.kubelet import Kubelet


class ProcessKubelet(Kubelet):
    def __init__(self, registry, logs, folder):
        super().__init__(registry, logs)
