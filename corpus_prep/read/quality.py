"""Filter documents by length, language, a score that the corpus states, and published heuristics.

The heuristics are not datatrove's, which need another library's word tokenizer for every language.
"""

import re
from collections import Counter
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from corpus_prep.scripts import UNSPACED_CLASS

LANGUAGE_CHARS = 2_000  # enough to identify a language
STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}
PAIR = re.compile(f"[{UNSPACED_CLASS}]{{1,2}}")
BULLETS = ("•", "-", "*", "‣", "◦")


class QualityRules(BaseModel):
    """What a document must satisfy."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    min_chars: int = Field(default=100, ge=0, description="shorter documents are dropped")
    max_chars: int | None = Field(
        default=32_768, ge=1, description="maximum length of a document, or of a piece of one"
    )
    long: Literal["cut", "drop"] = Field(
        default="cut",
        description=(
            "how to handle documents of more than max_chars: cut them into pieces at paragraph and"
            " sentence ends, or drop them"
        ),
    )
    min_score: float | None = Field(
        default=None,
        description="minimum value of the corpus's score column; a document without a score fails",
    )
    languages: tuple[str, ...] = Field(
        default=(),
        description=("ISO 639-1 codes to keep; empty: all are kept, and no language is identified"),
    )
    heuristics: Literal["none", "gopher"] = Field(
        default="none",
        description=(
            "apply the rules of Rae et al. 2021 (arXiv 2112.11446, table A1); of those on"
            " repetition, only the ones about lines; the stop-word rule only for English"
        ),
    )

    @property
    def need_language(self) -> bool:
        """Whether any rule depends on the language of a document."""
        return bool(self.languages) or self.heuristics == "gopher"

    @property
    def piece_chars(self) -> int | None:
        """The most characters of a document that is not cut; None if none is."""
        if self.long == "cut":
            return self.max_chars
        return None


def first_failing(
    text: str, score: float | None, language: str | None, rules: QualityRules
) -> str | None:
    """The first rule that a document breaks, or None. `score` is its quality, `language` its ISO
    639-1 code; None if unknown."""
    if len(text) < rules.min_chars:
        return "too_short"
    if rules.max_chars is not None and len(text) > rules.max_chars:
        return "too_long"
    if rules.min_score is not None and (score is None or score < rules.min_score):
        return "low_score"
    if rules.languages and language not in rules.languages:
        return "other_language"
    if rules.heuristics != "gopher":
        return None
    return gopher(text, language)


def gopher(text: str, language: str | None = None) -> str | None:
    """The first of Gopher's rules that a text breaks, or None.

    In scripts without spaces, two characters count as one word, and word lengths are ignored. Stop
    words, and a mean of three letters per word, are required of English texts and of texts of
    unknown language.

    >>> gopher("one two"), gopher("the " * 200 + "and " * 100), gopher("zzz " * 200)
    ('num_words', None, 'few_stop_words')
    """
    words = PAIR.sub(r" \g<0> ", text).split()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not 50 <= len(words) <= 100_000:
        return "num_words"
    spaced = [word for word in words if not PAIR.match(word)]
    least = 3 if language in (None, "en") else 0  # Korean words are as short
    if len(spaced) > len(words) / 2 and not least <= sum(map(len, spaced)) / len(spaced) <= 10:
        return "mean_word_length"
    if max(text.count("#"), text.count("...") + text.count("…")) / len(words) > 0.1:
        return "symbols"
    if sum(line.startswith(BULLETS) for line in lines) / len(lines) > 0.9:
        return "bullets"
    if sum(line.endswith(("...", "…")) for line in lines) / len(lines) > 0.3:
        return "ellipses"
    if sum(any(c.isalpha() for c in word) for word in words) / len(words) < 0.8:
        return "few_letters"
    if language in (None, "en") and len(STOP_WORDS & {word.lower() for word in words}) < 2:
        return "few_stop_words"
    return _repetition(lines)


def _repetition(lines: list[str]) -> str | None:
    """Gopher's limits on repeated lines, by number and by characters (the same table). Those on
    repeated paragraphs and n-grams are left out."""
    if len(lines) < 2:
        return None
    counts = Counter(lines)
    repeated = [(line, n - 1) for line, n in counts.items() if n > 1]
    if sum(n for _, n in repeated) / len(lines) > 0.3:
        return "repeated_lines"
    if sum(len(line) * n for line, n in repeated) / sum(map(len, lines)) > 0.2:
        return "repeated_characters"
    return None


def language_of(text: str) -> str:
    """ISO 639-1 code of a text's most likely language (py3langid; Lui and Baldwin 2012)."""
    import py3langid  # 0.5 s

    return py3langid.classify(re.sub(r"\s+", " ", text[:LANGUAGE_CHARS]))[0]
