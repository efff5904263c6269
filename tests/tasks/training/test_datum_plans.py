"""Which datums are computed together, and the weight of each of their tokens in the loss, worked
by hand."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.training.datums import COLUMNS, Datums, collate, micro_batches, plan, read_datums

P = [1, 2]
Q = [3, 4]


def made(
    *rows: tuple[list[int], list[int], list[int]], advantages: list[float] | None = None, **more
) -> Datums:
    """Datums a, b, ... of (prompt, completion, mask); the n-th token of a completion has
    log-probability -n."""
    prompts, completions, masks = ([np.array(row[k], np.int64) for row in rows] for k in range(3))
    return Datums(
        rollout_ids=[chr(ord("a") + i) for i in range(len(rows))],
        prompts=prompts,
        completions=completions,
        masks=masks,
        logprobs=[-np.arange(1, len(c) + 1, dtype=np.float32) for c in completions],
        advantages=np.array(advantages or [1.0] * len(rows)),
        **more,
    )


def lengths(*sizes: int, prompts: list[list[int]] | None = None, **more) -> Datums:
    """Datums with completions of these sizes."""
    behind = prompts or [P] * len(sizes)
    return made(
        *((prompt, [9] * size, [1] * size) for prompt, size in zip(behind, sizes, strict=True)),
        **more,
    )


def planned(datums: Datums, **how) -> list:
    found = plan(
        datums,
        **{
            "optimizer_steps": 1,
            "micro_batch_size": 2,
            "num_processes": 1,
            "by_length": True,
            **how,
        },
    )
    return [[[rows.tolist() for rows in micro] for micro in step] for step in found.rows]


def test_steps_take_the_file_in_order_and_micro_batches_the_longest_first():
    """Of five datums the first step has three. Missing rows are filled with rows of no weight,
    -1."""
    five = lengths(1, 3, 2, 5, 4)
    assert planned(five, optimizer_steps=2) == [[[[1, 2]], [[0, -1]]], [[[3, 4]], [[-1, -1]]]]
    assert planned(five, optimizer_steps=2, by_length=False) == [
        [[[0, 1]], [[2, -1]]],
        [[[3, 4]], [[-1, -1]]],
    ]
    assert planned(five, optimizer_steps=2, num_processes=2) == [
        [[[1, 2], [0, -1]]],
        [[[3, 4], [-1, -1]]],
    ]
    # datums of equal length keep their order
    assert planned(lengths(2, 2, 2), micro_batch_size=3) == [[[[0, 1, 2]]]]


def test_every_process_has_as_many_micro_batches():
    four = lengths(4, 3, 2, 1)
    assert planned(four, micro_batch_size=1, num_processes=3) == [
        [[[0], [1], [2]], [[3], [-1], [-1]]]
    ]
    found = plan(four, optimizer_steps=2, micro_batch_size=1, num_processes=3, by_length=True)
    assert (found.accumulation_steps, found.num_processes, found.shares_prompts) == (1, 3, False)
    assert [members.tolist() for members in found.members] == [[0, 1], [2, 3]]


def test_rows_of_advantage_0_may_be_left_uncomputed_and_still_count():
    some = lengths(1, 2, 3, 4, advantages=[0.5, 0.0, 0.0, -0.5])
    assert planned(some, skip_zero_advantages=True) == [[[[3, 0]]]]
    assert planned(some) == [[[[3, 2]], [[1, 0]]]]
    found = plan(
        lengths(1, advantages=[0.0]),
        optimizer_steps=1,
        micro_batch_size=2,
        num_processes=1,
        by_length=True,
        skip_zero_advantages=True,
    )
    assert [rows.tolist() for rows in found.rows[0][0]] == [[-1, -1]]
    assert found.members[0].tolist() == [0]


def test_as_many_datums_as_steps_are_enough_and_fewer_are_not():
    assert planned(lengths(1, 1), optimizer_steps=2, micro_batch_size=1) == [[[[0]]], [[[1]]]]
    with pytest.raises(ValueError, match=r"2 datum\(s\) cannot make 3 optimizer steps"):
        planned(lengths(1, 1), optimizer_steps=3)


def test_answers_share_a_prompt_up_to_so_many_tokens_the_longest_part_first():
    """Prompt P with answers of 3 and 2 makes 7 tokens; one of 1 is too many, and shares with the
    last of 2, making
    5."""
    some = lengths(3, 2, 1, 4, 2, prompts=[P, P, P, Q, P])
    how = {"shared_prompt_tokens": 7, "micro_batch_size": 1, "by_length": False}
    assert planned(some, **how) == [[[[0, 1]], [[3]], [[2, 4]]]]
    less = [[[[3]], [[0]], [[1, 2]], [[4]]]]  # at most 6: groups of 6, 5, 5 and 4 tokens
    assert planned(some, **{**how, "shared_prompt_tokens": 6}) == less
    found = plan(some, optimizer_steps=1, num_processes=2, **how)
    assert [[rows.tolist() for rows in micro] for micro in found.rows[0]] == [
        [[0, 1], [3]],
        [[2, 4], [-1]],
    ]
    assert found.shares_prompts


def test_a_prompt_of_one_token_is_not_shared_and_one_of_two_is():
    how = {"shared_prompt_tokens": 99, "micro_batch_size": 1}
    assert planned(lengths(2, 1, prompts=[[7], [7]]), **how) == [[[[0]], [[1]]]]
    assert planned(lengths(2, 1, prompts=[P, P]), **how) == [[[[0, 1]]]]


ROWS = (P, [5, 6], [1, 1]), ([1, 2, 3], [5, 6, 7], [0, 1, 1]), (P, [5], [1])  # five sampled tokens


def batches(datums: Datums, loss: str, process: int = 0, constant: int = 10, **how) -> list[dict]:
    how = {
        "optimizer_steps": 1,
        "micro_batch_size": 2,
        "num_processes": 1,
        "by_length": False,
        **how,
    }
    return micro_batches(datums, plan(datums, **how), process, loss, constant)  # type: ignore[arg-type]


def weights(batch: dict) -> list[list[float]]:
    return [[round(w, 6) for w in row if w] for row in batch["token_weight"].tolist()]


@pytest.mark.parametrize(
    "loss, scale, first, second",
    [
        ("dapo", 1.0, [[0.2, 0.2], [0.2, 0.2]], [[0.2], []]),  # one of the step's five tokens
        # one of four, or of one, in one of two micro-batches
        ("bnpo", 1.0, [[0.125] * 2, [0.125] * 2], [[0.5], []]),
        # one of its row's, in one of three rows
        ("grpo", 4 / 3, [[1 / 6] * 2, [1 / 6] * 2], [[1 / 3], []]),
        # one of ten, in one of three rows
        ("dr_grpo", 4 / 3, [[1 / 30] * 2, [1 / 30] * 2], [[1 / 30], []]),
    ],
)
def test_a_token_weighs_what_its_loss_says(loss, scale, first, second):
    found = batches(made(*ROWS), loss)
    assert [b["loss_scale"] for b in found] == [pytest.approx(scale)] * 2
    assert [weights(b) for b in found] == [
        [[pytest.approx(w, abs=1e-6) for w in row] for row in b] for b in (first, second)
    ]
    assert [(b["num_tokens"], b["num_rows"], b["step_tokens"], b["step_rows"]) for b in found] == [
        (4, 2, 5, 3),
        (1, 1, 5, 3),
    ]
    assert [float(b["num_items_in_batch"]) for b in found] == [5.0, 5.0]
    assert not any("answer_tokens" in b for b in found)


def test_a_micro_batch_in_which_nothing_was_sampled_is_in_no_mean():
    """The last of three micro-batches has no sampled token: the mean is over two, scaled by 3/2."""
    some = made((P, [5, 6], [1, 1]), (P, [5], [1]), (P, [5, 6], [0, 0]))
    found = batches(some, "bnpo", micro_batch_size=1)
    assert [b["loss_scale"] for b in found] == [1.5] * 3
    assert [weights(b) for b in found] == [[[0.25, 0.25]], [[0.5]], [[]]]
    nothing = made((P, [5], [0]))
    for loss, scale in (("dapo", 1.0), ("bnpo", 1.0), ("grpo", 2.0), ("dr_grpo", 2.0)):
        [batch] = batches(nothing, loss)
        assert (batch["loss_scale"], weights(batch), batch["num_tokens"]) == (scale, [[], []], 0)


def test_counts_are_over_all_processes_and_rows_are_a_processs_own():
    """Two processes with one row each, then one row and one of no weight."""
    ours, theirs = (
        batches(made(*ROWS), "grpo", process=p, micro_batch_size=1, num_processes=2) for p in (0, 1)
    )
    assert [b["rollout_ids"] for b in ours] == [["a"], ["c"]]
    assert [b["rollout_ids"] for b in theirs] == [["b"], []]
    assert [(b["num_tokens"], b["num_rows"]) for b in ours] == [
        (b["num_tokens"], b["num_rows"]) for b in theirs
    ]
    assert [(b["num_tokens"], b["num_rows"]) for b in ours] == [(4, 2), (1, 1)]
    # 2 micro-batches of 2 processes, 3 rows
    assert [b["loss_scale"] for b in ours] == [pytest.approx(4 / 3)] * 2


def test_answers_behind_one_prompt_are_measured_where_they_share_it():
    some = lengths(3, 2, 1, prompts=[P, P, Q])
    first, second = batches(some, "dapo", micro_batch_size=1, shared_prompt_tokens=99)
    assert first["answer_tokens"] == [3, 2]
    assert "answer_tokens" not in second


def test_rows_are_padded_on_the_right_behind_the_shortest_prompt():
    some = made(
        *ROWS,
        reference_logprobs=[
            np.array([-0.5, -0.25]),
            np.array([-9.0, -1.0, -2.0]),
            np.array([-4.0]),
        ],
    )
    found = collate(some, [0, 1, -1], shortest=2)
    assert found["prompt_ids"].tolist() == [[1, 2], [1, 2], [1, 2]]
    assert found["prompt_mask"].tolist() == [[1, 1]] * 3
    # the last one is borrowed
    assert found["completion_ids"].tolist() == [[5, 6, 0, 0], [3, 5, 6, 7], [3, 5, 6, 7]]
    assert found["completion_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    assert found["tool_mask"].tolist() == [[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]
    assert found["old_per_token_logps"].tolist() == [[-1, -2, 0, 0], [0, 0, -2, -3], [0, 0, 0, 0]]
    assert found["ref_per_token_logps"].tolist() == [
        [-0.5, -0.25, 0, 0],
        [0, 0, -1, -2],
        [0, 0, 0, 0],
    ]
    assert found["advantages"].tolist() == [1, 1, 0]
    assert found["rollout_ids"] == ["a", "b"]
    assert "ref_per_token_logps" not in collate(made(*ROWS), [0], shortest=0)


def test_a_row_of_no_weight_borrows_a_neighbour_or_the_shortest_row():
    some = made((P, [5, 6], [1, 1]), ([8], [7], [1]))
    found = collate(some, [-1, -1], shortest=1)
    assert (found["prompt_ids"].tolist(), found["completion_ids"].tolist()) == (
        [[8], [8]],
        [[7], [7]],
    )
    assert (found["rollout_ids"], found["advantages"].tolist(), int(found["tool_mask"].sum())) == (
        [],
        [0, 0],
        0,
    )
    beside_another = collate(some, [0, -1], shortest=1)
    assert beside_another["completion_ids"].tolist() == [[5, 6], [5, 6]]


def stored(folder, name: str, *ids: str, **changed) -> None:
    rows = {
        "rollout_id": list(ids),
        "prompt_token_ids": [[1]] * len(ids),
        "completion_token_ids": [[2, 3]] * len(ids),
    }
    rows |= {
        "loss_mask": [[0, 1]] * len(ids),
        "logprobs": [[0.0, -0.5]] * len(ids),
        "advantage": [0.5] * len(ids),
    }
    rows = {key: value for key, value in {**rows, **changed}.items() if value is not None}
    pq.write_table(pa.table({**rows, "other": ["x"] * len(ids)}), folder / name)


def test_a_folder_is_read_in_the_order_of_names_with_its_reference_log_probabilities(tmp_path):
    stored(tmp_path, "part-1.parquet", "c")
    stored(tmp_path, "part-0.parquet", "a", "b")
    reference_logprobs = tmp_path / "reference_logprobs"
    reference_logprobs.mkdir()
    pq.write_table(
        pa.table(
            {"rollout_id": ["a", "b", "c"], "logprobs": [[0.0, -float(i)] for i in (1, 2, 3)]}
        ),
        reference_logprobs / "r.parquet",
    )
    found = read_datums(tmp_path, reference_logprobs)
    assert found.rollout_ids == ["a", "b", "c"]
    assert [row.tolist() for row in found.completions] == [[2, 3]] * 3
    assert (found.num_tokens.tolist(), found.lengths.tolist()) == ([1, 1, 1], [3, 3, 3])
    assert found.reference_logprobs is not None and [
        row.tolist() for row in found.reference_logprobs
    ] == [
        [0, -1],
        [0, -2],
        [0, -3],
    ]
    assert read_datums(tmp_path / "part-1.parquet").reference_logprobs is None
    with pytest.raises(AssertionError, match="is of another batch"):
        read_datums(tmp_path / "part-1.parquet", reference_logprobs)


def test_a_batch_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ValueError, match="no Parquet file to train on"):
        read_datums(tmp_path)
    with pytest.raises(ValueError, match="no Parquet file to train on"):
        read_datums(tmp_path / "absent.parquet")
    stored(tmp_path, "empty.parquet")
    with pytest.raises(ValueError, match="the batch is empty"):
        read_datums(tmp_path / "empty.parquet")
    stored(tmp_path, "short.parquet", "a", advantage=None, logprobs=None)
    with pytest.raises(ValueError, match=r"column\(s\) advantage, logprobs missing"):
        read_datums(tmp_path / "short.parquet")
    for column in COLUMNS:
        stored(tmp_path, "null.parquet", "a", "b", **{column: [None, _of(column)]})
        with pytest.raises(ValueError, match=rf"column {column} has 1 null"):
            read_datums(tmp_path / "null.parquet")


def _of(column: str):
    return {"rollout_id": "b", "advantage": 0.5}.get(
        column, [1, 2] if column != "prompt_token_ids" else [1]
    )
