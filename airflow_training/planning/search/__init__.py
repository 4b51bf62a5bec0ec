"""Finding the cheapest feasible plan."""
