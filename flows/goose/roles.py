"""Who is asked what: the author masks a step of a text, and the Solver chooses what was masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from flows.goose import readers
from flows.goose.config import Config
from flows.run import Role, templates
from flows.runtime.templates import rendered
from tasks.ask import readable_tasks
from tasks.prompt import Template
from tasks.read import Reader, reads
from tasks.readers.boxed import last_box
from tasks.readers.lines import read_answer
from tasks.rollouts.tokens import cut_tokens
from warehouse.schemas import ANSWERS, TASKS, Document, Row, Sample

SAMPLE_TEXT = "A text of a few words."
TEXT_AROUND = (readers.TEXT_BEGINS, readers.TEXT_ENDS)
LINES_AROUND = (readers.LINE_OF_TEXT, readers.LINE_OF_STEP)


class Roles:
    """The roles of one configuration."""

    def __init__(self, cfg: Config) -> None:
        dialogues = cfg.dialogues
        template = templates(cfg, dialogues.prompts)
        author_template = template("author")
        values = {
            "num_distractors": cfg.author.num_distractors,
            "min_words": cfg.author.min_words,
        }
        read_task = readers.read_task
        read_letter = last_box
        if cfg.reads_lines:
            check_author(author_template, values, readers.line_of_text, LINES_AROUND)
            read_task = readers.read_lines
            read_letter = read_answer
        elif cfg.author.extracts:
            author_template = template("extractor")
            read_task = readers.read_extracted_task
        else:
            check_author(author_template, values, readers.text_of, TEXT_AROUND)
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
            read=Reader(read_task, whole=not cfg.reads_lines),  # lines before a cut are complete
            dialogue=dialogues.one_reply,
            values=values,
            on_judge_engine=cfg.models.author is not None,
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


def check_author(
    template: Template, values: Row, text_of: Callable[[str], str], around: tuple[str, str]
) -> None:
    """Raise ValueError unless `text_of` finds the document in the prompts that the author's
    template makes. `around`: the text that must precede and follow it."""
    with rendered("author", (template,)):
        prompt = template.render(values, document=SAMPLE_TEXT)
    if text_of(prompt) != SAMPLE_TEXT:
        begins, ends = (repr(words.strip()) for words in around)
        raise ValueError(
            f"{template.name}.jinja has to show the document between {begins} and {ends}, each at"
            " the beginning of a line and in these words whatever its language is: the text of a"
            " task is read from there"
        )


def show_texts(
    samples: list[Sample], documents: list[Document], *, model: str, limit: int
) -> Iterator[Row]:
    """Yield a prompt for each sampled document, with the first `limit` tokens of its text as
    `model` counts them."""
    document_of: dict[str | None, Document] = {row["document_id"]: row for row in documents}
    for sample in samples:
        text = cut_tokens(document_of[sample["document_id"]]["text"], model, limit)
        yield {"document_id": sample["document_id"], "document": text.strip()}
