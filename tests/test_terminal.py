import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.table import Table

import d2djax
from d2djax.cli import commands, terminal
from d2djax.data import DataError
from d2djax.running import axes

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(d2djax.__file__).parents[1]), "D2DJAX_CACHE": "0"}


# --- what is printed ---


@pytest.fixture
def printed(monkeypatch):
    """What `show` writes to standard output of an encoding."""

    def show(*things, encoding="utf-8"):
        stream = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        terminal.show(*things)
        return stream.buffer.getvalue().decode(encoding)

    return show


def wide_table():
    table = Table(title="what each policy takes to reach the accuracy of none")
    for number in range(12):
        table.add_column(f"heading {number}")
    table.add_row(*(f"{number}.123456 ± {number}.0789 (0.12–0.34)" for number in range(12)))
    return table


@pytest.mark.parametrize("width", ["20", "80", "500"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_numbers_are_whole_at_any_width_and_in_any_encoding(printed, monkeypatch, width, encoding):
    monkeypatch.setenv("COLUMNS", width)
    text = printed(wide_table(), "a policy at 10 % ± 1", encoding=encoding)
    sign = "+-" if encoding == "ascii" else "±"
    dash = "–" if encoding == "utf-8" else "-"
    for number in range(12):
        assert f"{number}.123456 {sign} {number}.0789 (0.12{dash}0.34)" in text
    assert "…" not in text and "..." not in text
    assert text.endswith(f"a policy at 10 % {sign} 1\n")


def test_names_of_other_alphabets_are_printed_somehow(printed):
    assert printed("saved in ergebnisse/größe", encoding="ascii") == "saved in ergebnisse/gr??e\n"


class Gone(io.StringIO):
    def write(self, text=""):
        raise BrokenPipeError(32, "Broken pipe")

    flush = write


def test_messages_outlive_their_reader():
    messages = terminal.Messages(Gone())
    assert messages.write("progress") == 8
    messages.flush()
    assert messages.encoding is None and not messages.isatty()


# --- how commands end ---


def ended(capsys, action, **options):
    with pytest.raises(SystemExit) as caught, terminal.ends(**options):
        action()
    return caught.value.code, capsys.readouterr().err


def refuse():
    axes.check_name("nonsense")


def test_input_that_is_refused(capsys):
    code, err = ended(capsys, refuse)
    assert code == 2 and re.fullmatch(r"d2djax: axis 'nonsense' must be a setting.*\n", err)


@pytest.mark.parametrize(
    "action, words",
    [
        (lambda: int("x"), "ValueError: invalid literal for int() with base 10: 'x'"),
        # A ValueError that Python raises in our code: its message was not written for users.
        (lambda: axes.axes_of(None, None), "a bug: "),
        (lambda: {}["manifest"], "KeyError: 'manifest'"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_not_meant_for_people_is_a_bug(capsys, monkeypatch, action, words):
    monkeypatch.setattr(axes, "axes_of", lambda *_: zip([1], strict=True) and int("y"), raising=False)
    code, err = ended(capsys, action)
    assert code == 1 and err.count("\n") == 1 and "Traceback" not in err
    assert err.startswith("d2djax: a bug: ") and words in err and "--traceback" in err


def test_an_error_of_python_in_a_line_of_ours_is_a_bug():
    code = "def broken():\n    return int('x')\ndef meant():\n    raise ValueError('seeds must be at least 1')\n"
    names = {}
    exec(compile(code, str(Path(d2djax.__file__).parent / "runs.py"), "exec"), names)
    for name, expected in (("broken", False), ("meant", True)):
        with pytest.raises(ValueError) as caught:
            names[name]()
        assert terminal.is_for_people(caught.value) is expected
    names = {}
    exec(compile(code, "/somewhere/else/runs.py", "exec"), names)
    with pytest.raises(ValueError) as caught:
        names["meant"]()
    assert not terminal.is_for_people(caught.value)


def test_a_data_error_is_for_people():
    with pytest.raises(DataError) as caught:
        d2djax.load("mnist")
    assert terminal.is_for_people(caught.value)


def missing():
    Path("/nowhere/at/all").read_text()


def out_of_memory():
    raise MemoryError("Unable to allocate 8.00 EiB")


@pytest.mark.parametrize(
    "action, text",
    [
        (missing, "d2djax: /nowhere/at/all: No such file or directory\n"),
        (out_of_memory, "d2djax: out of memory; .*Unable to allocate.*\n"),
    ],
)
def test_what_the_system_lacks_is_one_line(capsys, action, text):
    code, err = ended(capsys, action)
    assert code == 1 and re.fullmatch(text, err)


def test_a_traceback_on_request(capsys, monkeypatch):
    for action in (refuse, missing):
        _, err = ended(capsys, action, with_traceback=True)
        assert "Traceback (most recent call last)" in err and err.splitlines()[-1].startswith("d2djax: ")
    for arguments, variable in ((["--traceback"], ""), ([], "1")):
        monkeypatch.setenv("D2DJAX_TRACEBACK", variable)
        with pytest.raises(SystemExit):
            commands.main(["run", "--num-devices", "1", *arguments])
        assert "Traceback (most recent call last)" in capsys.readouterr().err


def broken_pipe():
    raise BrokenPipeError(32, "Broken pipe")


def interrupted():
    raise KeyboardInterrupt


@pytest.mark.parametrize("action, expected", [(broken_pipe, 141), (interrupted, 130)])
def test_codes_of_signals(capsys, monkeypatch, action, expected):
    monkeypatch.setattr(sys, "stdout", Gone())
    code, err = ended(capsys, action)
    assert code == expected and "Traceback" not in err


# --- processes ---


def test_a_reader_that_has_gone():
    command = f"{sys.executable} -m d2djax info | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (141, "", "")


def test_an_output_that_is_full():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "d2djax", "info"],
            env=ENVIRONMENT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (1, "d2djax: standard output: No space left on device\n")


# Stands for a program that compiles: a wait in another thread, which no Ctrl-C ends.
COMPILES = """
import sys, threading, time
import signal
from d2djax.cli import commands, interrupts
# Tests that run in the background hand an ignored Ctrl-C on to their children.
signal.signal(signal.SIGINT, signal.default_int_handler)

def run(_):
    interrupts.work_begins()
    thread = threading.Thread(target=time.sleep, args=(30,))
    thread.start()
    print("compiling", file=sys.stderr, flush=True)
    thread.join()

commands.COMMANDS["info"] = (commands.Info, run)
sys.argv = ["d2djax", "info"]
from d2djax.__main__ import main
main()
"""


@pytest.mark.parametrize("presses", [1, 2, 3])
def test_stopping_while_it_compiles(presses):
    process = subprocess.Popen([sys.executable, "-c", COMPILES], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "compiling\n"
    started = time.monotonic()
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and time.monotonic() - started < 15
    assert "Traceback" not in err and "Exception ignored" not in err
    assert err.count("\n") <= 1


@pytest.mark.parametrize("delay", [0.05, 0.3, 0.6, 1.2])
def test_stopping_during_imports(delay):
    code = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from d2djax.__main__ import main\nsys.argv = ['d2djax', 'info']\n"
    code += "print('in', flush=True)\nmain()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "in\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    # It may have been done before, or have been about to end, where Python has given the signal back.
    assert (process.returncode, err) in ((0, ""), (130, "d2djax: interrupted\n"), (-signal.SIGINT, ""))
