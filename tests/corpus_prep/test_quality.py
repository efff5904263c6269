"""Which documents the quality rules keep."""

import pytest

from corpus_prep.read.quality import QualityRules, first_failing, gopher, language_of

PROSE = (
    "The bridge was built by the town in the year of the flood, and it has carried carts to the"
    " market with no repair that anybody can remember. It is said that the mason left a coin under"
    " the third stone.\nPeople who cross it at night tell that the river sounds like a choir, but"
    " the miller says it is only the weir."
)


@pytest.mark.parametrize(
    ("text", "score", "language", "rules", "reason"),
    [
        ("x" * 99, None, None, QualityRules(), "too_short"),
        ("x" * 100, None, None, QualityRules(), None),
        ("x" * 32_768, None, None, QualityRules(), None),
        ("x" * 32_769, None, None, QualityRules(), "too_long"),
        ("x" * 32_769, None, None, QualityRules(max_chars=None), None),
        (PROSE, 0.99, None, QualityRules(min_score=1.0), "low_score"),
        (PROSE, 1.0, None, QualityRules(min_score=1.0), None),
        (PROSE, None, None, QualityRules(min_score=0.0), "low_score"),
        (PROSE, None, "fr", QualityRules(languages=("en", "de")), "other_language"),
        (PROSE, None, "en", QualityRules(languages=("en", "de")), None),
        (PROSE, None, None, QualityRules(heuristics="gopher"), None),
    ],
)
def test_the_first_broken_rule_is_the_reason(text, score, language, rules, reason):
    assert first_failing(text, score, language, rules) == reason


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (PROSE.replace(" ", ""), "num_words"),
        ("a the of " * 30, "mean_word_length"),
        (
            "incomprehensibilities the and with " * 2 + "counterrevolutionary " * 50,
            "mean_word_length",
        ),
        (PROSE + " #hash" * 12, "symbols"),
        (
            "\n".join(
                f"- {i} {line}" for i, line in enumerate(PROSE.replace("\n", " ").split(" that "))
            ),
            "bullets",
        ),
        ("\n".join(f"{i} {PROSE[:120]} ..." for i in range(4)), "ellipses"),
        (PROSE + " 1234" * 20, "few_letters"),
        ("lorem ipsum dolor amet consectetur " * 20, "few_stop_words"),
        ("\n".join([PROSE.replace("\n", " ")] * 3), "repeated_lines"),
        ("\n".join([PROSE.replace("\n", " ")] * 2 + list("abcdefg")), "repeated_characters"),
    ],
)
def test_each_rule_of_gopher_finds_its_text(text, rule):
    assert gopher(text) == rule


ZH = (
    "北京是中华人民共和国的首都，也是全国的政治和文化中心。城市历史悠久，人口众多，"
    "每年吸引大量游客前来参观。\n"
)
KO = (
    "서울은 대한민국의 수도이며 가장 큰 도시이다. 강을 따라 발전한 이 도시는 오랜 역사와 많은"
    " 문화재를 가지고 있다.\n"
)


@pytest.mark.parametrize(("text", "language"), [(ZH, "zh"), (KO, "ko")])
def test_prose_of_other_languages_passes_gophers_rules_and_too_little_of_it_does_not(
    text, language
):
    prose = "\n".join(f"{n} {text}" for n in range(5))
    assert (language_of(prose), gopher(prose, language), gopher(text, language)) == (
        language,
        None,
        "num_words",
    )


def test_languages_are_told_apart():
    texts = {
        "en": PROSE,
        "de": "Die Brücke wurde von der Stadt gebaut, und niemand weiß mehr, wann das war.",
        "fr": "Le pont a été construit par la ville, et personne ne sait plus quand c'était.",
    }
    assert {code: language_of(text) for code, text in texts.items()} == {
        code: code for code in texts
    }
