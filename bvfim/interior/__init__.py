"""The interior-point solver behind :class:`bvfim.AdaptiveBVFIM`, for a batch of starts."""
