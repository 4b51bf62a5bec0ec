"""Jobs of other systems: their documents become ours, and a report accounts for every field."""
