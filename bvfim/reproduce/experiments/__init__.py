"""The experiments of the paper, one file each: a config dataclass and ``run(config) -> Results``."""
