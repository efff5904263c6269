"""A program that writes the logs of a real run of lm-evaluation-harness where the harness would."""

from __future__ import annotations

import sys
from pathlib import Path

LOGS = Path(__file__).parents[1] / "data" / "lm_eval" / "out"
PROGRAM = """#!{python}
import shutil, sys
from pathlib import Path
with open({calls!r}, "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
output = Path(sys.argv[sys.argv.index("--output_path") + 1]) / "p"
if "broken" in sys.argv:
    sys.exit("no such task")
shutil.copytree({logs!r}, output)
"""


def like_lm_eval(folder: Path) -> Path:
    """Write the program to `folder`; it stands for the Python of an environment with lm-eval."""
    program = folder / "python"
    calls = str(folder / "calls")
    program.write_text(PROGRAM.format(python=sys.executable, logs=str(LOGS), calls=calls))
    program.chmod(0o755)
    return program


def calls_of(folder: Path) -> list[str]:
    """The arguments of each call of that program, in order."""
    return (folder / "calls").read_text().splitlines()
