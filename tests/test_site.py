"""The documentation site: it is built without a warning, and its reference tables leave nothing out."""

import dataclasses
import html
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import d2djax

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "experiments" / "site"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the built site: the one that `D2DJAX_SITE` names, or one that is built here."""
    if "D2DJAX_SITE" in os.environ:
        return Path(os.environ["D2DJAX_SITE"])
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", SOURCES, folder]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return folder


def rows(page):
    """The rows of all tables of a page: texts of their cells."""
    found = re.findall(r"<tr.*?</tr>", page.read_text(), re.DOTALL)
    cells = (re.findall(r"<td.*?</td>", row, re.DOTALL) for row in found)
    text = lambda cell: html.unescape(re.sub(r"<[^>]*>", "", cell)).strip()  # noqa: E731
    return [[text(cell) for cell in row] for row in cells if row]


def test_each_source_is_a_page(site):
    sources = [*SOURCES.rglob("*.md"), *(SOURCES / "notebooks").glob("*.ipynb")]
    assert len(sources) > 20
    for source in sources:
        assert (site / source.relative_to(SOURCES).with_suffix(".html")).is_file(), source


def test_every_exported_name_is_documented(site):
    # Four lines of head, then packed lines: `d2djax.run py:function 1 api.html#$ -`.
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    found = {line.split(" ")[0] for line in zlib.decompress(packed).decode().splitlines() if " py:" in line}
    assert {f"d2djax.{name}" for name in d2djax.__all__} <= found


def test_every_variable_has_its_dimensions_and_unit(site):
    # tests/test_cli.py compares the README's table with the results of a run.
    readme = (ROOT / "README.md").read_text().split("<!-- variables -->")[1].split("<!-- end of variables -->")[0]
    wanted = {}
    for names, dims, unit, _ in re.findall(r"^\| (`.*?) \| (.*?) ?\| (.*?) \| (.*?) \|$", readme, re.MULTILINE):
        for name, of_name in zip(re.findall(r"`(\w+)`", names), dims.split("; "), strict=True):
            wanted[name] = (", ".join(filter(None, ("run", of_name))), unit)
    assert len(wanted) > 30
    assert {row[0]: (row[1], row[3]) for row in rows(site / "variables.html")} == wanted


def test_every_setting_is_listed_with_its_default(site):
    found = {row[0]: row[1:] for row in rows(site / "config.html")}
    assert set(found) == {item.name for item in dataclasses.fields(d2djax.Config)}
    assert all(row[1] in ("paper", "ours") and row[3] in ("static", "traced") and row[4] for row in found.values())
    assert found["num_devices"][:4] == ["25", "paper", "whole number, at least 2", "static"]
    assert found["noise_power"][:4] == ["3.981072e-15 W", "ours", "number, in [1e-25, 1e3]", "traced"]


def test_each_page_of_the_paper_has_equations_functions_and_loops(site):
    pages = sorted((site / "paper").glob("*.html"))
    assert len(pages) == 9
    for page in pages:
        text = page.read_text()
        assert 'display="block"' in text and 'class="py function"' in text, page
        assert "tests/oracle.py" in text or "nothing to compare with loops" in text, page


LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="([^"]*)|<link\b[^>]*\bhref="([^"]*)')


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = [first or second for first, second in LOADED.findall(page.read_text())]
        assert loaded and not [one for one in loaded if re.match(r"(https?:)?//", one)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", style.read_text()), style
