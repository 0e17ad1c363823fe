"""How Sphinx builds the site: `make docs`, where every warning is an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent / "_ext")]
# Notebooks run in processes of their own, which import the package from here, too.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the notebooks are small: more threads wait for each other
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # the command bvfim
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # kernels otherwise print a word about debuggers
os.environ["BVFIM_PROGRESS"] = "0"  # a page can't show bars that move

from bvfim.version import __version__  # noqa: E402 (found through the path above)

project = "bvfim"
version = release = __version__
copyright = "the bvfim authors"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "gallery",
    "mathml",
    "docstrings",
    "public_names",
    "spread",
    "own_paths",
]
exclude_patterns = ["_build", "pictures.py"]

html_theme = "furo"
html_title = "bvfim"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
html_math_renderer = "mathml"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_timeout = 600  # of a cell; they take seconds, but a busy machine is no error
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_preserve_defaults = True
napoleon_use_rtype = napoleon_use_param = False
napoleon_custom_sections = [("Attributes", "params_style")]  # an entry may have several names
add_module_names = False
python_maximum_signature_line_length = 72
