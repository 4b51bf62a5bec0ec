"""The store: intent and history of every run, in any SQLAlchemy database."""
