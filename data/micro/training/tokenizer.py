"""The closed vocabulary of the micro-world as a Hugging Face tokenizer; each word is one token."""

import functools

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from flows.worlds.encyclopaedia import ATTRIBUTES, LINKS, NAMES, TASK_SENTENCES, VALUES

PAD = "<pad>"
UNKNOWN = "<unk>"
START = "<|im_start|>"
EOS = "<|im_end|>"
_TAGS = (
    "<think> </think> <search> </search> <information> </information> <task> </task> <answer>"
    ' </answer> <rubrics> </rubrics> <rubric </rubric> priority="critical"> priority="important">'
    ' priority="bonus"> <score> </score>'
)
_WORDS = (
    "system user assistant challenger solver rubrics grade gate entity source : document task"
    " response criterion search format error answer now unknown the of has keeps claims today . ,"
    " and ? what are write a summary covering plan visit to using story about that mentions tell"
    " something towns like places near first enough Provides yes no 0 1 2 3 4 5 6 7 8 9"
)
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m['role'] }} {{ m['content'] }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)


def vocabulary() -> list[str]:
    """All words; a word's index is its token id."""
    values = [value for attribute in ATTRIBUTES for value in VALUES[attribute]]
    words = [PAD, UNKNOWN, START, EOS, *_TAGS.split(), *_WORDS.split(), *TASK_SENTENCES]
    return list(dict.fromkeys([*words, *LINKS, *ATTRIBUTES, *NAMES, *values]))


# a model may know more words; they come after these, which keep their ids
WORDS = tuple(vocabulary())


@functools.cache
def ids_of(words: tuple[str, ...]) -> dict[str, int]:
    return {word: index for index, word in enumerate(words)}


def build_tokenizer(
    max_length: int = 1024, words: tuple[str, ...] = WORDS
) -> PreTrainedTokenizerFast:
    """A tokenizer that splits only on whitespace; an unknown word becomes `<unk>`."""
    word_level = Tokenizer(models.WordLevel(ids_of(words), unk_token=UNKNOWN))
    word_level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=word_level,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=UNKNOWN,
        model_max_length=max_length,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
