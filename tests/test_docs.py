"""Every Python block of the README and the pages runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [page for page in sorted((ROOT / "docs").glob("[eh]*/*.md")) if "```python" in page.read_text()]
LINKING = [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md"))]


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_blocks_run(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks, "the page has no example"
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    printed = capsys.readouterr().out
    if page.name == "adding-a-method.md":
        assert "OneStep: biased by design" in printed
    if page.name == "choosing-a-method.md":
        assert "RHG: exact" in printed
        assert "TRHG: biased by design" in printed
        assert "CG: exact" in printed
    if page.name == "constraints.md":
        assert "converged" in printed.splitlines()[0]
        assert "Status.INFEASIBLE ('lower_constraints[0]', 'upper_constraints[0]', 'upper_constraints[1]')" in printed
        assert "Status.NOT_ATTAINED" in printed
        assert "RHG takes sets, but no lower_constraints: these do: " in printed


def anchors(page):
    """The headings of a page, as links call them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for target, _, anchor in re.findall(r"\]\((?!http)([^)#]*)(#?)([^)]*)\)", page.read_text()):
        leads_to = page.parent / target if target else page
        assert leads_to.exists(), target
        assert not anchor or anchor in anchors(leads_to), anchor


def test_a_page_that_names_a_folder_of_this_machine_is_found(monkeypatch):
    """docs/_ext/own_paths.py makes it a warning, and a warning breaks the build of the site."""
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    from own_paths import named

    assert named(f"<pre>\n{ROOT}/bvfim/callbacks.py:9: UserWarning: install it\n</pre>")
    assert named("<p>in bvfim/callbacks.py</p>") == []
