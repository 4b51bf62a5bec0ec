"""The routes that the pages ask: JSON, logs, live changes and actions."""
