"""SPICE, arXiv 2510.24684: one policy asks questions about documents, and answers them without the
documents. It reads as Algorithm 1.

Departures
- An iteration here is `steps` of the paper's iterations, then a held-out score and a report.
- Attempts are made in growing rounds, for all documents of a step in parallel (`steps.rounds`). An
  attempt is two calls: one chooses a format, the other asks in it. An attempt whose choice is
  unreadable belongs to no group.
- A question's K answers determine its reward and, if it is drawn, are the Reasoner's group (section
  3.1).
- A step is one on-policy optimizer step on all of its trajectories (up to 2,048). The paper has 128
  per gradient update: `trajectories_per_update`.
- A question that refers to its source ("according to the text") is also invalid, since the Reasoner
  does not see the source. The rule also drops a few questions that do not refer to it ("the rest of
  the document").
- A question in a code fence is read like one without: the paper's prompt forbids fences, as do
  ours.
- Backslashes of LaTeX must be escaped, since the format is JSON; otherwise the question is invalid.
- The system message of the paper's Qwen3 template precedes all prompts.
- Prompts are worded for this project. The set `paper` makes the same requests as the paper's
  prompts, but with the options in a separate object and fewer fields in the reply. Our set
  `english` asks only for the question, its options and its answer.
- Only the Challenger's second call is trained. An answer that could not be compared is left out of
  every mean, and counted.
- The means of eq. 3 and 4 are taken over a document's questions and over a question's answers
  (section 2.4: "role-specific expectations").
- A document is shown from its beginning, up to the limit.
- Answers that are neither a letter nor a number are compared without case and markup (section 2.5:
  "exact matching").
- R-Zero's rival reward depends on the share of right answers, as in appendix 10; section 4.3 uses
  the share that agrees with the most frequent answer.
- Mathematics benchmarks are judged by `models.examiner` (in the paper, GPT-4o through simple-evals;
  here, with our own prompt), or else by Math-Verify.
- If a document has a valid question, its group contains one, however many attempts that took.
"""

from __future__ import annotations

from flows.blocks.controls import permuted
from flows.blocks.questions import answer, score_held_out, watch_questions_and_answers
from flows.method import method
from flows.run import Player, Run
from flows.spice import rewards
from flows.spice.config import Config
from flows.spice.measures import describe_questions, probe
from flows.spice.roles import Roles
from flows.spice.steps import Questions, Spice, ask_questions, open_corpora, sample_documents
from tasks.keep import Limit, Query, keep
from tasks.normalise import normalise
from tasks.score import score
from warehouse.store import Place

LEFT_OUT = Query.beside(__file__, "left_out")
ONE_PER_DOCUMENT = Query.beside(__file__, "one_per_document")
NOT_NEEDED = "another question of its document is drawn"
NOT_DRAWN = "not drawn into its group"


@method(Config)
def spice_iteration(run: Run[Config]) -> Player:
    """Algorithm 1."""
    spice = Spice(run, Roles(run.cfg), open_corpora(run))  # l.1
    player = run.player("policy")
    score_held_out(run, run.place.iteration(0), spice.roles.reasoner, player)
    for t, iteration in run.iterations():
        questions_of_steps = list[Questions]()
        for s in range(run.cfg.steps):  # l.2
            step = iteration.phase("training").step(s + 1)
            step_number = (t - 1) * run.cfg.steps + s
            player, questions = play(spice, step, player, step_number)
            questions_of_steps.append(questions)
        run.watch_pool(
            iteration,
            player.policy.id,
            [questions.drawn for questions in questions_of_steps],
            passed=(NOT_NEEDED,),
        )
        score_held_out(run, iteration, spice.roles.reasoner, player)
        describe_questions(run, iteration, questions_of_steps, player)
    probe(spice)
    return player  # l.30


def play(spice: Spice, step: Place, player: Player, step_number: int) -> tuple[Player, Questions]:
    """One step: both roles play, and the policy is updated. Also returns the step's questions."""
    run = spice.run
    cfg = run.cfg

    samples = sample_documents(spice, step, step_number)  # l.5
    attempts = ask_questions(spice, step, player, samples)  # l.6
    tasks = attempts.tasks
    left_out = keep(  # l.7
        step,
        LEFT_OUT,
        tasks=tasks,
        group_size=cfg.challenger.group_size,
        seed=cfg.seed,
        limits=(Limit(0, NOT_DRAWN),),  # not because anything is wrong with them
        label="left-out",
    )
    answers = answer(  # l.9, l.17
        run,
        step,
        spice.roles.reasoner,
        player,
        tasks=tasks,
        left_out=left_out,
        group_size=cfg.reasoner.answers,
        comparing=cfg.match,
        errors=cfg.errors,
    )

    challenger_rewards = score(  # l.8-13, eq. 1
        step,
        rewards.challenger_rewards,
        tasks=tasks,
        left_out=left_out,
        answers=answers.answers,
        matches=answers.matches,
        reward=cfg.challenger.reward,
        invalid_reward=cfg.challenger.invalid_reward,
        label="challenger",
    )
    drawn = keep(  # l.16
        step,
        ONE_PER_DOCUMENT,
        tasks=tasks,
        rewards=challenger_rewards,
        seed=cfg.seed,
        limits=(Limit(1, NOT_NEEDED, per="document_id"),),
    )
    reasoner_rewards = score(  # l.18-20
        step,
        rewards.reasoner_rewards,
        answers=answers.answers,
        matches=answers.matches,
        drawn=drawn,
        label="reasoner",
    )
    watch_questions_and_answers(
        run,
        step,
        player.policy.id,
        run.world,
        tasks=tasks,
        chosen=drawn,
        shown={"documents": spice.corpora},
        answers=answers.answers,
        rewards=reasoner_rewards,
    )

    # l.21-24; the Challenger's tables come first
    advantages = []
    rollouts = []
    if not cfg.challenger.fixed:
        advantages.append(normalise(step, challenger_rewards, scheme="centre", label="challenger"))
        rollouts += attempts.rollouts
    reasoner_rewards = permuted(run, step, cfg.reasoner, reasoner_rewards)
    advantages.append(normalise(step, reasoner_rewards, scheme="centre", label="reasoner"))
    rollouts.append(answers.rollouts)
    player = run.learn(  # l.25-28
        step,
        player,
        advantages,
        rollouts,
        cfg.update,
        rows_per_step=cfg.trajectories_per_update,
    )
    return player, Questions(tasks, challenger_rewards, drawn)
