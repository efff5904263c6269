"""The prompts `lines`: how a base model's continuation is read, and how short an answer must be."""

from functools import partial

import pytest

from flows.settings import profile
from flows.spell.config import Config
from flows.spell.readers import LONG_ANSWER, NO_PENALTY, read_questioner, read_short
from flows.spell.roles import Roles, propose, respond
from tasks.prompt import Malformed
from tasks.readers import lines
from tasks.readers.lines import read_vote
from tests.support.rows import row

EXAMPLE = "Text: [Bob] Bob left Rome.\nQuestion: who left? Answer: Bob\n\n"
PROMPT = EXAMPLE + "Text: [Ada] Ada was born in London in 1815.\nQuestion:"


def read(reply, most_words=None):
    rollout = {"reply": reply, "finish_reason": "final"}
    prompt = {"messages": [{"role": "user", "content": PROMPT}]}
    return read_questioner(rollout, prompt, model="unused", most_words=most_words, in_lines=True)


@pytest.mark.parametrize(
    ("reply", "question", "answer"),
    [
        (" where was ada born? Answer: London\n", "where was ada born?", "London"),
        (
            " when was ada born? answer: in 1815.\n\nText: [Eve] Eve left Answer: Rome",
            "when was ada born?",
            "in 1815",
        ),
        ("who said that the answer is no? Answer: Ada", "who said that the answer is no?", "Ada"),
    ],
)
def test_a_question_and_its_answer_stand_on_the_first_line(reply, question, answer):
    assert read(reply) == {
        "text": question,
        "reference": answer,
        "answer_type": "text",
        "options": None,
    }


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no question with its answer on one line"),
        (" where was ada born?\nAnswer: London", "no question with its answer on one line"),
        (" Answer: London", "no question with its answer on one line"),
        # it is in the worked example
        (" where? Answer: Rome", "the answer is not in the text"),
        (" where? Answer: .", "the answer is not in the text"),
        (" was ada born in London? Answer: London", "the question gives its answer away"),
    ],
)
def test_a_question_that_cannot_be_used_says_why(reply, reason):
    with pytest.raises(Malformed, match=reason):
        read(reply)


def test_a_question_whose_answer_has_too_many_words_is_left_out_without_penalty():
    assert read(" where? Answer: born in London", 3)["reference"] == "born in London"
    with pytest.raises(Malformed, match=LONG_ANSWER):
        read(" where? Answer: born in London", 2)
    assert LONG_ANSWER in NO_PENALTY


def test_an_answer_is_the_first_line_of_so_many_words():
    answer = partial(read_short, read=lines.read_answer, most_words=2)
    assert answer(" Ada Lovelace\nQuestion: who") == "Ada Lovelace"
    for reply, reason in (
        (" Ada King Lovelace", "more than 2 words"),
        (" \n ", "no answer is stated"),
        (" The answer is:", "no answer is stated"),
        (" The answer to this question is: ", "no answer is stated"),
        (" Answer: \n", "no answer is stated"),
    ):
        with pytest.raises(Malformed, match=reason):
            answer(reply)


def test_a_vote_is_the_first_word():
    assert [read_vote(reply) for reply in (" yes", " No, they are not\nyes")] == [1, 0]
    with pytest.raises(Malformed, match="no verdict"):
        read_vote(" perhaps yes")


@pytest.fixture(scope="module")
def cfg():
    return profile.load(Config, "smollm2")


def test_every_role_is_asked_for_the_rest_of_a_line(cfg):
    """The last line of the prompt ends without a blank, since these models' tokens begin with
    one."""
    roles = Roles(cfg)
    document = Roles(cfg).questioner.variables.keywords["document"]
    text = [row("documents", document_id="a", title="Ada", text="Ada was\nborn.")]
    sample = row(
        "samples",
        sample_id="s",
        document_id="a",
        document_ids=["a"],
        task_type="general_qa",
        cluster=0,
    )
    memory = row(
        "memories",
        cluster=0,
        task_type="general_qa",
        text="who?",
        reference="Ada",
        document_ids=["a"],
    )
    task = row("tasks", task_id="t", document_id="a", task_type="general_qa", text="who was born?")
    [about] = respond(
        [task], text, [row("memberships", document_id="a", cluster=0)], document=document
    )
    [asks], [again] = (
        propose([sample], text, known, document=document) for known in ([], [memory])
    )
    rendered = {t.name: t for t in (*roles.questioner.templates, *roles.responder.templates)}
    ends = {
        name: rendered[name].render(**a) for a in (about, asks, again) if (name := a["template"])
    }
    assert (
        ends["responder_general_qa"]
        == "Text: [Ada] Ada was born.\nQuestion: who was born?\nAnswer:"
    )
    assert ends["questioner_general_qa"].endswith("\n\nText: [Ada] Ada was born.\nQuestion:")
    assert ends["questioner_general_qa_again"].endswith(
        "[Ada] Ada was born.\nQuestion: who? Answer: Ada\nQuestion:"
    )


def test_the_profile_asks_without_a_chat_template_and_stops_at_the_end_of_a_line(cfg):
    for role in (Roles(cfg).questioner, Roles(cfg).responder, Roles(cfg).verifier):
        assert role.dialogue.chat_template == "none" and role.sampling.stop == ("\n",)
        assert role.sampling.top_p == 1.0


def test_a_baseline_is_asked_with_its_own_prompts_and_template(cfg):
    few = cfg.evaluation.baselines[1]
    instructed = cfg.evaluation.baselines[2]
    roles = Roles(cfg)
    plain, shots, chat = (
        roles.held_out_responder(cfg, 640, baseline) for baseline in (None, few, instructed)
    )
    assert [role.sampling.temperature for role in (plain, shots, chat)] == [0, 0, 0]
    assert [role.dialogue.chat_template for role in (plain, shots, chat)] == [
        "none",
        "none",
        "model",
    ]
    rest = plain.templates[0].text
    assert (
        shots.templates[0].text.endswith(rest) and shots.templates[0].text.count("\nAnswer: ") == 5
    )


def test_held_out_contexts_are_shown_in_one_line_as_documents_are_in_training():
    cfg = profile.load(Config, "smollm2", {"models.base": "data/micro/base"})
    text = row("documents", document_id="a", text="Ada was born.\nShe grew up.")
    task = row("tasks", task_id="t", document_id="a", task_type="general_qa", text="who?")
    for baseline in (None, *cfg.evaluation.baselines[:2]):
        role = Roles(cfg).held_out_responder(cfg, 640, baseline)
        (values,) = role.variables([task], [text])
        (template,) = role.templates
        shown = template.render(**values)
        assert shown.endswith("Text: Ada was born. She grew up.\nQuestion: who?\nAnswer:")


def test_lines_ask_one_type_of_question():
    with pytest.raises(ValueError, match=r'set task_types = \["general_qa"\]'):
        profile.load(Config, "smollm2", {"task_types": ["general_qa", "finance_math"]})


def test_held_out_lengths_count_only_where_there_is_a_benchmark():
    longer = {"evaluation.input_tokens": [16384]}
    with pytest.raises(ValueError, match=r"do not fit into engine\.max_model_len 704"):
        profile.load(Config, "smollm2", longer)
    assert (
        profile.load(
            Config, "smollm2", {**longer, "evaluation.benchmark": "none"}
        ).engine.max_model_len
        == 704
    )
