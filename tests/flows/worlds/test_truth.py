"""The oracle of duplicate removal, compared with sets worked by hand."""

from tests.support.truth import defined_shingles, exact_join, families, judge, word_shingles


def test_shingles_are_runs_of_five_words_and_a_text_of_fewer_is_one():
    assert word_shingles("To be, or not to BE") == {"to be or not to", "be or not to be"}
    assert defined_shingles("snake_case") == {"snake case"}
    assert word_shingles("snake_case") == {"snake_case"}
    assert defined_shingles("\u5317\u4eac x") == {"\u5317 \u4eac x"}


def test_texts_without_words_are_alike_only_where_they_are_equal():
    assert exact_join([defined_shingles(text) for text in (".", "|", ".", "", "")], 0.8) == {
        (0, 2): 1,
        (3, 4): 1,
    }


def test_the_join_has_pairs_right_at_the_threshold_and_none_below():
    words = list("abcdefghi")
    texts = [" ".join(words[:8]), " ".join(words[:9]), " ".join(words[:7])]  # 4, 5 and 3 shingles
    assert exact_join([word_shingles(text) for text in texts], 0.8) == {(0, 1): 4 / 5}
    assert exact_join([word_shingles(text) for text in texts], 0.75) == {
        (0, 1): 4 / 5,
        (0, 2): 3 / 4,
    }


def test_families_are_joined_through_others():
    assert sorted(map(sorted, families({(1, 2): 0.9, (5, 6): 0.9, (2, 5): 0.8, (7, 9): 1}))) == [
        [1, 2, 5, 6],
        [7, 9],
    ]


def test_a_removal_is_justified_by_who_stayed():
    chain = {(0, 1): 0.9, (1, 2): 0.8, (4, 5): 1.0}
    assert judge({1, 2, 5}, chain) == (2, 1, 0, 0)  # 2 resembles 0 only through 1
    # none of the first family stayed, both of the second did
    assert judge({0, 1, 2}, chain) == (0, 0, 3, 1)
    assert judge({1, 3}, chain) == (1, 0, 1, 2)  # 3 resembles nothing
    assert judge({1, 3}, chain).recall == 1 / 3
