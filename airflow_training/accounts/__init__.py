"""Who may train, how much, and what it costs: decisions over what the store keeps, and few functions that host them."""
