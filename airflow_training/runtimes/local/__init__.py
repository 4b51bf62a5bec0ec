"""The local runtime: every instance is a process tree of this machine, with an agent around it.

Nothing here decides anything, and nothing of an instance depends on the process that created it.
"""
