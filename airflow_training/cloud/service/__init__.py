"""What takes submissions, runs them and tells of them: the same app on the loopback, by `cloud serve` and elsewhere."""
