"""Instances as steps of a Slurm allocation, each under our agent; files lie in a folder that all nodes share."""
