"""The plan step: which machines a job is planned for, what is searched, and what the run gets of it."""
