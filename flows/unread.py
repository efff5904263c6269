"""Stop a run if no reply of a role can be read, or if rewards are of no rollout: it would learn nothing, and go
unnoticed."""

from __future__ import annotations

import logging
from collections import Counter

from flows.course import EVALUATION
from flows.profile import NUM_TO_JUDGE, MethodSettings
from tasks.monitor import check_replies
from tasks.read import NOT_SAMPLED
from tasks.stage import Tables
from warehouse.store import Place, Table

READER_FAILED = "reader failed"  # as `tasks.read.reason` begins
log = logging.getLogger("selfplay")


class UnreadError(RuntimeError):
    """No reply of a role could be read: the run would learn nothing."""


def check_read(at: Place, rows: Table, cfg: MethodSettings, *, role: str, attempt: int | None = None) -> None:
    """Check how many replies of a role could be read into `rows`. Replies to held-out tasks are only scored.

    `attempt`: unreadable replies are replaced by further attempts, and this is the first, second, ... of them. Any
    share may be unreadable then, and in later attempts all of them: those are about what failed before.

    Raises, if `cfg.unread` is "stop":
        UnreadError: none of `NUM_TO_JUDGE` replies or more can be read.
        Alarm: a larger share than `cfg.monitor` allows cannot be read, or was not sampled.
    """
    stops = cfg.unread == "stop" and at.at.phase != EVALUATION
    reasons = Counter(why for why in rows.arrow["malformed"].to_pylist() if why not in NOT_SAMPLED)
    if reasons.total() < NUM_TO_JUDGE or None in reasons or (attempt or 1) > 1:
        if stops and rows.num_rows >= NUM_TO_JUDGE:
            check_replies(rows, cfg.monitor, attempts=attempt is not None)
        return
    named = ", ".join(f"{reason} {number}" for reason, number in reasons.most_common(3))
    problem = f"{rows.address}: none of {reasons.total()} replies of the {role} can be read: {named}"
    if stops:
        replies = f"`select reply from rollouts where role = '{role}'`"
        hint = f"Look at the replies ({replies}); a small model may need other prompts."
        if named.startswith(READER_FAILED):
            hint = f"These are exceptions of the reader, not faults of the replies: call it on one ({replies})."
        raise UnreadError(f'{problem}. {hint} unread = "warn" continues.')
    log.warning("%s", problem)


def check_rollouts(at: Place, batch: Table, rewards: Tables, rollouts: Tables) -> None:
    """Raise ValueError for rewards of rollouts that do not exist, and for two rewards of one in a table. `batch`: what
    was made of rewards and rollouts."""
    for table in [rewards] if isinstance(rewards, Table) else rewards:
        for rollout_id, number in Counter(table.arrow["rollout_id"].to_pylist()).most_common(1):
            if number > 1:
                raise ValueError(f"{table.address} has {number} rewards of the rollout {rollout_id}: it may have one")
    unused = _ids(rewards).difference(_ids(batch))
    if unused and at.store.freshness.builds and (unknown := unused - _ids(rollouts)):
        raise ValueError(
            f"{at.path}: {len(unknown)} of {len(_ids(rewards))} rewards are of no rollout that was sampled, "
            f"{min(unknown)} among them: a reward keeps the ids of the rows that it reads, as `scored` does"
        )


def _ids(tables: Tables) -> set[str]:
    some = [tables] if isinstance(tables, Table) else tables
    return {i for table in some for i in table.arrow["rollout_id"].to_pylist()}
