"""Finding wrong labels with the help of a few that can be trusted."""
