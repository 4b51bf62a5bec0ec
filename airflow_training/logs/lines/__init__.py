"""Lines as programs and launchers write them: parts without ANSI sequences, and what stands before a line."""
