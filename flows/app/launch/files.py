"""Launch files: templates in this folder, filled in with a job."""

from __future__ import annotations

from pathlib import Path

import jinja2

from flows.app.launch.job import Job

HERE = Path(__file__).parent
NAMES = {
    "slurm": "{}.sbatch",
    "kubernetes": "{}.yaml",
    "skypilot": "{}.sky.yaml",
}
DOCKERFILE = "Dockerfile"
ACCELERATORS = {  # SkyPilot's names of the GPUs that `selfplay plan` knows
    "h100-80": "H100",
    "h200-141": "H200",
    "a100-80": "A100-80GB",
    "a100-40": "A100",
    "h20-96": "H20",
    "l4-24": "L4",
    "rtx4090-24": "RTX4090",
}


def text_of(kind: str, job: Job, image: str, shared: str) -> str:
    """The text of a kind of launch file; `shared` is the folder, claim or volume that all nodes
    see."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{kind}.jinja").render(
        job=job,
        image=image,
        shared=shared,
        accelerator=ACCELERATORS[job.gpu],
    )


def files_of_job(kind: str, job: Job, image: str, shared: str) -> dict[str, str]:
    """The texts, by file name, of the launch file and, if there is an image, the Dockerfile."""
    files = {NAMES[kind].format(job.label): text_of(kind, job, image, shared)}
    if kind != "slurm":
        files |= docker_file()
    return files


def docker_file() -> dict[str, str]:
    """The text of the Dockerfile, by its name."""
    return {DOCKERFILE: (HERE / DOCKERFILE).read_text(encoding="utf-8")}


def write(files: dict[str, str], folder: Path) -> list[Path]:
    """Write texts, given by file name, to a folder; return the paths.

    Raises ValueError if a file exists with different content.
    """
    paths = {folder / name: text for name, text in files.items()}
    for path, text in paths.items():
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise ValueError(f"{path} exists with other content: remove it, or choose -o FOLDER")
    for path, text in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(paths)
