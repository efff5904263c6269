"""Searches that run beside an engine on a GPU."""

import threading

import pytest

from tests.support.conversations import TALK, Library, converse, prompt, script
from tests.support.scripted import ScriptedEngine


@pytest.mark.parametrize("reasoning", [False, True])
def test_searches_beside_an_engine_on_a_gpu_make_the_same_rows(reasoning):
    """Six conversations: some search once or twice, one fails, one answers at once."""

    def reply(_, text):
        turns = text.count("assistant") - 1
        return ("<answer> moon </answer>", "a", "<search> sun </search>")[(len(text) + turns) % 3]

    made = []
    for is_on_gpu in (False, True):
        engine = ScriptedEngine(reply)
        library = Library()
        engine.is_on_gpu = is_on_gpu
        dialogue = TALK.model_copy(update={"reasoning": reasoning})
        prompts = [prompt("p"), prompt("q", "a b c")]
        rows = converse(engine, dialogue, library, prompts, group_size=3)
        made.append(sorted(rows, key=lambda row: row["rollout_id"]))
        assert library.batches
    assert made[0] == made[1]


def test_an_engine_on_a_gpu_works_for_others_while_one_searches():
    """The second of two conversations searches; the first is answered before that search
    returns."""
    released = threading.Event()

    class Slow(Library):
        def search(self, queries, k):
            assert released.wait(600)
            return super().search(queries, k)

    def reply(key, text):
        if key == 1 and text.count("assistant") == 1:
            return "<search> moon </search>"
        released.set()
        return "<answer> red </answer>"

    engine = ScriptedEngine(reply)
    engine.is_on_gpu = True
    rows = converse(engine, library=Slow(), group_size=2)
    assert [row["num_searches"] for row in rows] == [0, 1]


def test_a_search_that_fails_beside_the_engine_is_the_callers_failure():
    class Broken(Library):
        def search(self, queries, k):
            raise OSError("the index is gone")

    engine = ScriptedEngine(script("<search> moon </search>"))
    engine.is_on_gpu = True
    with pytest.raises(OSError, match="the index is gone"):
        converse(engine, library=Broken())
