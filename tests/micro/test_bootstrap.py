import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from data.micro.training import bootstrap, drills, grading, screening, transcripts
from data.micro.training.bars import BASE, GRADER, Bar, exchanges, passed
from data.micro.training.bootstrap import Phase, make_grader, train
from data.micro.training.grading import (
    base_grading,
    direct_verdict,
    made_up_answer,
    quoting_verdict,
    statements,
)
from data.micro.training.model import (
    BLOCKED,
    HEADS,
    KV_HEADS,
    MicroModel,
    load_checkpoint,
    rotate,
    save_checkpoint,
)
from data.micro.training.packing import collate, encode, pack, tokens_of
from data.micro.training.sampler import answers, last_element, sample
from data.micro.training.tokenizer import vocabulary
from data.micro.training.transcripts import Transcript, user
from flows.worlds.encyclopaedia import (
    NAMES,
    VALUES,
    World,
    criterion,
    fact,
    held_out_tasks,
    states,
)

E = NAMES[0]
F = NAMES[1]
CRAFT = VALUES["craft"][0]
OTHER_CRAFT = VALUES["craft"][1]
FOOD = VALUES["food"][0]
ALL_DRAWS = [
    transcripts.challenger,
    transcripts.solver,
    screening.rubric_writer,
    screening.entity_gate,
    screening.source_gate,
    drills.copy_drill,
    drills.lookup_drill,
    drills.chain_drill,
    drills.confusable_drill,
    drills.listing_drill,
    base_grading,
]


@pytest.fixture
def model() -> MicroModel:
    torch.manual_seed(0)
    return MicroModel()


def logits_of(model: MicroModel, ids: list[int]) -> torch.Tensor:
    length = len(ids)
    causal = torch.full((1, length, length), BLOCKED).triu(1)
    with torch.no_grad():
        return model.logits(model(torch.tensor([ids]), torch.arange(length)[None], causal))[0]


