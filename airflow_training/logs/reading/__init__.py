"""Reading a log wherever it lies: by offset, from its end, by time, by pattern, and many by time. Finds nothing out."""
