"""Find wrong labels with the help of a few trusted ones."""

from bvfim.core.extras import require_extras

require_extras("bvfim.LabelCleaner", "labels")
