"""What the planner answers: documents, text, launcher arguments, and whether to plan again."""
