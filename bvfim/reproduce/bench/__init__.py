"""What ``bvfim bench`` runs. Timings are compared only as ratios inside one run."""
