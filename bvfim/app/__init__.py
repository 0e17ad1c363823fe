"""The command ``bvfim`` and what it needs: problem files, tables on a terminal."""
