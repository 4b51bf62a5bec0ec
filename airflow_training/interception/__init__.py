"""A hook inside the training process: says what it opens, and waits for data that is not there yet.

Standard library only, Python 3.8 and newer, and nothing else of this package: it can be copied or packed alone.
Installed by the environment alone (`hook_environment`), see docs/data-on-demand.md.
"""
