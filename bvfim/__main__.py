"""``python -m bvfim`` is the command ``bvfim``."""

from bvfim.app.main import main

if __name__ == "__main__":
    main()
