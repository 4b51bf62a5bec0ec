"""What a model is to the planner, what a cluster is, and how the one is split over the other. Pure."""
