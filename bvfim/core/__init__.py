"""The solver: problems, the parts methods share, the outer loop, and checks of its results."""
