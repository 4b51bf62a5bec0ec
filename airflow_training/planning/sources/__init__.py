"""Adapters that read what the planner needs: files, jobs, nodes, torch modules, measurements."""
