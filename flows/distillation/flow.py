"""On-policy distillation: a student learns from a teacher's probabilities for its own replies.

Agarwal et al., "On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes",
arXiv 2306.13649, with the reverse KL and student samples only (lambda = 1).

The student answers prompts of another run; the teacher, a larger model or a trained policy, scores
the answers. Neither rewards nor reference answers are needed.

Departures
- The teacher's probability is known only for each sampled token, not for the whole vocabulary. The
  divergence is therefore between two outcomes, this token or any other
  (`tasks.training.distillation`), as in TRL's trainer with a teacher behind a server.
- An iteration samples all its rollouts before its update, so that they are rows that can be
  queried. Later optimizer steps of the update are therefore slightly off-policy.
"""

from __future__ import annotations

from functools import partial

from flows.blocks.replayed_role import ReplayedRole
from flows.distillation.config import Config
from flows.method import method
from flows.run import Player, Run
from flows.runtime.engine_scores import teaching_fleet
from flows.runtime.start import open_teacher
from tasks.ask import ask
from tasks.distillation import distance_to_teacher, earlier_prompts
from tasks.evaluate import evaluate
from tasks.generate import generate
from tasks.models.engine import Policy
from tasks.prompt import Prompt
from tasks.references import references
from tasks.sft import sft
from warehouse.store import Place, Table

TEACHER_BENCHMARK = "teacher"


@method(Config)
def distillation_update(run: Run[Config]) -> Player:
    """Sample from the student, score with the teacher, update, and measure on held-out prompts."""
    cfg = run.cfg
    role = ReplayedRole.open(run.place.store, cfg.source, cfg.role)
    if cfg.teacher is None:
        raise ValueError("say who teaches: teacher=RUN or MODEL, or `selfplay distil RUN`")
    teacher = open_teacher(cfg.teacher, run.models["base"], cfg, run.place.store)
    if teacher.content_hash == run.start.content_hash:
        raise ValueError(f"the teacher {cfg.teacher!r} is what the student starts from")
    # before any work: check that this teacher's probabilities are available
    teaching_fleet(run.machines, teacher, run.start)
    student = run.player("policy")
    measure_held_out(run, run.place.iteration(0), student, teacher, role)
    for _, iteration in run.iterations():
        place = iteration.phase("distillation")
        rollouts = sample(run, place, student, role, is_measured=False)
        student = run.distil(
            place, student, rollouts, cfg.update, teacher=teacher, rows_per_step=cfg.rows_per_step
        )
        measure_held_out(run, iteration, student, teacher, role)
    return student


def sample(
    run: Run[Config], place: Place, student: Player, role: ReplayedRole, *, is_measured: bool
) -> Table:
    """The student's rollouts for the role's training prompts or, if `is_measured`, for its held-out
    prompts.

    They are sampled from the student's own distribution: temperature 1, no top-p.
    """
    cfg = run.cfg
    chosen = partial(
        earlier_prompts,
        held_out=cfg.held_out,
        is_measured=is_measured,
        most=None if is_measured else cfg.prompts_per_iteration,
        seed=cfg.seed,
        draw=0 if is_measured else place.at.iteration or 0,
    )
    prompt = Prompt(student.name, (role.template,), chosen)
    prompts = ask(place, prompt, label=role.name, prompts=role.prompts)
    return generate(
        place,
        prompts,
        policy=student.policy,
        sampling=role.sampling,
        dialogue=role.dialogue,
        fleet=run.machines.serving_player(run.start),
        group_size=1 if is_measured else cfg.group_size,
        seed=cfg.seed,
        label=role.name,
    )


def measure_held_out(
    run: Run[Config], iteration: Place, student: Player, teacher: Policy, role: ReplayedRole
) -> None:
    """Sample held-out prompts and measure how far the student is from the teacher, in nats."""
    place = iteration.phase("evaluation")
    rollouts = sample(run, place, student, role, is_measured=True)
    fleet = teaching_fleet(run.machines, teacher, run.start)
    batch = sft(place, rollouts, None, max_tokens=fleet.config.max_model_len - 1)
    if not batch.num_rows:
        return
    logprobs = references(place, batch, policy=teacher, fleet=fleet)
    evaluate(
        place,
        distance_to_teacher,
        policy=student.policy.id,
        benchmark=TEACHER_BENCHMARK,
        batch=batch,
        logprobs=logprobs,
    )
