"""Prompts without a chat template, and special tokens in text from outside."""

import pytest
from tokenizers.processors import TemplateProcessing

from tasks.models.engine import Sampling
from tasks.rollouts.neutral import special_tokens_of
from tasks.rollouts.rollout import Dialogue, roll_out
from tests.support.scripted import POLICY, ScriptedEngine

SAMPLING = Sampling(max_tokens=20, stop=("moon",))
BARE = Dialogue(chat_template="none")
MARKS = ("<file_sep>", "<|im_start|>")  # special tokens without a role in the prompt, as in SmolLM2


def contexts(content, dialogue=BARE, begins=False):
    """The engine's prompts, as words, and the row."""
    engine = ScriptedEngine(lambda key, text: "red <|im_end|>")
    engine.tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
    if begins:
        ids = [("<pad>", engine.tokenizer.pad_token_id)]
        engine.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single="<pad> $A", special_tokens=ids
        )
    prompt = {
        "prompt_id": "p",
        "role": "r",
        "messages": [{"role": "user", "content": content}],
        "search_turns": None,
    }
    [row] = roll_out(engine, [prompt], POLICY, SAMPLING, dialogue)
    return engine.tokenizer.convert_ids_to_tokens(row["turns"][0]["context_token_ids"]), row


def test_without_a_chat_template_the_model_goes_on_from_the_prompt_itself():
    context, row = contexts("a b c")
    assert context == ["a", "b", "c"]
    assert (row["reply"], row["finish_reason"]) == ("red", "final")
    assert contexts("a b c", Dialogue())[0][:2] == ["<|im_start|>", "user"]


def test_a_tokenizer_that_begins_every_text_with_a_token_does_so_without_a_chat_template_only():
    assert contexts("a b", begins=True)[0] == ["<pad>", "a", "b"]
    assert "<pad>" not in contexts("a b", Dialogue(), begins=True)[0]


def test_a_conversation_names_the_speakers_for_a_model_without_a_chat_template():
    prompt = {"prompt_id": "p", "role": "r", "search_turns": None}
    prompt["messages"] = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    engine = ScriptedEngine(lambda key, text: "red")
    [row] = roll_out(engine, [prompt], POLICY, SAMPLING, Dialogue(chat_template="conversation"))
    words = engine.tokenizer("a\n\nUser: b\n\nAssistant:", add_special_tokens=False)["input_ids"]
    assert row["turns"][0]["context_token_ids"] == words


@pytest.mark.parametrize("dialogue", [BARE, Dialogue()])
def test_a_special_token_in_a_prompt_is_no_special_token(dialogue):
    harmless = contexts("a c b", dialogue)[0]
    hostile = contexts("a <file_sep> <|im_start|> <|im_end|> b", dialogue)[0]
    for mark in (*MARKS, "<|im_end|>"):
        assert hostile.count(mark) == harmless.count(mark)


def test_special_tokens_are_all_that_a_tokenizer_reads_as_one_and_not_its_other_added_words():
    tokenizer = ScriptedEngine(lambda key, text: "").tokenizer
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
    tokenizer.add_tokens(["moonlight"])
    assert special_tokens_of(tokenizer) == (
        "<|im_start|>",
        "<file_sep>",
        "<|im_end|>",
        "<pad>",
        "<unk>",
    )


def test_what_stands_between_turns_of_a_conversation_without_a_template_is_the_message_alone():
    dialogue = Dialogue(chat_template="none", final="answer", max_turns=2, format_error="b c")
    engine = ScriptedEngine(lambda key, text: "<answer> red </answer>" if "b c" in text else "sun")
    prompt = {
        "prompt_id": "p",
        "role": "r",
        "messages": [{"role": "user", "content": "a"}],
        "search_turns": None,
    }
    [row] = roll_out(engine, [prompt], POLICY, SAMPLING, dialogue)
    first, second = row["turns"]
    assert engine.tokenizer.decode(second["context_token_ids"]) == "b c"
    assert (first["text"], row["finish_reason"]) == ("sun", "final")
