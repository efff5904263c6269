"""Code copied out of the project runs without it."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest

from flows.environments.copied_code import CopiedCode
from tasks.readers.tags import last_element
from tasks.scorers.equality import agree


def copied(code: CopiedCode, folder) -> None:
    for name, text in code.files().items():
        (folder / name).write_text(text)
    (folder / "__init__.py").write_text("")


def run_outside(folder, script: str) -> str:
    """What a script prints in an isolated interpreter that does not find the project."""
    script = f"import sys; sys.path.insert(0, {str(folder)!r})\n{script}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_rule_runs_where_the_project_is_not_imported(tmp_path):
    code = CopiedCode()
    assert code.expression(agree) == "agree"
    (tmp_path / "rule").mkdir()
    copied(code, tmp_path / "rule")
    script = """
from rule.tasks_scorers_equality import agree
print(agree({"answer_type": "String", "reference": "The Rhine"}, "the rhine"))
print(agree({"answer_type": "Integer", "reference": "1250"}, "1,250"))
print([name for name in sys.modules if name.split(".")[0] in ("tasks", "warehouse", "flows")])
"""
    assert run_outside(tmp_path, script).splitlines() == ["True", "True", "[]"]


def test_only_what_is_reached_is_copied():
    code = CopiedCode()
    code.expression(agree)
    assert "numbers.number_in" not in code.files()["tasks_readers_numbers.py"]
    assert "def read_vote" not in "".join(code.files().values())
    assert code.needs == {"math_verify", "latex2sympy2_extended"}


def test_a_copied_definition_is_word_for_word_the_original(tmp_path):
    import inspect

    code = CopiedCode()
    code.expression(last_element)
    assert inspect.getsource(last_element).strip() in code.files()["tasks_readers_tags.py"]


def test_arguments_of_a_partial_are_written_with_it():
    expression = CopiedCode().expression(partial(last_element, name="answer"))
    assert expression == "partial(last_element, name='answer')"


@pytest.mark.parametrize("value", [object(), partial(dict, name=object()), lambda: 0])
def test_what_has_no_source_is_refused(value):
    with pytest.raises(ValueError, match=r"cannot be written|only functions of a module"):
        CopiedCode().expression(value)
