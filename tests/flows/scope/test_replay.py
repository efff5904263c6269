"""Table 4 of SCOPE's paper: one checkpoint's last turn after another's searches."""

import pytest

from flows.scope.held_out import after_searches
from tests.support.rows import row, turn


@pytest.mark.parametrize(
    ("reasoning", "said"),
    [(False, "<think>Where?</think> <search>moon</search>"), (True, "<search>moon</search>")],
)
def test_searches_are_replayed_as_the_model_that_made_them_saw_them(reasoning, said):
    asked = [{"role": "user", "content": "Where is it?"}]
    searched = turn(
        "<think>Where?</think> <search>moon</search>", message="It is up.", message_role="tool"
    )
    given = [row("prompts", prompt_id="p", task_id="t", messages=asked)]
    rollouts = [row("rollouts", prompt_id="p", turns=[searched, turn("<answer>down</answer>")])]
    (replayed,) = after_searches(given, rollouts, reasoning=reasoning)
    assert replayed["messages"] == [
        *asked,
        {"role": "assistant", "content": said},
        {"role": "tool", "content": "It is up."},
    ]
    assert replayed["task_id"] == "t"
