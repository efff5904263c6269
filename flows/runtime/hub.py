"""Check once whether the Hugging Face hub answers, because its client retries for half a minute."""

from __future__ import annotations

from pathlib import Path

from corpus_prep.read.hub import SCHEME
from warehouse.store import Table

ANSWER_S = 5.0


def check_reachable(source: str, way_out: str, read: Table | None = None) -> None:
    """Raise ValueError, with the way out, if `source` is on the hub and the hub does not answer.

    If there is a table `read` from it already, which may be fresh, nothing is requested.
    """
    if not source.startswith(SCHEME) or read is not None:
        return
    if Path(source.removeprefix(SCHEME).partition("?")[0]).exists():
        return
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=ANSWER_S)
    except Exception as problem:  # the client documents no common error
        raise ValueError(
            f"{source} cannot be read, as the hub does not answer: {problem}\n{way_out}"
        ) from problem
