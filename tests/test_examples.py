"""The worked examples in docstrings are what the functions compute."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["points", "policy", "transfer"])
def test_worked_examples(name):
    found = doctest.testmod(importlib.import_module(f"d2djax.{name}"))
    assert found.attempted and not found.failed
