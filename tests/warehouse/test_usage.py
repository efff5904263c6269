"""The section of a model card that says how to ask the model; its code is run."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from warehouse.usage import Usage

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


def test_a_long_prompt_is_left_out():
    shown = usage("none", text="word " * 2000).markdown("m", is_adapter=False)
    assert len(shown) < 3000 and "too long to be shown here" in shown


def test_the_code_never_ends_its_block_early():
    """A document may hold a fence of Markdown."""
    shown = usage("none", text="```\nprint()\n```").markdown("m", is_adapter=False)
    compile(code(shown), "card", "exec")
