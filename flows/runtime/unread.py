"""Stop a run that would otherwise learn nothing without anyone noticing.

This happens if no reply of a role can be read, or if rewards belong to no rollout.
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

READER_FAILED = "reader failed"  # how such a reason of `tasks.read.reason` begins
log = logging.getLogger("selfplay")


class UnreadError(RuntimeError):
    """No reply of a role could be read: the run would learn nothing."""


def check_read(
    at: Place, rows: Table, cfg: MethodSettings, *, role: str, attempt: int | None = None
) -> None:
    """Check how many replies of a role could be read into `rows`.

    Replies to held-out tasks are only scored, so for these it logs at most a warning. `attempt`:
    the number of this attempt, from 1, if unreadable replies are replaced by further attempts. Any
    share may then be unreadable and, in later attempts, all replies, since those retry earlier
    failures.

    Raises, if `cfg.unread` is "stop":
        UnreadError: there are at least `NUM_TO_JUDGE` replies and none can be read.
        Alarm: a larger share than `cfg.monitor` allows cannot be read or was not sampled.
    """
    stops = cfg.unread == "stop" and at.at.phase != EVALUATION
    # the number of sampled replies that are malformed for each reason; None counts readable ones
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
    rollout in a table. `batch`: the table made from rewards and rollouts."""
    for table in as_tables(advantages):
        for rollout_id, number in Counter(table.arrow["rollout_id"].to_pylist()).most_common(1):
            if number > 1:
                raise ValueError(
                    f"{table.address} has {number} rewards of the rollout {rollout_id}: it may"
                    " have one"
                )
    rewarded = _rollout_ids(advantages)
    unused = rewarded - _rollout_ids(batch)
    # an inquiry builds nothing, and the tables that it finds need not be consistent
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
