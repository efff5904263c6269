"""A trainer that trains nothing, but needs the files that it starts from, like a real one."""

from __future__ import annotations

from tasks.training.grpo import StepMetrics, UpdateJob, UpdateResult

STATE = "optimizer.bin"
WEIGHTS = "model.safetensors"
METRICS = {name: 0.0 for name, field in StepMetrics.model_fields.items() if field.is_required()}


class CountingTrainer:
    """Adds one to the numbers in weights and optimizer state, and remembers the jobs."""

    def __init__(self) -> None:
        self.jobs: list[UpdateJob] = []

    def train(self, job: UpdateJob) -> UpdateResult:
        self.jobs.append(job)
        files = {"policy": WEIGHTS, "optimizer": STATE}
        for (kind, name), before in zip(
            files.items(), (job.policy, job.optimizer_state), strict=True
        ):
            number = int((before / name).read_text()) if before else 0
            (job.out / kind).mkdir(parents=True)
            (job.out / kind / name).write_text(str(number + 1))
        steps = (StepMetrics.model_validate({**METRICS, "step": 1}),)
        places = {"policy": job.out / "policy", "optimizer_state": job.out / "optimizer"}
        return UpdateResult(**places, steps=steps, num_datums=1, num_tokens=1, duration_s=0.0)
