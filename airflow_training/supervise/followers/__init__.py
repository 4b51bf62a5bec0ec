"""What goes on beside the loop while a run lives: logs, progress, processes, measurements, checkpoints."""
