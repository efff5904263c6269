"""Log-probabilities that engines compute for an update.

Before the update: of its batch under the KL reference or a teacher. After it: of trained rows under
the new policy.
"""

from __future__ import annotations

from flows.runtime.machines import Machines
from flows.settings.profile import MethodSettings
from tasks.engines.fleet import Fleet
from tasks.models.engine import Policy, load_tokenizer, local_folder
from tasks.monitors.monitor import UPDATE, watch
from tasks.probe import policy_in_effect, probe
from tasks.references import references
from tasks.training.grpo import GRPOSettings
from warehouse.store import Place, Table


def reference_logprobs_of(
    at: Place,
    batch: Table,
    base: Policy,
    settings: GRPOSettings,
    *,
    cfg: MethodSettings,
    machines: Machines,
) -> Table | None:
    """Log-probabilities of a batch under the KL reference `base`.

    None if the trainer computes them itself or needs none. It cannot compute them under an adapter,
    since it has only the one that it trains. Raises ValueError for a temperature other than 1,
    because engines score only at temperature 1.
    """
    is_by_trainer = cfg.reference_by == "trainer" and base.adapter is None
    if is_by_trainer or not settings.beta:
        return None
    if settings.temperature != 1:
        raise ValueError(
            f'reference_by = "engine" is for temperature 1, not {settings.temperature:g}'
        )
    return references(at, batch, policy=base, fleet=machines.engines)


def teaching_fleet(machines: Machines, teacher: Policy, student: Policy) -> Fleet:
    """The engines that score a student's rollouts under a teacher.

    Raises ValueError for a teacher behind an API, which cannot score given tokens, and for a
    teacher with a vocabulary other than the student's.
    """
    fleet = machines.serving(teacher, on_judge_engine=True)
    if not isinstance(fleet, Fleet):
        raise ValueError(
            f"the teacher {teacher.weights} is behind an API, which scores no given tokens: name a"
            " folder or a hub name"
        )
    own = load_tokenizer(str(local_folder(student.weights))).get_vocab()
    others = load_tokenizer(str(local_folder(teacher.weights))).get_vocab()
    if own != others:
        raise ValueError(
            f"the teacher {teacher.weights} has other tokens than the student {student.weights}:"
            " distillation compares the probabilities of the same tokens"
        )
    return fleet


def check_in_effect(
    at: Place,
    batch: Table,
    updated: Table,
    policy: Policy,
    start: Policy,
    *,
    cfg: MethodSettings,
    machines: Machines,
) -> None:
    """Raise Alarm if engines still sample from the old policy after an update.

    The check runs only if `cfg` asks for it. `start`: the model that the player started from.
    """
    if not cfg.checks_updates:
        return
    probes = probe(at, batch, updated, policy=policy, fleet=machines.serving_player(start))
    watch(
        at,
        policy_in_effect,
        limits=cfg.monitor,
        policy=policy.id,
        benchmark=UPDATE,
        label="probe",
        probes=probes,
    )
