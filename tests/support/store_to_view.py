"""A small store for the viewer: one run, with every row written by hand, and the ids to look
for."""

from __future__ import annotations

from typing import Any

from tests.support.rows import publish, row, turn
from warehouse.store import Place, Store

HOSTILE = (
    "</pre></script><script>window.hit = 1</script><img src=x onerror='window.hit=1'><a"
    " href='javascript:window.hit=1'>x</a>{{ 7 * 7"
    " }}\u202egnp\x1b[2J\x00<style>*{display:none}</style>"
)
IDS = {"task": "t1", "rollout": "a1", "group": "p-answer", "document": "d/1"}


def lay(store: Store, run: str = "mine", text: str = "a plain text") -> Place:
    """Write a run of one iteration: a document, a task written from it, two answers, their verdicts
    and rewards, and the update that trained on them. `text` is in every field that a model or a
    document fills."""
    place = store.run(run)
    store.keep(
        run,
        "request.json",
        {"flow": "some-iteration", "profile": "micro", "overrides": {"seed": 1}},
    )
    store.keep(run, "config.json", {"seed": 1, "monitor": {"max_malformed": 0.5}})
    publish(
        place,
        "documents",
        row("documents", document_id="d/1", title=text, text=f"Oslo is old. {text}", source=text),
    )
    writing = place.iteration(1).phase("training").step(1)
    asked = {"role": "user", "content": text}
    publish(
        writing,
        "prompts",
        row(
            "prompts",
            prompt_id="p-task",
            role="asker",
            template="ask",
            messages=[asked],
            document_id="d/1",
        ),
        row(
            "prompts",
            prompt_id="p-answer",
            role="answerer",
            template="a",
            messages=[asked],
            task_id="t1",
        ),
        row(
            "prompts",
            prompt_id="p-judge",
            role="judge",
            template="j",
            messages=[asked],
            task_id="t1",
            rollout_id="a1",
        ),
    )
    publish(writing, "rollouts", *_rollouts(text))
    written = {
        "task_id": "t1",
        "rollout_id": "t1",
        "prompt_id": "p-task",
        "document_id": "d/1",
        "reference": "Oslo",
    }
    publish(writing, "tasks", row("tasks", text=text, evidence=["d/1"], options=[text], **written))
    publish(
        writing,
        "gates",
        row("gates", task_id="t1", gate="source", kind="model", passed=True, judge_rollout_id="j1"),
    )
    criterion = row(
        "rubrics",
        criterion_id="t1-0",
        task_id="t1",
        criterion=text,
        priority="critical",
        weight=1.0,
    )
    publish(writing, "rubrics", criterion)
    publish(
        writing,
        "answers",
        row("answers", rollout_id="a1", prompt_id="p-answer", task_id="t1", answer=text),
        row("answers", rollout_id="a2", prompt_id="p-answer", task_id="t1", malformed=text),
    )
    verdict: dict[str, Any] = {
        "rollout_id": "a1",
        "task_id": "t1",
        "criterion_id": "t1-0",
        "judge_rollout_id": "j1",
    }
    publish(writing, "judgments", row("judgments", verdict=1, oracle=0, **verdict))
    publish(
        writing, "rewards", *(_score("rewards", text, *of) for of in (("a1", 0.75), ("a2", None)))
    )
    publish(
        writing,
        "advantages",
        *(_score("advantages", text, *of) for of in (("a1", 0.75), ("a2", None))),
    )
    publish(
        writing,
        "selections",
        row("selections", task_id="t1", kept=False, reason=text, num_rollouts=2, bounds="{}"),
    )
    publish(
        writing,
        "batches",
        row("batches", rollout_id="a1", advantage=1.5, completion_token_ids=[2], loss_mask=[1]),
    )
    update = row(
        "updates",
        policy=f"{run}/new",
        parent="base",
        role="answerer",
        metrics={"loss": 0.25, "sampler_kl": 0.001},
    )
    publish(writing, "updates", update)
    evaluation = row(
        "evaluations", policy="base", benchmark="world", metric="score", n=4, score=0.5
    )
    publish(place.iteration(1), "evaluations", evaluation)
    return place


def _rollouts(text: str) -> list[dict[str, Any]]:
    given = {"policy": "base", "finish_reason": "final", "num_turns": 1, "num_sampled_tokens": 1}
    made = [
        ("t1", "p-task", "asker", 0),
        ("a1", "p-answer", "answerer", 0),
        ("a2", "p-answer", "answerer", 1),
    ]
    return [
        row(
            "rollouts",
            rollout_id=i,
            prompt_id=p,
            role=role,
            sample=n,
            reply=f"{text} {i}",
            turns=[_turn(text)],
            **given,
        )
        for i, p, role, n in [*made, ("j1", "p-judge", "judge", 0)]
    ]


def _turn(text: str) -> dict[str, Any]:
    return turn(
        f"<think>{text}</think>{text}",
        valid_search=True,
        found=("d/1",),
        message=text,
        message_role="user",
    )


def _score(table: str, text: str, rollout_id: str, total: float | None) -> dict[str, Any]:
    paid = {"reward": total, "score": total, "unscorable": None if total is not None else text}
    advantage = {"advantage": 0.5} if table == "advantages" else {}
    return row(
        table,
        rollout_id=rollout_id,
        group_id="p-answer",
        task_id="t1",
        components={text: 0.5},
        **paid,
        **advantage,
    )
