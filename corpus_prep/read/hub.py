"""Read a Hugging Face dataset as a corpus. It is streamed, never downloaded whole."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

from corpus_prep.read.files import Record

SCHEME = "hf:"
OPTIONS = ("config", "split", "revision")
# files that `save_to_disk` writes: for a dataset, or for several splits
SAVED = (("state.json", "dataset_info.json"), ("dataset_dict.json",))


def is_dataset(path: str) -> bool:
    """Whether `path` is a dataset: on the hub, or a folder that `datasets` saved.

    On the hub it is `hf:owner/name?config=...&split=...&revision=...`.
    """
    return path.startswith(SCHEME) or any(
        all((Path(path) / name).is_file() for name in names) for names in SAVED
    )


def records_in_dataset(path: str) -> Iterator[Record]:
    """The rows of a dataset, split by split; ids consist of split and row number, counted from 1.

    Raises ValueError for an unknown option, a hub name without a revision, or a dataset that cannot
    be opened.
    """
    for split, rows in _open(path).items():
        for number, row in enumerate(rows, start=1):
            yield Record(f"{split}:{number}", f"{path.split('?')[0]} {split}:{number}", row)


def _open(path: str) -> dict:
    import datasets
    from datasets.exceptions import DatasetsError

    name, _, query = path.removeprefix(SCHEME).partition("?")
    options = {key: values[-1] for key, values in parse_qs(query, keep_blank_values=True).items()}
    if unknown := options.keys() - set(OPTIONS):
        raise ValueError(
            f"{path}: there is no option {', '.join(sorted(unknown))}; there are"
            f" {', '.join(OPTIONS)}"
        )
    try:
        if not path.startswith(SCHEME):
            dataset = datasets.load_from_disk(name)
        elif "revision" in options or Path(name).exists():
            config, split, revision = (options.get(option) for option in OPTIONS)
            dataset = datasets.load_dataset(
                name, config, split=split, revision=revision, streaming=True
            )
        else:
            joint = "&" if query else "?"
            raise ValueError(f"{path}: pin its revision, {path}{joint}revision=COMMIT")
    except (OSError, DatasetsError) as problem:
        raise ValueError(f"dataset {path} cannot be opened: {problem}") from problem
    if isinstance(dataset, dict):
        return dict(dataset)
    return {options.get("split", "train"): dataset}
