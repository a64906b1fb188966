"""The site has every page, and a page of its own for each file that pages link to."""

import runpy
from types import SimpleNamespace

import pytest
import yaml
from docs.markdown import ROOT, name

SITE = ROOT / "conf" / "site"
HOOKS = runpy.run_path(str(SITE / "source_pages.py"))


class _Loader(yaml.SafeLoader):
    """Takes a value that the site makes by Python for an empty one."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def _leaves(nav):
    for each in nav:
        if isinstance(each, str):
            yield each
            continue
        (value,) = each.values()
        yield from [value] if isinstance(value, str) else _leaves(value)


@pytest.fixture
def config():
    read = yaml.load((SITE / "mkdocs.yml").read_text(), _Loader)
    return SimpleNamespace(docs_dir=str((SITE / read["docs_dir"]).resolve()), nav=read["nav"], settings=read)


def test_every_page_is_in_the_navigation_once(config):
    listed = list(_leaves(HOOKS["on_config"](config).nav))
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


def test_the_site_fetches_nothing_and_is_built_where_make_cleans(config):
    assert config.settings["theme"]["font"] is False
    assert config.settings["strict"] is True
    assert (SITE / config.settings["site_dir"]).resolve() == ROOT / "build" / "site"
    assert not {"extra_javascript", "extra_css"} & config.settings.keys()


def _page(src_uri):
    return SimpleNamespace(file=SimpleNamespace(src_uri=src_uri))


@pytest.mark.parametrize(
    ("page", "link", "becomes"),
    [
        ("security.md", "../conf/secure.properties", "source/conf/secure.properties.md"),
        ("delivery/exactly-once.md", "../../SECURITY.md", "../source/SECURITY.md"),
        ("delivery/exactly-once.md", "../spark.md#writing", "../spark.md#writing"),
        ("spark.md", "#writing", "#writing"),
        ("spark.md", "https://delta.io", "https://delta.io"),
    ],
)
def test_a_link_to_a_file_outside_goes_to_its_page(page, link, becomes):
    assert HOOKS["on_page_markdown"](f"See [it]({link}).", page=_page(page)) == f"See [it]({becomes})."


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=name)
def test_a_notebook_becomes_its_text_and_its_code(path):
    page = HOOKS["_source_page"](path.name, path.read_text())
    assert page.startswith("# ")
    assert "\n\n````python\n" in page
    assert "output_type" not in page
