"""Lengths depend only on the text, whatever a tokenizer was last used for."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from tasks.readers.malformed import Malformed
from tasks.rollouts.tokens import count_tokens, cut_middle, cut_tokens, element_ids
from tests.support.scripted_play import any_text_model


@pytest.fixture
def model(tmp_path) -> str:
    """A folder like an embedding model's: its tokenizer truncates texts to 4 tokens and pads to
    8."""
    tokenizer = Tokenizer(WordLevel({"<pad>": 0, "<unk>": 1}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8, pad_token="<pad>")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path)


def test_a_tokenizer_that_cuts_and_fills_up_still_counts_every_word(model):
    assert [count_tokens(" ".join(["word"] * length), model) for length in (0, 1, 4, 9)] == [
        0,
        1,
        4,
        9,
    ]


def test_cuts_keep_what_they_say(model):
    text = "a b c d e f g h i"
    assert cut_middle(text, model, 5) == "a b ch i"
    assert cut_tokens(text, model, 6) == "a b c d e f"


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(ValueError, match="has no tokenizer"):
        count_tokens("a", str(tmp_path))


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("<think>é 🌙 <task>no</task></think>\n<task>Write of Arvel.</task>", "Write of Arvel."),
        ("Here:<task>\n\n  Why 🌙?\n</task> done", "Why 🌙?"),
        ("<task>a</task>", "a"),
    ],
)
def test_the_tokens_of_an_element_are_those_that_were_sampled(tmp_path, said, content):
    """Byte pairs: a tag may end in the middle of a token, and a letter may be several tokens."""
    model = str(any_text_model(tmp_path / "model"))
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    ids = tokenizer.encode(said, add_special_tokens=False).ids
    tag, inside = element_ids(ids, model, "task")
    assert (tag + inside) in [ids[i : i + len(tag + inside)] for i in range(len(ids))]
    opening, text = (tokenizer.decode(some, skip_special_tokens=False) for some in (tag, inside))
    assert opening.strip() == "<task>"
    assert content in text and text.strip().removesuffix("</").strip() == content


@pytest.mark.parametrize("said", ["<think><task>a</task></think>", "<task>a", "<task> </task>"])
def test_without_an_element_that_says_something_there_are_no_tokens_of_it(tmp_path, said):
    model = str(any_text_model(tmp_path / "model"))
    ids = Tokenizer.from_file(f"{model}/tokenizer.json").encode(said, add_special_tokens=False).ids
    with pytest.raises(Malformed):
        element_ids(ids, model, "task")
