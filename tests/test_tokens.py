"""Lengths are those of the text, whatever a tokenizer was last used for."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from tasks.rollouts.tokens import count_tokens, cut_middle, cut_tokens


@pytest.fixture
def model(tmp_path) -> str:
    """A folder like an embedding model's: its tokenizer cuts texts to 4 tokens and fills up to 8."""
    tokenizer = Tokenizer(WordLevel({"<pad>": 0, "<unk>": 1}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8, pad_token="<pad>")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path)


def test_a_tokenizer_that_cuts_and_fills_up_still_counts_every_word(model):
    assert [count_tokens(" ".join(["word"] * length), model) for length in (0, 1, 4, 9)] == [0, 1, 4, 9]


def test_cuts_keep_what_they_say(model):
    text = "a b c d e f g h i"
    assert cut_middle(text, model, 5) == "a b ch i"
    assert cut_tokens(text, model, 6) == "a b c d e f"


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(ValueError, match="has no tokenizer"):
        count_tokens("a", str(tmp_path))
