import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from d2djax.running import progress
from d2djax.running.progress import Tally


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3599, "59:59"), (3600, "1:00:00"), (183 * 60 + 47, "3:03:47")],
)
def test_clock(seconds, text):
    assert progress.clock(seconds) == text


@pytest.mark.parametrize("number, text", [(0, "0 seeds"), (1, "1 seed"), (1344, "1,344 seeds")])
def test_plural(number, text):
    assert progress.plural(number, "seed") == text


def test_a_sweep_that_goes_on_counts_what_was_done_before():
    shown = []
    tally = Tally(lambda tally, share: shown.append((str(tally), share)), 688, 2032, "training")
    tally.finish(344, 0)
    text, share = shown[-1]
    assert text.startswith("1,688/2,032 runs, ") and share == pytest.approx(1688 / 2032)
    # Another process has taken the rest.
    tally.total = 344
    tally.finish(0, 0)
    assert shown[-1][0].startswith("2,032/2,032 runs, ") and shown[-1][1] == 1


def test_one_run_is_one_run():
    assert str(Tally(lambda *_: None, 1, 1, "training")).startswith("0/1 run, ")


def test_a_chunk_counts_as_far_as_it_is(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tally = Tally(lambda *_: None, 10, 30, "training")
    with tally.stages(10, {})("training")(5) as advance:
        advance(1)
        now[0] = 3600.0
        advance(1)
    assert str(tally).startswith("30/30 runs")
    with tally.stages(10, {})("training")(5):
        assert "elapsed" in str(tally)


def test_lines_of_a_log(monkeypatch):
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with progress.stage(Console(file=stream), "training", 2000) as advance:
        now[0] = 11_027.0
        advance(1000)
    assert stream.getvalue().splitlines() == [
        "training: 0/2,000, compiling",
        "training: 1,000/2,000, 3:03:47 elapsed, 3:03:47 left",
    ]
