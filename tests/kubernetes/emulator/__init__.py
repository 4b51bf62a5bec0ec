"""A stateful emulator of a Kubernetes 1.36 cluster, for tests of what talks to one.

    with Cluster() as cluster:                             # or `async with`
        client = await config.new_client_from_config_dict(cluster.kubeconfig())
        cluster.control.node_lost("node-1")                # what tests do to it: `Control`

As a process, so that clients can be killed around it; the same control over HTTP:

    python -m tests.kubernetes.emulator --kubeconfig FILE --kubelet processes
    control = remote_control("http://127.0.0.1:PORT")      # from its `ready URL` line
    control.fail_requests(code=429, retry_after=1, verb="create", path="/pods$")

**The API server** checks types and unknown fields, names, pods and what may not change; answers
refusals as Status documents in the real one's words; and knows versions and conflicts, merge
patch and forced server-side apply, finalizers, grace, garbage collection,
terminating namespaces, quota, PodSecurity (restricted), priority classes, evictions,
paged lists, watches with bookmarks and 410, RBAC by Role documents and access reviews.

**The scheduler** binds by resources, taints, node selectors and required node affinity. What is
`installed` of Volcano, coscheduling and Kueue are kinds only: objects that nobody acts on.

**Two kubelets.** `scripted` is instant and has no processes: a pod does what its command says (true,
false, exit N, echo, sleep; `sh -c` of these), any other runs until the test ends it. `processes`
runs containers in namespaces of their own (as root, or where user namespaces are allowed), with
volumes where they are mounted, an address in 127/8 per pod, /etc/hosts instead of DNS, probes for
readiness, logs, TERM, grace and KILL. As in a real container the command is process 1: it ignores
TERM unless it handles it.

**Not emulated:** gangs, scheduling gates, owners of fields (what an apply leaves out stays), other patches, TLS and protobuf (`kubectl create` needs both; the Python clients do not), other
kinds than those in `kinds`, exec, attach, port-forward, ephemeral containers, pod resize, binding,
apply to a subresource, image contents and entry points, cgroups (memory limits do not kill: use
`oom_kill`), network namespaces (a server must bind to its pod's address, not to 0.0.0.0), a
container's own root and /tmp (it sees and writes the machine's), uids and security contexts,
liveness and startup probes, lifecycle hooks, persistent volumes, service account tokens, cluster
addresses of services, pod affinity and topology spread in the scheduler, preemption by priority
(use `preempt`), most Events, exact lists at old versions. Back-off between
restarts is 0.2 to 5 seconds. Kubelets do everything at once, unless `pace` (`--slow`) says otherwise.
"""

from tests.kubernetes.emulator.cluster import Cluster, remote_control
from tests.kubernetes.emulator.control import Control
from tests.kubernetes.emulator.nodes import Node
from tests.kubernetes.emulator.parts import ADMIN_TOKEN

__all__ = ["ADMIN_TOKEN", "Cluster", "Control", "Node", "remote_control"]
