"""The paper again: experiments and benchmarks."""

from bvfim.core.extras import require_extras

require_extras("bvfim.reproduce", "app", "labels", "reproduce")
