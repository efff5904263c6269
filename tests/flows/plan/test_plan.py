"""A profile's need of GPUs, disk and hours is known before renting them, and too small a machine
is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.eapo.config import Config as Eapo
from flows.plan.cpu import plan_on_cpus
from flows.plan.engine import asleep_bytes
from flows.plan.hardware import GIB, GPUS, Nodes
from flows.plan.measured import measured_lengths
from flows.plan.plan import make_plan, rollouts_gb, updates_of, ways_out
from flows.plan.preflight import Machine, check_machine, gpu_problems
from flows.plan.seconds import Clock
from flows.plan.shapes import UnknownShape, shape_of
from flows.plan.trainer import update_memory
from flows.runtime.store_root import SOURCE
from flows.rzero.config import Config as RZero
from flows.scope.config import Config as Scope
from flows.settings import profile
from flows.settings.workload import Lengths, PlannedRole, Step, Workload
from flows.spell.config import Config as Spell
from tasks.training.grpo import GRPOSettings, LoRASettings
from tests.bench.gpu_plans import NODE_TABLE, TABLE, gpu_profiles, node_table, table
from tests.support.rows import publish, row, turn

H100 = GPUS["h100-80"]
H200 = GPUS["h200-141"]
# 100 embeddings of 8; one layer with 4 x 64 in attention, 3 x 128 in the MLP, two norms; a last
# norm
TINY = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
CARDS = (
    "0, GPU-aa, 81559, 580.65.06, Default, 81007, 4\n1, GPU-bb, 81559, 580.65.06, Default,"
    " 81007, 4\n"
)


def output(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli.main, ["plan", *arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return str(tmp_path)


def test_a_folder_with_a_configuration_is_enough(tiny):
    shape = shape_of(tiny)
    assert shape.params == 800 + 2 * (256 + 384 + 16) + 8
    assert shape.cache_bytes == 2 * 2 * 2 * 8
    assert shape.adapter_params(2, "all-linear") == 2 * 2 * (4 * 16 + 3 * 24)
    assert shape.adapter_params(2, ("q_proj", "down_proj")) == 2 * 2 * (16 + 24)


def test_a_model_of_unknown_shape_is_named_with_the_way_out():
    with pytest.raises(ValueError, match=r"the shape of lab/new is not known: give the folder"):
        shape_of("lab/new")


@pytest.mark.parametrize("key", ["num_attention_heads", "vocab_size", "model_type"])
def test_a_configuration_that_lacks_a_size_is_named_and_does_not_stop_a_run(tmp_path, key):
    config = {name: value for name, value in TINY.items() if name != key}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": config}))
    with pytest.raises(UnknownShape, match=f"{tmp_path.name}: its config.json has no {key}"):
        shape_of(str(tmp_path))
    models = {"models.base": str(tmp_path), "engine.model": str(tmp_path)}
    cfg = profile.load(Scope, "qwen3-8b-1gpu", models)
    assert gpu_problems(cfg, Machine((79.6,), 580, 10**13)) == []


def test_trained_weights_cost_sixteen_bytes_a_parameter_over_all_gpus(tiny):
    """float32 weights and gradients and two moments; the bfloat16 reference costs two more."""
    settings = GRPOSettings(dtype="bfloat16", beta=0.1, micro_batch_size=1)
    shape = shape_of(tiny)
    kinds = update_memory(shape, settings, ranks=4, tokens=10).kinds
    for kind, each in {"weights": 4, "optimizer": 8, "gradients": 4, "reference": 2}.items():
        assert kinds[kind] * GIB == pytest.approx(each * shape.params / 4)


def test_every_gpu_of_an_adapter_holds_the_whole_base(tiny):
    settings = GRPOSettings(dtype="bfloat16", micro_batch_size=1, lora=LoRASettings(rank=2))
    shape = shape_of(tiny)
    kinds = update_memory(shape, settings, ranks=4, tokens=10).kinds
    assert kinds["weights"] * GIB == 2 * shape.params + 4 * 544
    assert (kinds["optimizer"] + kinds["gradients"]) * GIB == 12 * 544


def test_the_plans_of_all_profiles_are_kept():
    """A change of a profile, a rate or the arithmetic shows here; `python -m
    tests.bench.gpu_plans` records it."""
    assert table() == TABLE.read_text(encoding="utf-8")
    guide = (SOURCE / "flows" / "plan" / "README.md").read_text(encoding="utf-8")
    assert table() in guide
    assert node_table() == NODE_TABLE.read_text(encoding="utf-8")


def test_a_sleeping_engine_takes_powers_of_two_of_the_hosts_memory():
    """Qwen3-8B in bfloat16, in MiB: queries, keys and values 48, output 32, gate and up 192, down
    96 in each of 36 layers; embedding and head 1,187 each. On two GPUs 24, 16, 96, 48 (in 36) and
    594 (twice), on each."""
    cfg = profile.load(Scope, "qwen3-8b-6gpu")
    shape = shape_of("Qwen/Qwen3-8B")
    two = cfg.engine.model_copy(update={"tensor_parallel": 2})
    assert asleep_bytes(shape, cfg.engine) == (36 * (64 + 32 + 256 + 128) + 2 * 2048) << 20
    assert asleep_bytes(shape, two) == 2 * (36 * (32 + 16 + 128 + 64) + 2 * 1024) << 20


def test_every_method_says_what_an_iteration_asks():
    for name, cfg in gpu_profiles():
        plan = make_plan(cfg, H200, cfg.workload())
        assert plan.verdict in ("yes", "tight"), name
        assert plan.hours and 0 < plan.busy < 1, name


def test_the_number_of_gpus_is_that_of_the_engines_or_of_the_trainer():
    given = {"engine.tensor_parallel": 2, "num_engines": 3, "trainer_processes": 4}
    cfg = profile.load(RZero, "qwen3-4b-base-8gpu", given)
    assert make_plan(cfg, H100).num_gpus == 6
    judge_engine = {
        "model": "Qwen/Qwen3-8B",
        "max_model_len": 8192,
        "device": "cuda",
        "tensor_parallel": 4,
    }
    cfg = profile.load(RZero, "qwen3-4b-base-8gpu", {**given, "judge_engine": judge_engine})
    assert make_plan(cfg, H100).num_gpus == 12  # the judge's four follow the first eight


def test_what_does_not_fit_comes_with_changes_after_which_it_does():
    cfg = profile.load(Spell, "qwen3-30b-a3b-thinking")
    plan = make_plan(cfg, H100)
    assert plan.verdict == "no" and "36,864 tokens" in plan.problems[0]
    found = list(ways_out(cfg, H100))
    assert (
        found[0] == "--gpu h200-141"
        and "trainer_processes=16, on as many GPUs of one machine" in found
    )
    assert make_plan(cfg, H200).verdict == "yes"


def test_too_few_positions_are_a_problem_until_yarn_stretches_them():
    """Qwen3-8B has 40,960."""
    given = {"engine.max_model_len": 100_000}
    made = output(
        "scope-iteration",
        "--profile",
        "qwen3-8b-1gpu",
        "--set",
        "engine.max_model_len=100000",
        code=1,
    )
    assert "engine: max_model_len is 100,000, the model has 40,960 positions" in made
    assert "--set engine.yarn.factor=3" in made
    for yarn, positions in (({"factor": 3}, 122_880), ({"factor": 4, "original": 32768}, 131_072)):
        plan = make_plan(profile.load(Scope, "qwen3-8b-1gpu", {**given, "engine.yarn": yarn}), H200)
        assert plan.engine.positions == positions and not plan.problems


def test_a_cache_of_fixed_size_is_that_size_and_has_to_fit_the_card():
    """Qwen3-8B has 36 layers of 8 key heads of 128: 147,456 bytes a token, so 30 GiB hold 218,453.
    The weights take 15.3 GiB."""

    def planned(num_gib):
        fixed = {"engine.fixed_kv_cache": True, "engine.kv_cache_bytes": num_gib * GIB}
        return make_plan(profile.load(Scope, "qwen3-8b-1gpu", fixed), H100)

    engine = planned(30).engine
    assert (engine.cache, engine.cache_tokens) == (30.0, 218_453)
    assert not [problem for problem in planned(30).problems if problem.startswith("engine")]
    [problem] = [problem for problem in planned(70).problems if problem.startswith("engine")]
    assert problem.endswith("with its fixed cache: lower engine.kv_cache_bytes")
    assert not planned(70).engine.fits(H100)


def test_an_adapter_on_every_expert_is_refused():
    lora = {"rank": 64, "alpha": 128}
    cfg = profile.load(Spell, "qwen3-30b-a3b-lora", {"update.lora": lora})
    with pytest.raises(ValueError, match="would put an adapter on every expert"):
        make_plan(cfg, H100)
    (problem,) = gpu_problems(cfg, Machine((79.6,) * 8, 580, 10**13))
    assert problem.startswith('lora.targets "all-linear" of a mixture of experts')


def test_every_update_of_a_configuration_is_found_by_its_name():
    assert set(updates_of(profile.load(Scope, "qwen3-8b-6gpu"))) == {
        "challenger.update",
        "solver.update",
    }


def test_conversations_trained_turn_by_turn_have_a_datum_each():
    """Three turns of 10 tokens after a prompt of 100, with 5 between them, end at 140; the datums'
    prompts have 100, 115 and 130."""
    lengths = Lengths(100, 10, turns=3, added=5, by_turn=True)
    assert (lengths.whole, lengths.datums, lengths.datum_tokens) == (140, 3, 120)


def test_the_lengths_of_an_earlier_run_replace_the_assumed_ones(store):
    """Turns of 4 and 2 sampled tokens after a prompt of 3, with 5 between them; then one turn of
    6 after 1. An evaluation counts for nothing."""
    first = turn("a", context_token_ids=[1, 2, 3], sampled_token_ids=[1] * 4)
    second = turn("b", context_token_ids=[1] * 5, sampled_token_ids=[1] * 2, continues=True)
    alone = turn("c", context_token_ids=[1], sampled_token_ids=[1] * 6)
    conversations = [
        row("rollouts", rollout_id="r1", num_turns=2, num_sampled_tokens=6, turns=[first, second]),
        row("rollouts", rollout_id="r2", num_turns=1, num_sampled_tokens=6, turns=[alone]),
    ]
    publish(store.run("mine").iteration(1), "rollouts", *conversations, label="solver-2")
    held_out = row("rollouts", rollout_id="r3", num_turns=1, num_sampled_tokens=99, turns=[alone])
    evaluation = store.run("mine").iteration(1).phase("evaluation")
    publish(evaluation, "rollouts", held_out, label="solver")
    found = measured_lengths(store, "mine")
    assert found == {"solver": {"prompt": 2.0, "sampled": 4.0, "turns": 1.5, "added": 5.0}}
    workload = profile.load(Scope, "qwen3-8b-6gpu").workload()
    changed = workload.at(found).lengths
    assert (changed["solver"].prompt, changed["solver"].by_turn) == (2.0, True)
    assert changed["challenger"] == workload.lengths["challenger"]
    with pytest.raises(ValueError, match="'other' has no rollouts to measure"):
        measured_lengths(store, "other")


def test_the_command_says_what_is_needed_and_that_it_is_computed():
    said = output("scope-iteration", "--profile", "qwen3-8b-6gpu")
    assert "6 x h100-80, computed, not measured" in said
    assert "challenger.update" in said and "GPU-hours" in said


def test_the_command_ends_with_1_where_it_does_not_fit_and_says_what_would():
    said = output("spell-iteration", "--profile", "qwen3-30b-a3b-thinking", code=1)
    assert "does not fit:" in said and "--gpu h200-141" in said
    said = output(
        "spell-iteration", "--profile", "qwen3-30b-a3b-thinking", "--set", "trainer_processes=16"
    )
    assert "16 x h100-80" in said


def test_the_command_refuses_what_it_cannot_plan():
    assert "no GPU 'b9000'; there are h100-80" in output(
        "scope-iteration", "--profile", "qwen3-8b-6gpu", "--gpu", "b9000", code=1
    )


def test_planning_loads_no_torch():
    code = (
        "import sys; from click.testing import CliRunner; from flows.app.command.cli import main; "
        "CliRunner().invoke(main, ['plan', 'spice-iteration', '--profile', 'qwen3-8b-base-8gpu']); "
        "print(sorted({'torch', 'vllm', 'transformers'} & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=SOURCE, check=True, capture_output=True, text=True
    ).stdout
    assert said == "[]\n"


def test_a_reward_model_is_planned_as_the_model_that_it_is_on_rows_without_a_context():
    """Six answers of 8,192 tokens, at most, are quoted, and 8,192 more compare them."""
    cfg = profile.load(Eapo, "qwen3-14b")
    plan = make_plan(cfg, GPUS["h200-141"], cfg.workload())
    policy, reward_model = plan.updates["update"], plan.updates["reward_model.update"]
    assert (policy.tokens, reward_model.tokens) == (131_072, 7 * 8192 + 1024)
    # full weights of 14.8 and 30.5 billion parameters, 4 bytes each, over eight GPUs
    assert policy.kinds["weights"] == pytest.approx(14.8e9 * 4 / 8 / 2**30, rel=0.01)
    assert reward_model.kinds["weights"] == pytest.approx(30.5e9 * 4 / 8 / 2**30, rel=0.01)


def test_the_rollouts_of_the_largest_stage_are_held_in_memory():
    """R-Zero's pool: ten answers of 900 tokens to 8,000 prompts of 250: 80,000 * (900 * 68 + 250 *
    36) bytes."""
    cfg = profile.load(RZero, "qwen3-4b-base-1gpu")
    assert rollouts_gb(cfg.workload()) == pytest.approx(5.6, abs=0.05)
    small = Machine((79.6,), 580, 10**13, memory=5 * 10**9)
    (problem,) = [text for text in gpu_problems(cfg, small) if "rollouts" in text]
    assert problem.startswith("the rollouts of one stage take 6 GB of the host's memory")


def test_a_machine_is_read_from_its_driver():
    assert Machine.read(CARDS, None, 10).gpus_gib == (81559 / 1024, 81559 / 1024)
    assert (
        len(Machine.read(CARDS, "1", 10).gpus_gib)
        == len(Machine.read(CARDS, "GPU-bb", 10).gpus_gib)
        == 1
    )
    assert Machine.read(CARDS, "", 10).gpus_gib == ()
    assert Machine.read(CARDS, None, 10).driver == 580


def test_a_machine_that_a_plan_does_not_fit_is_refused_with_the_way_out():
    cfg = profile.load(Scope, "qwen3-8b-6gpu")
    good = Machine((79.6,) * 6, 580, 10**13)
    assert gpu_problems(cfg, good) == []
    for machine, said in (
        (Machine((79.6,) * 4, 580, 10**13), "6 GPUs are needed, 4 may be used"),
        (
            Machine((79.6,) * 6, 570, 10**13),
            "driver 570 is too old for CUDA 13: install 580 or newer",
        ),
        (Machine((39.6,) * 6, 580, 10**13), "challenger.update: 40.4 GiB of 39.6"),
        (Machine((79.6,) * 6, 580, 10**10), "an update needs 344 GB of disk, 10 are free"),
        (Machine((), 580, 10**13), "6 GPUs are needed, 0 may be used"),
        (
            Machine((79.6,) * 6, 580, 10**13, exclusive=True),
            "a GPU is in compute mode Exclusive_Process",
        ),
        # 8.19e9 parameters: 4 + 2 bytes (policy, reference) read by each of 6 processes; 6 engines
        # asleep, 22.4 GB each
        (
            Machine((79.6,) * 6, 580, 10**13, 256 * 10**9),
            "an update needs 429 GB of the host's memory, there are 256",
        ),
    ):
        problems = gpu_problems(cfg, machine)
        assert any(problem.startswith((said, f"NVIDIA {said}")) for problem in problems), problems


def test_a_run_is_refused_before_anything_is_loaded(monkeypatch, tmp_path):
    """The driver reports one old card."""
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho '0, GPU-aa, 24576, 535.1, Default, 24000, 1'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cfg = profile.load(Scope, "qwen3-8b-1gpu")
    told = (
        r"(?s)this machine cannot run the profile:.*driver 535 is too old.*--set preflight=false"
        r" starts it anyway$"
    )
    with pytest.raises(ValueError, match=told):
        check_machine(cfg, tmp_path)
    check_machine(cfg.model_copy(update={"preflight": False}), tmp_path)


def test_an_update_from_memory_waits_for_the_policys_files_only():
    """8.19 GB at one byte per parameter. Engines: 16.4 / 20 + 16.4 / 25 + 1 = 2.5 s. Shares to the
    GPU and back:
    2 x 14 x 8.19 / 6 / 50 = 0.8 s. A sixth of the policy, to the host and to disk: 16.4 / 6 x 0.625
    = 1.7 s. Its hashes: 16.4 / 19.2 = 0.9 s."""
    seconds = []
    behind = []
    for resident in (True, False):
        cfg = profile.load(Scope, "qwen3-8b-6gpu", {"resident_trainer": resident})
        clock = Clock(cfg, shape_of(cfg.models.base), H100)
        seconds.append(clock.around(cfg.solver.update))
        behind.append(clock.behind(cfg.solver.update))
    assert seconds[0] == pytest.approx(2.5 + 0.8 + 1.7 + 0.9, abs=0.15)
    # A sixth of the state to disk, 98.3 / 6 / 2 = 8.2, and its hashes, 98.3 / 19.2 = 5.1, while
    # engines generate.
    assert behind == pytest.approx([8.2 + 5.1, 0.0], abs=0.1)
    # Starting processes: 20 more. Whole weights, from the page cache and sharded: 49.1 / 4 + 49.1 /
    # 8 = 18.4. A sixth of the state, read, to the GPU, and back: (1 / 4 + 1 / 8 + 1 / 8) x 16.4 =
    # 8.2. It is written before engines run.
    assert seconds[1] == pytest.approx(seconds[0] - 0.8 + 20 + 18.4 + 8.2 + behind[0], abs=0.1)


def test_a_state_that_is_written_for_longer_than_engines_generate_is_waited_for():
    cfg = profile.load(Scope, "qwen3-8b-6gpu")
    clock = Clock(cfg, shape_of(cfg.models.base), H100)
    workload = cfg.workload()
    [step, *_] = [step for step in workload.steps if step.update]
    around = [
        next(
            spent.seconds
            for spent in clock._step(asked, workload)
            if spent.kind == "around updates"
        )
        for asked in (step, replace(step, conversations=()))
    ]
    assert around == pytest.approx([5.8, 5.8 + 13.3], abs=0.1)


def test_what_needs_no_plan_says_so():
    assert "prepare-corpus neither samples nor trains" in output(
        "prepare-corpus", "--profile", "text", code=1
    )
    assert "has no profile '_table-9-1gpu'" in output(
        "scope-iteration", "--profile", "_table-9-1gpu", code=1
    )


def test_a_profile_on_cpus_has_memory_and_hours(tmp_path):
    """The model has 2 layers of 656 parameters, 800 embeddings and a norm of 8: 2,120.

    Read once for each of ten prompts: 10 x 100 tokens x 2 x 1,312 = 2.624e6 FLOPs at 1e11 a second.
    Sampled: 20 x 10 tokens x 2 x 2,112 (with the head) = 8.448e5 at 6e10. The engine: 1.2 GB, 1.7 x
    4 bytes x 2,120, and its cache.
    """
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    own = {"models.base": str(tmp_path), "engine.model": str(tmp_path)}
    cfg = profile.load(Spell, "smollm2", own)
    role = PlannedRole("responder", Lengths(prompt=100, sampled=10))
    made = plan_on_cpus(cfg, Workload((Step(3, (role.conversations(10, 2),)),)))
    assert made.hours == {"generate": pytest.approx(3 * 4.032e-5 / 3600), "train": 0.0}
    assert made.memory_gb["engine 1"] == pytest.approx(1.2 + 0.838860800 + 1.44e-5, abs=1e-6)
    assert (made.context, made.positions) == (704, None)
    assert made.cache_tokens == 838_860_800 // (2 * 2 * 2 * 8 * 4 // 2)


def test_plan_prints_the_memory_and_hours_of_a_cpu_profile(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    own = [f"--set=models.base={tmp_path}", f"--set=engine.model={tmp_path}"]
    told = output("spell-iteration", "--profile", "smollm2", *own)
    assert "spell-iteration/smollm2 on CPUs" in told
    assert "contexts of 704 tokens" in told and "CPU-hours" in told


def test_gathers_are_as_slow_as_the_slower_of_the_links_and_the_network():
    """16 GB over 64 GPUs at 330 GB/s: 0.048 s; seven eighths of it into a node at 400 GB/s:
    0.035."""
    fast, slow = Nodes(8, 400), Nodes(8, 50)
    assert fast.gather_s(16, 64, H100) == pytest.approx(16 * 63 / 64 / 330)
    assert slow.gather_s(16, 64, H100) == pytest.approx(16 * 7 / 8 / 50)
    assert slow.gather_s(16, 8, H100) == fast.gather_s(16, 8, H100)  # one node: no network


def test_full_weights_over_several_nodes_train_as_fast_as_the_network_lets_them():
    settings = {"num_engines": 64, "trainer_processes": 64, "trainer_place": "ray"}
    cfg = profile.load(Scope, "qwen3-8b-6gpu", {**settings, "engine.place": "ray"})
    hours = [
        make_plan(cfg, H100, cfg.workload(), Nodes(8, network)).hours or 0.0
        for network in (400, 100, 25)
    ]
    assert hours[0] < hours[1] < hours[2]
    lora = profile.load(Scope, "qwen3-8b-6gpu-lora", {**settings, "engine.place": "ray"})
    same = [make_plan(lora, H100, lora.workload(), Nodes(8, net)).hours for net in (400, 25)]
    assert same[0] == same[1]  # adapters are small