def test_a_fresh_models_first_heads_look_one_to_four_tokens_back(model):
    length = 24
    attention = model.model.layers[0].self_attn
    rotation = (model.cosine[None, None, :length], model.sine[None, None, :length])
    x = model.model.layers[0].input_layernorm(
        model.model.embed_tokens(torch.randint(4, 600, (1, length)))
    )
    q = rotate(attention.q_proj(x).view(1, length, HEADS, -1).transpose(1, 2), rotation)
    k = rotate(attention.k_proj(x).view(1, length, KV_HEADS, -1).transpose(1, 2), rotation)
    scores = q @ k.repeat_interleave(HEADS // KV_HEADS, 1).transpose(-1, -2)
    scores += torch.full((length, length), BLOCKED).triu(1)
    assert [(length - 1 - scores[0, head, -1].argmax()).item() for head in range(HEADS)] == [
        1,
        2,
        3,
        4,
    ]


def test_a_branch_in_a_packed_row_is_predicted_as_if_it_stood_alone(model):
    trunk = [(f"{E} has craft {CRAFT} .", 0.0)]
    branches = [[(f"about {E} . {E} has food", 1.0)], [(f"tell something like {F} .", 1.0)]]
    rows = [
        [tokens_of(Transcript([("no results yet ?", 1.0)])), tokens_of(Transcript(trunk, branches))]
    ]
    batch = collate(rows, 0.0, random.Random(0), row_tokens=64)
    with torch.no_grad():
        packed = model.logits(model(batch.ids, batch.positions, batch.bias))[0]
    first = len(encode("no results yet ?")) + len(encode(trunk[0][0]))
    for branch in branches:
        alone = encode(trunk[0][0]) + encode(branch[0][0])
        length = len(encode(branch[0][0]))
        expected = logits_of(model, alone)[-length:]
        torch.testing.assert_close(packed[first : first + length], expected, atol=1e-4, rtol=1e-4)
        first += length


def test_only_what_is_said_is_a_target_and_no_branch_is_predicted_from_its_neighbour():
    transcript = Transcript(
        [("the craft of", 0.0), (E, 1.0)], [[("yes", 1.0), ("1", 2.0)], [("no", 1.0), ("0", 2.0)]]
    )
    batch = collate([[tokens_of(transcript)]], 0.0, random.Random(0), row_tokens=16)
    predicted = [vocabulary()[i] for i in batch.ids.reshape(-1)[batch.targets + 1].tolist()]
    assert predicted == [E, "1", "0"]
    assert batch.weights.tolist() == [1.0, 2.0, 2.0]


def test_packing_keeps_every_transcript_whole_and_leaves_out_what_is_longer_than_a_row():
    pool = [
        tokens_of(Transcript([(" ".join(["the"] * length), 1.0)])) for length in (5, 3, 9, 4, 2, 20)
    ]
    rows = pack(pool, row_tokens=10)
    assert sorted(sorted(len(t.ids) for t in row) for row in rows) == [[2, 3], [4, 5], [9]]


@pytest.mark.parametrize("draw", ALL_DRAWS, ids=lambda draw: draw.__name__)
def test_every_word_of_a_transcript_is_in_the_vocabulary(draw):
    world = World(4, 40)
    rng = random.Random(4)
    words = set(vocabulary())
    for _ in range(100):
        transcript = draw(world, rng)
        said = [segment for part in [transcript.trunk, *transcript.branches] for segment in part]
        assert {word for text, _ in said for word in text.split()} <= words
        assert any(weight >= 1.0 for _, weight in said)


def test_the_rubric_writer_learns_the_true_facts_of_the_task_in_its_order():
    world = World(7, 60)
    for prompt, reply in exchanges(screening.rubric_writer, 100, seed=7):
        document = prompt.split(" : document : ")[1].split(" task : ")[0]
        for stated in statements(reply.split("</think>")[1]):
            assert world.facts[stated[1]][stated[0]] == stated[2]
            assert stated[2] in document.split()


@pytest.mark.parametrize(
    ("answer", "sought", "reply"),
    [
        (
            fact("craft", E, CRAFT),
            ("craft", E, CRAFT),
            f"craft of {E} yes : {CRAFT} yes . </think> <score> 1",
        ),
        (
            fact("craft", E, OTHER_CRAFT),
            ("craft", E, CRAFT),
            f"craft of {E} yes : {OTHER_CRAFT} no . </think> <score> 0",
        ),
        (
            fact("craft", F, CRAFT),
            ("craft", E, CRAFT),
            f"craft of {F} no : {CRAFT} yes . </think> <score> 0",
        ),
        (fact("food", E, FOOD), ("craft", E, CRAFT), "craft of no no : no no . </think> <score> 0"),
        (
            f"{fact('craft', F, OTHER_CRAFT)} {fact('craft', E, CRAFT)}",
            ("craft", E, CRAFT),
            f"craft of {E} yes : {CRAFT} yes . </think> <score> 1",
        ),
        (
            f"{E} has craft {CRAFT}",
            ("craft", E, CRAFT),
            "craft of no no : no no . </think> <score> 0",
        ),
    ],
)
def test_the_grader_quotes_the_best_fitting_statement_before_it_decides(answer, sought, reply):
    text = " ".join(words for words, _ in quoting_verdict(answer, sought))
    assert text == f"<think> {reply} </score> <|im_end|>"
    assert [words for words, _ in direct_verdict(answer, sought)][1] == reply[-1]


def test_half_or_less_of_the_made_up_answers_are_damaged_and_none_is_empty():
    rng = random.Random(0)
    made = [made_up_answer(rng) for _ in range(300)]
    assert all(made)
    whole = [" ".join(fact(*s) for s in statements(answer)) == answer for answer in made]
    assert 0.7 < sum(whole) / 300 < 0.9


def test_a_saved_checkpoint_gives_transformers_the_same_words(model, tmp_path):
    save_checkpoint(model, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = encode(f"{E} has craft {CRAFT} . {E} has craft")
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(
        logits_of(load_checkpoint(tmp_path), ids), expected, atol=1e-4, rtol=1e-4
    )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer(f"{E} has craft")["input_ids"] == ids[:3]


def test_the_same_seed_trains_the_same_weights(tmp_path):
    phases = (Phase("copying", 4000, 3e-3, 3e-4, {drills.copy_drill: 1.0}, context_share=0.1),)
    weights = []
    for name in ("first", "second"):
        torch.manual_seed(1)
        trained = MicroModel()
        train(trained, phases, 1, tmp_path / name)
        weights.append(trained.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_bar_outside_its_range_fails_the_table_and_one_only_shown_does_not(capsys):
    good = Bar("a", 0.5, 9, 0.4, 0.6)
    bad = Bar("b", 0.7, 9, 0.4, 0.6)
    shown = Bar("c", 0.0, 9, 0.4, 0.6, gates=False)
    assert passed(iter([good, shown]))
    assert not passed(iter([good, bad]))
    assert "FAILS" in capsys.readouterr().out


@pytest.mark.parametrize("resume", [0, 1])
def test_the_grader_goes_on_from_its_unfinished_checkpoint_if_it_is_resumed(
    model, tmp_path, monkeypatch, resume
):
    unfinished, base = tmp_path / "grader.unfinished", tmp_path / "base"
    save_checkpoint(model, unfinished)
    save_checkpoint(MicroModel(), base)
    began = []
    monkeypatch.setattr(grading, "real_answers", lambda *_, **__: [])
    monkeypatch.setattr(bootstrap, "train", lambda *given: began.append(given))
    monkeypatch.setattr(bootstrap, "grading_bars", lambda *_: iter(()))
    assert list(make_grader(unfinished, 0, resume, base)) == []
    [(trained, phases, _, folder, first_phase)] = began
    start = load_checkpoint(unfinished if resume else base)
    for name, values in start.state_dict().items():
        torch.testing.assert_close(trained.state_dict()[name], values, rtol=0, atol=0)
    assert len(phases) == 2 and folder == unfinished and first_phase == resume


def test_the_sampler_gives_the_words_that_transformers_gives():
    theirs = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    prompts = [prompt for prompt, _ in exchanges(screening.rubric_writer, 3, seed=5)]
    for prompt, reply in zip(
        prompts, sample(load_checkpoint(BASE), prompts, temperature=0), strict=True
    ):
        ids = tokenizer(prompt, return_tensors="pt")
        out = theirs.generate(**ids, max_new_tokens=len(reply.split()), do_sample=False)
        assert tokenizer.decode(out[0, ids["input_ids"].shape[1] :]) == reply


def test_the_committed_solver_answers_in_format_and_leaves_room_to_learn():
    world = World(7, 60)
    tasks = held_out_tasks(7, 80)
    given = answers(load_checkpoint(BASE), [task.text for task in tasks], world, seed=1)
    assert sum(answer is not None for answer in given) >= 76
    met = [
        sum(states(answer or "", c.removeprefix("Provides ")) for c in task.criteria)
        / len(task.criteria)
        for task, answer in zip(tasks, given, strict=True)
    ]
    assert 0.15 < sum(met) / 80 < 0.55


def test_the_committed_grader_passes_stated_facts_and_fails_swapped_and_missing_ones():
    world = World(8, 60)
    rng = random.Random(8)
    prompts = []
    wanted = []
    for _ in range(60):
        task, _ = world.draw_task(rng, 0)
        facts = world.true_facts(task) or []
        relation, entity, value = statements(facts[0])[0]
        swapped = fact(relation, entity, next(v for v in VALUES[relation] if v != value))
        for answer, verdict in ((facts, "1"), (facts[1:], "0"), ([swapped, *facts[1:]], "0")):
            prompts.append(user("grade", answer=" ".join(answer), criterion=criterion(facts[0]))[0])
            wanted.append(verdict)
    verdicts = [
        last_element(r, "score") for r in sample(load_checkpoint(GRADER), prompts, temperature=0)
    ]
    assert sum(v == w for v, w in zip(verdicts, wanted, strict=True)) >= 176
