"""The interior-point solver for a pessimistic follower, for a batch of starts."""
