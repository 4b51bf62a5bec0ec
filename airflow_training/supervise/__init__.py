"""The one loop: lease, observe, decide, persist, act. Hosted by a trigger or the command line."""
