"""Where instances live: the port `Runtime` and its adapters."""
