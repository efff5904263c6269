"""`selfplay export`: the data of a run as a folder that `datasets.load_dataset` reads, with a dataset card."""

from __future__ import annotations

from pathlib import Path

import click

from flows.service.site import open_store


@click.command()
@click.argument("name", metavar="RUN")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder.  [default: RUN-export]")
@click.option("--push", metavar="OWNER/NAME", help="Upload it to this dataset of the Hugging Face hub, as private.")
def export(name: str, output: Path | None, push: str | None) -> None:
    """Write tasks, rubrics, rollouts, verdicts, rewards and labels of RUN as Parquet with a dataset card.

    Every table is a configuration: load_dataset("FOLDER", "rollouts"). Rows have the columns of `selfplay sql`, with
    run, iteration, phase, step and label first.
    """
    from warehouse.publish import write_dataset

    folder = output or Path(f"{name}-export")
    counts = write_dataset(open_store(), name, folder)
    click.echo(f"wrote {folder}: {', '.join(f'{n:,} {table}' for table, n in counts.items())}")
    if push:
        _push(folder, push)


def _push(folder: Path, repository: str) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    hub = HfApi()
    try:
        made = hub.create_repo(repository, repo_type="dataset", private=True, exist_ok=True)
        hub.upload_folder(folder_path=folder, repo_id=repository, repo_type="dataset")
    except (HfHubHTTPError, LocalTokenNotFoundError) as problem:
        raise ValueError(f"the hub refused {repository}: {problem}. `hf auth login` logs you in") from problem
    click.echo(f"pushed to {made}")
