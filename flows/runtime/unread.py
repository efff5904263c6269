"""Stop a run that would learn nothing, and go unnoticed.

No reply of a role can be read, or rewards are of no rollout.
"""

from __future__ import annotations

import logging
from collections import Counter

from flows.settings.profile import NUM_TO_JUDGE, MethodSettings
from tasks.monitors.monitor import check_replies, reasons_of
from tasks.read import NOT_SAMPLED
from tasks.stage import Tables, as_tables
from warehouse.address import EVALUATION
from warehouse.store import Place, Table

READER_FAILED = "reader failed"  # as `tasks.read.reason` begins
log = logging.getLogger("selfplay")


class UnreadError(RuntimeError):
    """No reply of a role could be read: the run would learn nothing."""


def check_read(
    at: Place, rows: Table, cfg: MethodSettings, *, role: str, attempt: int | None = None
) -> None:
    """Check how many replies of a role could be read into `rows`.

    Replies to held-out tasks are only scored: for these, it logs at most a warning. `attempt`:
    unreadable replies are replaced by further attempts, and this is the first, second, ... of them.
    Any share may be unreadable then, and in later attempts all of them: those are about what failed
    before.

    Raises, if `cfg.unread` is "stop":
        UnreadError: none of `NUM_TO_JUDGE` replies or more can be read.
        Alarm: a larger share than `cfg.monitor` allows cannot be read, or was not sampled.
    """
    stops = cfg.unread == "stop" and at.at.phase != EVALUATION
    # how many sampled replies are malformed for each reason; None counts those that can be read
    of_replies = reasons_of(rows)
    reasons = Counter(why for why in of_replies if why not in NOT_SAMPLED)
    is_later_attempt = attempt is not None and attempt > 1
    if reasons.total() < NUM_TO_JUDGE or None in reasons or is_later_attempt:
        if stops and len(of_replies) >= NUM_TO_JUDGE:
            check_replies(rows, cfg.monitor, attempts=attempt is not None)
        return
    most_common = ", ".join(f"{reason} {number}" for reason, number in reasons.most_common(3))
    problem = (
        f"{rows.address}: none of {reasons.total()} replies of the {role} can be read:"
        f" {most_common}"
    )
    if not stops:
        log.warning("%s", problem)
        return
    replies = f"`select reply from rollouts where role = '{role}'`"
    hint = f"Look at the replies ({replies}); a small model may need other prompts."
    if most_common.startswith(READER_FAILED):
        hint = (
            "These are exceptions of the reader, not faults of the replies: call it on one"
            f" ({replies})."
        )
    raise UnreadError(f'{problem}. {hint} unread = "warn" continues.')


def check_rollouts(at: Place, batch: Table, advantages: Tables, rollouts: Tables) -> None:
    """Raise ValueError for rewards of rollouts that do not exist, and for two rewards of one
    rollout in a table. `batch`: what was made of rewards and rollouts."""
    for table in as_tables(advantages):
        for rollout_id, number in Counter(table.arrow["rollout_id"].to_pylist()).most_common(1):
            if number > 1:
                raise ValueError(
                    f"{table.address} has {number} rewards of the rollout {rollout_id}: it may"
                    " have one"
                )
    rewarded = _rollout_ids(advantages)
    unused = rewarded - _rollout_ids(batch)
    # an inquiry builds nothing, and the tables that it finds need not fit each other
    if not unused or not at.store.freshness.builds:
        return
    unknown = unused - _rollout_ids(rollouts)
    if unknown:
        raise ValueError(
            f"{at.path}: {len(unknown)} of {len(rewarded)} rewards belong to no sampled"
            f" rollout, {min(unknown)} among them: a reward keeps the ids of the rows that it"
            " reads, as `scored` does"
        )


def _rollout_ids(tables: Tables) -> set[str]:
    ids = set[str]()
    for table in as_tables(tables):
        ids.update(table.arrow["rollout_id"].to_pylist())
    return ids
