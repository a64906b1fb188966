"""The page about installing names the extras that there are."""

import re
import tomllib

from docs.markdown import ROOT


def test_every_extra_is_told():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    section = (ROOT / "docs" / "install.md").read_text().partition("| extra | for |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)) == extras.keys()
