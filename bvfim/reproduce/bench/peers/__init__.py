"""Other libraries on the same hyper-cleaning problem, for ``bvfim bench speed`` and ``time-to-result``."""
