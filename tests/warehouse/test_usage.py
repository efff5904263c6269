"""The section of a model card that says how to ask the model; its code is run."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.rows import publish, row, updates
from warehouse.schemas import ROLLOUTS
from warehouse.store import Place, Store, Table
from warehouse.usage import Usage, usage_of

CHAT = [{"role": "user", "content": 'Who wrote "it"?\nBe brief.'}]


def usage(chat_template: str, *, stop: tuple[str, ...] = (), text: str = "") -> Usage:
    messages = [{"role": "user", "content": text}] if text else CHAT
    return Usage("responder", messages, chat_template, 0.6, 1.0, 8, list(stop))


def code(markdown: str) -> str:
    """The Python of a section."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", markdown, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("chat_template", ["model", "none"])
def test_the_code_of_a_card_answers_outside_the_checkout(tmp_path, chat_template):
    from tests.support.scripted_play import any_text_model

    model = any_text_model(tmp_path / "exported")
    shown = usage(chat_template, stop=("\n",)).markdown("unused", is_adapter=False)
    (tmp_path / "ask.py").write_text(code(shown))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "ask.py")],
        cwd=model,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_prompt_is_shown_as_it_was_rendered():
    lines = usage("none", text="Text: T\nQuestion: Q\nAnswer:", stop=("\n",))
    shown = lines.markdown("me/model", is_adapter=True)
    assert r'prompt = "Text: T\nQuestion: Q\nAnswer:"' in shown
    assert 'vllm serve "me/model" --enable-lora --lora-modules trained=.' in shown
    assert r'"stop": ["\n"], "prompt": "..."' in shown and "v1/completions" in shown
    assert usage("conversation").text == 'User: Who wrote "it"?\nBe brief.\n\nAssistant:'
    chat = usage("model").markdown("me/model", is_adapter=True)
    assert "apply_chat_template" in chat and "v1/chat/completions" in chat


def test_arguments_of_the_chat_template_are_shown():
    arguments = {"enable_thinking": False, "date": "today"}
    shown = Usage("solver", CHAT, "model", 1.0, 1.0, 8, [], arguments).markdown(
        "m", is_adapter=False
    )
    assert "return_dict=True, enable_thinking=False, date='today')" in shown
    assert '"chat_template_kwargs": {"enable_thinking": false, "date": "today"}' in shown
    assert "chat_template_kwargs" not in usage("model").markdown("m", is_adapter=False)


def test_a_long_prompt_is_left_out():
    shown = usage("none", text="word " * 2000).markdown("m", is_adapter=False)
    assert len(shown) < 3000 and "too long to be shown here" in shown


def test_the_code_never_ends_its_block_early():
    """A document may hold a fence of Markdown."""
    shown = usage("none", text="```\nprint()\n```").markdown("m", is_adapter=False)
    compile(code(shown), "card", "exec")


def sampled(place: Place, label: str, role: str, text: str, num_samples: int) -> Table:
    """Rollouts of one prompt, which has this text."""
    prompt_id = f"asked-{label}"
    asked = row("prompts", prompt_id=prompt_id, messages=[{"role": "user", "content": text}])
    publish(place, "prompts", asked, label=label)
    sampling = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 9, "stop": []}
    params = {"sampling": sampling, "dialogue": {"chat_template": "model"}}
    with place.store.draft(ROLLOUTS) as draft:
        for i in range(num_samples):
            ids = {"rollout_id": f"{label}-{i}", "prompt_id": prompt_id}
            draft.write([row("rollouts", **ids, role=role)])
        recipe = {"key": "k", "params": params}
        return place.store.publish(draft, place.address("rollouts", label), recipe)


def test_a_card_shows_the_role_that_was_trained_and_not_the_one_that_spoke_most(
    store: Store, place: Place
) -> None:
    """A judge gives many verdicts on each answer."""
    sampled(place, "grade", "judge", "You grade an answer.", num_samples=6)
    sampled(place, "solver", "solver", "Solve the task.", num_samples=3)
    sampled(place.step(9), "solver", "solver", "Another step.", num_samples=9)
    ids = ("solver-0", "solver-1", "grade-0")
    publish(place, "batches", *(row("batches", rollout_id=name, advantage=1.0) for name in ids))
    shown = usage_of(store, "r", [updates(place)])
    assert shown is not None and shown.role == "solver"
    assert shown.messages == [{"role": "user", "content": "Solve the task."}]


def test_without_a_batch_a_card_shows_the_role_that_spoke_most(store: Store, place: Place) -> None:
    sampled(place, "few", "judge", "You grade an answer.", num_samples=1)
    sampled(place, "many", "solver", "Solve the task.", num_samples=2)
    shown = usage_of(store, "r", [updates(place)])
    assert shown is not None and shown.role == "solver"
