"""What the documents list is what the code knows."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Where the second of several texts in a row, or in a call, is a kind of quality row.
CALLS = {"told": 1, "told_once": 2, "note": 0, "_note": 0}


def kinds() -> set[str]:
    """Every kind of quality row in the source: the third entry of rows, and the argument of what makes rows."""
    found: set[str] = set()
    for path in [*(ROOT / "src" / "forecaster" / "bars").rglob("*.py"), ROOT / "src" / "forecaster" / "data.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            fixed = isinstance(node, ast.Tuple) and all(isinstance(part, ast.Constant) for part in node.elts)
            if isinstance(node, ast.Tuple) and len(node.elts) == 5 and not fixed:
                found |= words(node.elts[2])
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
                place = CALLS[node.func.id]
                found |= words(node.args[place]) if len(node.args) > place else set()
    return found


def words(node: ast.expr) -> set[str]:
    return {node.value} if isinstance(node, ast.Constant) and re.fullmatch(r"[a-z_]+", str(node.value)) else set()


def test_every_kind_of_quality_row_is_explained() -> None:
    text = (ROOT / "docs" / "bars.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\|[^|]*\|", text, re.MULTILINE))))
    used = kinds()
    assert len(used) > 25
    assert used <= explained, used - explained


def test_every_experiment_is_named_in_the_readme_or_on_the_pages_of_networks_and_probes() -> None:
    pages = (ROOT / "README.md", ROOT / "docs" / "networks.md", ROOT / "docs" / "probes.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for path in (ROOT / "conf" / "experiment").glob("*.yaml"):
        assert f"`{path.stem}`" in text, path.stem
