"""The files themselves: templates beside this module, filled in with a job."""

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
ACCELERATORS = {  # SkyPilot's names of the GPUs that plans know
    "h100-80": "H100",
    "h200-141": "H200",
    "a100-80": "A100-80GB",
    "a100-40": "A100",
    "h20-96": "H20",
    "l4-24": "L4",
    "rtx4090-24": "RTX4090",
}


def text_of(kind: str, job: Job, image: str, shared: str) -> str:
    """The launch file of a kind; `shared` is the folder, claim or volume that all nodes see."""
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


def write(kind: str, job: Job, image: str, shared: str, folder: Path) -> list[Path]:
    """Write the launch file, and the Dockerfile where an image is needed.

    Raises ValueError rather than write over a file with other content.
    """
    files = {folder / NAMES[kind].format(job.label): text_of(kind, job, image, shared)}
    if kind != "slurm":
        files[folder / DOCKERFILE] = (HERE / DOCKERFILE).read_text(encoding="utf-8")
    for path, text in files.items():
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise ValueError(f"{path} exists with other content: remove it, or choose -o FOLDER")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)
