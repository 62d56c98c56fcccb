"""What `import shiftproof` gives, first thing in a fresh process, and how quickly."""

import subprocess
import sys

import pytest

import shiftproof


def fresh(code):
    """Run code in another process, where nothing is imported yet; return what it prints."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "name",
    ["models.Normalize", "adapters.freeze", "errors.ShiftproofError", "measures.Accuracy", "shifts.parse", "spectrum"],
)
def test_sub_packages_are_there_first(name):
    assert fresh(f"import shiftproof; print(shiftproof.{name}.__name__)") == name.rpartition(".")[2]


def test_every_public_name_is_found_and_nothing_else():
    assert dir(shiftproof) == sorted(shiftproof.__all__)
    for name in shiftproof.__all__:
        assert getattr(shiftproof, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        shiftproof.nothing  # noqa: B018


def test_every_room_is_public_but_the_command_line():
    folder = shiftproof.__path__[0]
    code = f"import pkgutil; print(*(m.name for m in pkgutil.iter_modules([{folder!r}]) if m.ispkg))"
    assert set(fresh(code).split()) - {"cli"} <= set(shiftproof.__all__)


def test_importing_is_light_and_help_is_quick():
    heavy = fresh("import sys, shiftproof; print(*{'torch', 'numpy', 'scipy', 'typer'} & sys.modules.keys())")
    assert heavy == ""
    code = (
        "import sys, time\n"
        "sys.argv = ['shiftproof', '--help']\n"
        "begun = time.process_time()\n"
        "from shiftproof.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules\n"
        "print('took', time.process_time() - begun)"
    )
    took = min(float(fresh(code).rpartition("took")[2]) for _ in range(3))
    assert took < 0.5  # of processor time: what else the machine does is not counted
