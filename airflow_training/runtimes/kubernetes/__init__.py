"""The Kubernetes adapter: pods, services and gang objects; no CRD and no controller of our own."""
