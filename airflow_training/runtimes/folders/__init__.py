"""What runtimes share whose instances leave all that is known of them in the folder of their run.

`FolderRuntime` is the port as far as files alone serve it; a runtime adds who starts agents, and how it sees that they live.
"""
