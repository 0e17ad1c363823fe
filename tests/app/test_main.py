"""The start of the command: what it loads, and what it says where an extra is missing."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys

import pytest

import bvfim
from bvfim.app import cli, cli_bench, main
from bvfim.core import extras
from tests import command as shell


def started(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def of_children() -> float:
    """Seconds of a core that processes have had which were started here."""
    taken = os.times()
    return taken.children_user + taken.children_system


@pytest.mark.parametrize("argument", ["--version", "-V", "--help", "-h"])
def test_version_and_help_load_no_torch(argument):
    """A second on an idle machine; what makes it so is that nothing large is loaded."""
    code = f"""if True:
        import sys, json
        sys.argv = ["bvfim", "{argument}"]
        from bvfim.app.main import main
        try:
            main()
        except SystemExit:
            pass
        large = ("torch", "numpy", "pandas", "matplotlib", "scipy", "sklearn")
        print(json.dumps([name for name in large if name in sys.modules]))
    """
    begin = of_children()
    lines = started(code).splitlines()
    assert json.loads(lines[-1]) == []
    assert any("bvfim" in line for line in lines[:-1])
    assert of_children() - begin < 5  # whatever else runs; the benchmark start.py measures it alone


def test_solve_and_the_methods_load_the_solver_alone():
    code = """if True:
        import json, sys, torch
        before = set(sys.modules)
        import bvfim
        bvfim.solve, bvfim.methods.ALL, bvfim.Problem
        names = ("scipy", "sklearn", "matplotlib", "rich", "typer", "pandas", "jinja2", "PIL", "pooch")
        print(json.dumps([len(set(sys.modules) - before), [n for n in names if n in sys.modules]]))
    """
    count, loaded = json.loads(started(code))
    assert count <= 300
    assert loaded == []


@pytest.fixture
def without(monkeypatch):
    """Pretend that some packages are not installed."""

    def hide(*modules):
        found = extras.find_spec
        monkeypatch.setattr(extras, "find_spec", lambda name: None if name in modules else found(name))

    return hide


@pytest.mark.parametrize(
    ("command", "hidden", "packages", "extras"),
    [
        ("clean", ("sklearn",), "scikit-learn", "labels"),
        ("clean", ("typer", "PIL"), "typer, pillow", "app,labels"),
        ("solve", ("rich",), "rich", "app"),
        ("bench", ("pooch",), "pooch", "reproduce"),
        ("--help", ("typer",), "typer", "app"),
    ],
)
def test_a_missing_extra_is_one_sentence(without, monkeypatch, capsys, command, hidden, packages, extras):
    without(*hidden)
    monkeypatch.setattr(sys, "argv", ["bvfim", command])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    what = "bvfim" if command == "--help" else f"bvfim {command}"
    assert capsys.readouterr().err == (
        f"error: {what} needs packages that are not installed ({packages}): pip install 'bvfim[{extras}]'\n"
    )


def test_the_version_needs_no_extra(without, monkeypatch, capsys):
    without("typer", "rich")
    monkeypatch.setattr(sys, "argv", ["bvfim", "--version"])
    main.main()
    assert capsys.readouterr().out == f"bvfim {bvfim.__version__}\n"


@pytest.mark.parametrize("words", [(), ("solve",), ("clean",), ("bench",), ("bench", "speed"), ("reproduce",)])
def test_help_is_written_both_ways(words):
    short, long = (shell.command(*words, way) for way in ("-h", "--help"))
    assert short.returncode == long.returncode == 0
    assert short.stdout == long.stdout
    assert short.stdout.split()[0] == "Usage:"
    assert " ".join([*words, "["]) in " ".join(short.stdout.split())


def test_the_module_is_the_command():
    ran = subprocess.run([sys.executable, "-m", "bvfim", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"bvfim {bvfim.__version__}\n"


@pytest.mark.long
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [("bvfim cl", ["clean"]), ("bvfim bench la", ["labels"]), ("bvfim solve --fo", ["--force"]), ("bvfim -", None)],
)
def test_a_shell_completes(typed, offered, tmp_path):
    """As a user has it: the script that ``--show-completion`` prints, sourced by bash, and a word half typed."""
    own = tmp_path / "bvfim"
    own.write_text(f'#!{shutil.which("bash")}\nexec "{sys.executable}" "{tmp_path / "bvfim.py"}" "$@"\n')
    own.chmod(0o755)
    (tmp_path / "bvfim.py").write_text(
        "import sys\nsys.argv[0] = 'bvfim'\nsys.path.pop(0)\nfrom bvfim.app.main import main\nmain()\n"
    )
    words = typed.split()
    script = f"""
        source <(_BVFIM_COMPLETE=source_bash bvfim)
        COMP_WORDS=({typed}) COMP_CWORD={len(words) - 1}
        _bvfim_completion bvfim && printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    room = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=os.environ | room, check=True)
    found = ran.stdout.split()
    assert found == offered if offered else {"--version", "--help"} <= set(found)
    assert ran.stderr == ""


def test_what_the_help_names_is_what_there_is():
    from bvfim.data.fewshot import NAMES
    from bvfim.reproduce.bench import contest, labels, problems, speed, time_to_result
    from bvfim.reproduce.experiments.cleaning_settings import DATA

    assert tuple(DATA) == cli.CLEANING_DATA
    assert cli.FEW_SHOT_DATA == NAMES
    assert labels.Config().data == cli_bench.LABEL_DATA
    for command, config in (
        (cli_bench.bench_speed, speed.Config()),
        (cli_bench.bench_problems, problems.Config()),
        (cli_bench.bench_labels, labels.Config()),
        (cli_bench.bench_time_to_result, time_to_result.Config()),
        (cli_bench.bench_rivals, contest.Config()),
    ):
        for name, parameter in inspect.signature(command).parameters.items():
            stated = getattr(config, name, None)
            if isinstance(stated, int | float) and parameter.default is not None:
                assert parameter.default == stated, name
