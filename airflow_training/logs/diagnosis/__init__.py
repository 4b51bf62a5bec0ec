"""Why a run failed: causes as data, and the decision which of them explains the logs and facts."""
