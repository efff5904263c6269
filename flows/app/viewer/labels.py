"""Labels that people give to rollouts, tasks and verdicts: one table per run and person."""

from __future__ import annotations

import getpass
import re
import threading
import time

from tasks.stage import make_recipe
from warehouse.schemas import ANNOTATIONS, Annotation
from warehouse.store import Store

LABELS = ("good", "bad", "hack", "leak", "unsure")
KINDS = ("rollout", "task", "verdict")
NAME = re.compile(r"[\w.+@-][\w.+@ -]{0,59}")
MAX_NOTE = 4000  # characters
_writing = threading.Lock()


def label(store: Store, run: str, annotation: Annotation) -> None:
    """Store a label, replacing the person's earlier one on the same thing.

    If both its opinion and its note are empty, only removes the earlier one. Raises ValueError for
    an invalid label, kind or name.
    """
    _check(annotation)
    labeller = annotation["labeller"]
    address = store.run(run).address(ANNOTATIONS.name, labeller.replace(" ", "_"))
    with _writing, store.lock(address):
        before = store.find(address)
        rows = before.rows(Annotation) if before else []
        rows = [row for row in rows if _thing(row) != _thing(annotation)]
        if annotation["opinion"] or annotation["note"]:
            rows.append(annotation)
        recipe = make_recipe(label, {"labeller": labeller, "rows": len(rows)}, ANNOTATIONS)
        with store.draft(ANNOTATIONS) as draft:
            draft.write(rows)
            notes = {"started_at": time.time(), "seconds": 0.0, "counts": {}}
            store.publish(draft, address, {**recipe, **notes})


def _check(annotation: Annotation) -> None:
    """Raise ValueError for an invalid label, kind or name."""
    opinion = annotation["opinion"]
    kind = annotation["kind"]
    labeller = annotation["labeller"]
    if opinion is not None and opinion not in LABELS:
        problem = f"{opinion!r} is no label: give one of {', '.join(LABELS)}"
    elif kind not in KINDS:
        problem = f"a {kind!r} takes no labels: {', '.join(KINDS)} do"
    elif not NAME.fullmatch(labeller):
        problem = (
            f"{labeller!r} cannot be a name: use at most 60 letters, digits, blanks and . + @ _ -"
        )
    else:
        return
    raise ValueError(f"Not stored: {problem}.")


def _thing(annotation: Annotation) -> tuple[str, str, str]:
    """What an annotation is about and who gave it; the labeller matters because "A b" and "A_b"
    share a table."""
    return annotation["kind"], annotation["subject"], annotation["labeller"]


def annotation(
    kind: str, subject: str, labeller: str, opinion: str = "", note: str = "", sample: str = ""
) -> Annotation:
    """A label given now, for `label` to store.

    `kind` is one of `KINDS`, `subject` the id of the labelled thing. An empty `labeller` stands for
    the user of this process; other empty texts become None. The note is cut to `MAX_NOTE`
    characters.
    """
    return {
        "kind": kind,
        "subject": subject,
        "labeller": labeller.strip() or getpass.getuser(),
        "opinion": opinion or None,
        "note": note.strip()[:MAX_NOTE] or None,
        "labelled_at": time.time(),
        "sample": sample or None,
    }
