import importlib
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"


@pytest.fixture(scope="module")
def checks():
    """The module `experiments/check_documents.py`."""
    sys.path.insert(0, str(EXPERIMENTS))
    try:
        yield importlib.import_module("check_documents")
    finally:
        sys.path.remove(str(EXPERIMENTS))


@pytest.mark.slow
def test_figures_of_the_document_are_those_of_a_rerun(checks, tmp_path):
    # Of the default run, what does not need its training.
    shown = checks.table_of(checks.RUNS["energy"], checks.DOCUMENT.read_text())
    shown = {
        cell: text for cell, text in shown.items() if cell[1] in ("exchange", "messages", "exchange and messages")
    }
    command = "d2djax sweep --no-training --out results/energy"
    found = checks.of_run(command, tmp_path, {heading for _, heading in shown})
    assert checks.differences(shown, found) == (9, [])


def test_every_checked_table_stands_in_the_document_and_every_column_has_its_rule(checks):
    text = checks.DOCUMENT.read_text()
    for command in checks.RUNS.values():
        shown = checks.table_of(command, text)
        assert {heading for _, heading in shown} <= set(checks.COLUMNS), command
        assert sum(len(checks.numbers_in(cell)) for cell in shown.values()) >= 9


def test_a_figure_that_differs_in_its_last_digit_is_named(checks):
    text = """
```bash
d2djax run --out results/a
```

| policy | final accuracy | above |
|---|---|---|
| none | .815 | |
| rl | +.0034 (-.0027 to 99.8 %) | 5 |

| policy | other |
"""
    shown = checks.table_of("d2djax run --out results/a", text)
    assert shown["none", "final accuracy"] == ".815" and len(shown) == 4
    rerun = {
        ("none", "final accuracy"): [0.8154],
        ("rl", "final accuracy"): [0.00336, -0.00274, 0.9983],
        ("rl", "above"): [5.0],
    }
    assert checks.differences(shown, rerun) == (5, [])
    _, lines = checks.differences(shown, rerun | {("none", "final accuracy"): [0.8156]})
    assert lines == ["none, final accuracy: .815 is shown; a rerun gives 0.8156"]
    _, lines = checks.differences(shown, rerun | {("rl", "above"): [float("nan")]})
    assert len(lines) == 1
    del rerun["rl", "above"]
    assert checks.differences(shown, rerun)[1] == [
        "rl, above: 5 is shown; a rerun gives nothing to compare it with"
    ]
