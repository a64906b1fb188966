"""No link of a page is dead, and none goes to a heading that is not there."""

import pytest
from docs.markdown import PAGES, ROOT, anchors, links, name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_goes_somewhere(page):
    dead = []
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_file() or not target.is_relative_to(ROOT):
            dead.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(target):
            dead.append(f"{link}: no such heading; there are {', '.join(sorted(anchors(target)))}")
    assert not dead


def test_anchors_are_those_that_github_makes(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `topic`'s way\n\n## sparklog group, sparklog *config*\n\n### Twice\n\n### Twice\n\n# not_here\n"
    )
    assert anchors(page) == {"a-topics-way", "sparklog-group-sparklog-config", "twice", "twice-1", "not_here"}


def test_links_in_code_are_none(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`[a](b.md)` and [c](d.md#e) ![f](g.png)\n\n```text\n[h](i.md)\n```\n")
    assert list(links(page)) == ["d.md#e", "g.png"]
