"""Who is asked what: the author masks a step of a text, and the Solver chooses what was masked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from flows.goose import readers
from flows.goose.config import Config
from flows.run import Role, templates
from tasks.ask import readable_tasks
from tasks.read import Reader, reads
from tasks.readers.boxed import last_box
from tasks.readers.lines import read_answer
from tasks.rollouts.tokens import cut_tokens
from warehouse.schemas import ANSWERS, TASKS, Document, Row, Sample


class Roles:
    """The roles of one configuration."""

    def __init__(self, cfg: Config) -> None:
        dialogues = cfg.dialogues
        template = templates(cfg, dialogues.prompts)
        author_template = template("author")
        read_task = readers.read_task
        read_letter = last_box
        if cfg.reads_lines:
            read_task = readers.read_lines
            read_letter = read_answer
        elif cfg.author.extracts:
            author_template = template("extractor")
            read_task = readers.read_extracted_task
        read_task = partial(
            read_task,
            num_distractors=cfg.author.num_distractors,
            min_words=cfg.author.min_words,
        )
        self.author = Role(
            "author",
            templates=(author_template,),
            variables=partial(show_texts, model=cfg.models.base, limit=dialogues.document_tokens),
            sampling=dialogues.sampling.model_copy(
                update={
                    "max_tokens": dialogues.author_tokens,
                    "temperature": dialogues.author_temperature,
                    "stop": dialogues.author_stop,
                }
            ),
            into=TASKS,
            read=Reader(read_task, whole=not cfg.reads_lines),  # lines before the cut are whole
            dialogue=dialogues.one_reply,
            values={
                "num_distractors": cfg.author.num_distractors,
                "min_words": cfg.author.min_words,
            },
            judge=cfg.models.author is not None,
        )
        self.solver = Role(
            "solver",
            templates=(template("solver"),),
            variables=readable_tasks,
            sampling=dialogues.sampling,
            into=ANSWERS,
            read=reads("answer", read_letter),
            dialogue=dialogues.one_reply,
        )


def show_texts(
    samples: list[Sample], documents: list[Document], *, model: str, limit: int
) -> Iterator[Row]:
    """A prompt for each sampled document, with the first `limit` tokens of its text as `model`
    counts them."""
    document_of: dict[str | None, Document] = {row["document_id"]: row for row in documents}
    for sample in samples:
        text = cut_tokens(document_of[sample["document_id"]]["text"], model, limit)
        yield {"document_id": sample["document_id"], "document": text.strip()}
