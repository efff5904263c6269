"""Models behind an API that fails in every way: no reply is lost, doubled or paid for twice, and
no key leaks."""

import contextlib
import random
import sqlite3
import threading

import pytest

from tasks.engines.budget import SpendingCapReached
from tasks.engines.chat import ChatFleet
from tasks.engines.endpoint import ChatEndpoint
from tasks.generate import generate
from tasks.models.engine import EngineDied, Sampling
from tasks.prompt import Malformed
from tasks.read import of_reply
from tasks.rollouts.dialogue import Dialogue
from tests.support.chat_server import FAULTS, completion, serving, trickling
from tests.support.rows import publish, row
from warehouse.query import query
from warehouse.replies import FILE, PaidReplies
from warehouse.table import Damaged

KEY = "sk-test-0123456789abcdef"
GREEDY = Sampling(temperature=0, max_tokens=8)
PRICED = {"price_in": 1e5, "price_out": 5e5}  # a reply of 10 and 2 tokens costs 1 + 1 = 2


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)


def endpoint(url: str, **settings) -> ChatEndpoint:
    given = {
        "api_key_env": "JUDGE_KEY",
        "provider": "test",
        "max_wait_s": 0.01,
        "timeout_s": 600,
        **settings,
    }
    return ChatEndpoint(url=url, **given)


def prompts(count: int, text: str = "judge {}") -> list[dict]:
    asked = [[{"role": "user", "content": text.format(i)}] for i in range(count)]
    return [
        row("prompts", prompt_id=f"p{i}", role="judge", messages=messages)
        for i, messages in enumerate(asked)
    ]


def ask(
    place,
    url: str,
    rows: list[dict],
    sampling: Sampling = GREEDY,
    seed: int = 0,
    group_size=1,
    **settings,
):
    """Rows by prompt id, as `Fleet.roll_out` would yield them."""
    api = endpoint(url, **settings)
    fleet = ChatFleet(api, place.store.root, place.at.run)
    try:
        found = list(
            fleet.roll_out(
                rows, api.policy("api:m"), sampling, Dialogue(), seed=seed, group_size=group_size
            )
        )
    finally:
        fleet.close()
    return sorted(found, key=lambda r: (r["prompt_id"], r["sample"]))


def stage(place, url: str, table, ask_again=None, **settings):
    """The published rollouts of a table of prompts."""
    api = endpoint(url, **settings)
    fleet = ChatFleet(api, place.store.root, place.at.run)
    try:
        return generate(
            place,
            table,
            policy=api.policy("api:m"),
            sampling=GREEDY,
            dialogue=Dialogue(),
            fleet=fleet,
            ask_again=ask_again and of_reply(ask_again),
            label="judge",
        )
    finally:
        fleet.close()


def yes(prompt: str, n: int) -> str:
    return f"<score>1</score> {prompt}"


def test_a_reply_is_a_row_without_tokens_to_train_on_and_with_what_it_cost(place):
    with serving(yes) as server:
        (found,) = ask(
            place,
            server.url,
            prompts(1),
            **PRICED,
            extra={"reasoning_effort": "low"},
            omit=("top_p",),
        )
    assert (found["reply"], found["finish_reason"]) == ("<score>1</score> judge 0", "final")
    assert found["turns"][0]["sampled_token_ids"] == [] and found["num_sampled_tokens"] == 2
    cost = {
        "num_prompt_tokens": 10,
        "num_completion_tokens": 2,
        "cost": 2.0,
        "cached": False,
        "model": "judge-2026",
    }
    assert found["usage"] == cost
    (sent,) = server.requests
    assert isinstance(sent.pop("seed"), int)
    about = {
        "model": "m",
        "messages": [{"role": "user", "content": "judge 0"}],
        "reasoning_effort": "low",
    }
    assert sent == {**about, "temperature": 0, "max_tokens": 8}


def test_a_reply_ends_at_its_stop_string_and_one_that_was_cut_says_so(place):
    cut = completion("<score>1</sc")
    cut["choices"][0]["finish_reason"] = "length"
    says = {"judge 0": "<score>1</score> because", "judge 1": cut}
    with serving(lambda prompt, n: says[prompt]) as server:
        whole, short = ask(
            place, server.url, prompts(2), Sampling(temperature=0, max_tokens=8, stop=("</score>",))
        )
    assert (whole["reply"], whole["finish_reason"]) == ("<score>1</score>", "final")
    assert (short["reply"], short["finish_reason"]) == ("<score>1</sc", "length")


@pytest.mark.parametrize("fault", FAULTS)
def test_after_any_fault_the_same_request_is_sent_again(place, fault):
    with serving(lambda prompt, n: fault if n == 1 else yes(prompt, n)) as server:
        found = ask(place, server.url, prompts(3))
    assert [r["reply"] for r in found] == [f"<score>1</score> judge {i}" for i in range(3)]
    assert set(server.asked.values()) == {2}


def test_a_server_that_does_not_answer_in_time_is_asked_again(place):
    with serving(lambda prompt, n: "slow" if n == 1 else "late") as server:
        (found,) = ask(place, server.url, prompts(1), timeout_s=0.5, retries=100)
    # a busy machine may be late more than once
    assert found["reply"] == "late" and server.asked["judge 0"] >= 2


@pytest.mark.parametrize(
    "begin, piece",
    [
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["header", "interim responses", "body", "chunks"],
)
def test_a_response_that_trickles_is_given_up_wherever_it_is(place, begin, piece):
    """A piece every 10 ms, for ever: no single wait is long."""
    with trickling(begin, piece) as url:
        (found,) = ask(place, url, prompts(1), timeout_s=0.5, retries=0, max_failed_share=1)
    assert "ReadTimeout within 0.5 s" in found["error"]


def test_what_is_in_a_reply_is_stored_whatever_it_is(place):
    """Half a surrogate pair and a NUL are text; invalid counts are stored as null; a list of
    parts is not text."""
    strange = completion(
        "\ud800 \x00 ok", usage={"prompt_tokens": "7", "completion_tokens": -1}, model=["m"]
    )
    says = {
        "judge 0": strange,
        "judge 1": completion([{"type": "text", "text": "ok"}]),
        "judge 2": {"choices": {"a": 1}},
    }
    with serving(lambda prompt, n: says[prompt]) as server:
        table = stage(
            place, server.url, publish(place, "prompts", *prompts(3)), retries=0, max_failed_share=1
        )
    good, parts, wrong = table.rows()
    assert (
        good["reply"] == "? \x00 ok"
        and good["usage"]["num_prompt_tokens"] is good["usage"]["model"] is None
    )
    assert "no text" in parts["error"] and "no reply" in wrong["error"]


def test_what_fails_has_no_reply_and_a_later_attempt_asks_for_that_only(place):
    with serving(lambda prompt, n: "500" if prompt == "judge 1" else yes(prompt, n)) as server:
        found = ask(place, server.url, prompts(3), retries=1, max_failed_share=1)
    assert [r["finish_reason"] for r in found] == ["final", "error", "final"]
    assert (found[1]["turns"], found[1]["reply"], found[1]["usage"]) == ([], "", None)
    # once more at the end
    assert "after 2 attempts: status 500" in found[1]["error"] and server.asked["judge 1"] == 4
    with serving(yes) as server:
        again = ask(place, server.url, prompts(3))
    assert dict(server.asked) == {"judge 1": 1}
    assert [r["reply"] for r in again] == [f"<score>1</score> judge {i}" for i in range(3)]
    assert [r["rollout_id"] for r in again] == [r["rollout_id"] for r in found]


def score(reply: str) -> str:
    if "<score>" not in reply:
        raise Malformed("no score")
    return reply


def test_an_unreadable_reply_is_requested_once_more_even_at_temperature_0(place):
    """The second request is another one: the first one's reply is in the store."""
    table = publish(place, "prompts", *prompts(2))
    says = {"judge 0": ["well", "<score>1</score>"], "judge 1": ["<score>0</score>"]}
    with serving(lambda prompt, n: says[prompt][n - 1]) as server:
        rows = stage(place, server.url, table, ask_again=score).rows()
        again = stage(place.store.run("again"), server.url, table, ask_again=score).rows()
    replies = ["well", "<score>0</score>", "<score>1</score>"]
    assert [r["reply"] for r in rows] == [r["reply"] for r in again] == replies
    assert len(server.requests) == 3 and all(r["usage"]["cached"] for r in again)


def test_prompts_without_a_reply_are_not_requested_once_more(place):
    """3 of 60 are refused for good, as many as may be; of the second attempt's 3 requests they
    would be too many."""
    table = publish(place, "prompts", *prompts(60))
    bad = {"judge 3", "judge 7", "judge 9"}
    refusal = 400, {"error": "policy"}
    with serving(lambda prompt, n: refusal if prompt in bad else yes(prompt, n)) as server:
        rows = stage(place, server.url, table, ask_again=score).rows()
    assert len(rows) == 60 and set(server.asked.values()) == {1}
    assert sum(r["finish_reason"] == "error" for r in rows) == 3


def test_a_reply_whose_reasoning_took_all_tokens_was_cut(place):
    cut = completion(None)
    cut["choices"][0]["finish_reason"] = "length"
    with serving(lambda prompt, n: cut) as server:
        (found,) = ask(place, server.url, prompts(1), **PRICED)
    assert (found["reply"], found["finish_reason"]) == ("", "length")
    assert found["usage"]["cost"] == 2.0 and len(server.requests) == 1


def test_what_brings_no_reply_and_is_charged_counts_as_spent(place):
    """Each of two requests is charged twice: at once, and when it is sent once more at the end. A
    refusal is charged once."""
    filtered = completion(None)
    filtered["choices"][0] |= {"finish_reason": "content_filter"}
    says = {"judge 0": completion(None), "judge 1": {**completion(None), "choices": []}}
    with serving(lambda prompt, n: says.get(prompt, filtered)) as server:
        rows = ask(place, server.url, prompts(3), max_failed_share=1, max_cost=50, **PRICED)
    assert [r["usage"] for r in rows] == [None] * 3
    assert dict(server.asked) == {"judge 0": 2, "judge 1": 2, "judge 2": 1}
    assert PaidReplies(place.store.root).spent("r") == 5 * 2.0


# what a provider may bill for, although no reply arrives
MAY_BE_BILLED = ("reset", "cut", "cut length", "html", "no json", "no choices", "no text", "deep")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_may_be_billed_counts_as_the_most_it_can_cost(place, fault):
    """A reply costs 2; a request may cost 2.3 for the prompt of 7 bytes and 16 of markup, and 4 for
    8 tokens."""
    with serving(lambda prompt, n: fault if n < 3 else yes(prompt, n)) as server:
        (found,) = ask(place, server.url, prompts(1), max_cost=50, **PRICED)
    paid = PaidReplies(place.store.root)
    assert found["usage"]["cost"] == 2
    lost = 2 * 6.3 if fault in MAY_BE_BILLED else 0
    assert (paid.lost("r"), paid.spent("r")) == pytest.approx((lost, lost + 2))


def test_requests_that_time_out_do_not_exceed_the_cap(place):
    """Three may cost 18.9; a fourth would exceed 25."""
    with serving(lambda prompt, n: "slow") as server, pytest.raises(SpendingCapReached) as reached:
        ask(place, server.url, prompts(2), max_cost=25, timeout_s=0.2, **PRICED)
    assert len(server.requests) <= 3
    assert str(reached.value).startswith(
        "18.9000 of 25 is spent (18.9000 of it, at most, for requests that brought no usable reply)"
    )
    assert PaidReplies(place.store.root).spent("r") == pytest.approx(18.9)


def test_a_request_that_was_never_sent_costs_nothing(place):
    with serving(yes) as server:
        url = server.url
    settings = {"retries": 3, "max_failed_share": 1, "max_cost": 10, **PRICED}
    (found,) = ask(place, url, prompts(1), **settings)
    assert "ConnectError" in found["error"] and PaidReplies(place.store.root).spent("r") == 0


@pytest.mark.parametrize("count", [2**31 - 1, 300_000])
def test_an_absurd_count_of_tokens_counts_as_the_most_there_can_be(place, count):
    """It blocks neither the cap nor the limit of tokens per minute."""
    usage = {"prompt_tokens": 10, "completion_tokens": count}
    with serving(lambda prompt, n: completion("yes", usage=usage)) as server:
        rows = ask(place, server.url, prompts(3), max_cost=20, tokens_per_minute=10_000, **PRICED)
    assert [r["usage"]["num_completion_tokens"] for r in rows] == [None] * 3
    assert [r["usage"]["cost"] for r in rows] == [1 + 4] * 3


def test_a_refusal_is_not_repeated_and_costs_its_row_only(place):
    filtered = completion(None)
    filtered["choices"][0] |= {"finish_reason": "content_filter"}
    says = {"judge 0": "400", "judge 1": filtered, "judge 2": "fine"}
    with serving(
        lambda prompt, n: says[prompt] if says[prompt] != "400" else (400, {"error": "too long"})
    ) as server:
        found = ask(place, server.url, prompts(3), retries=0, max_failed_share=1)
    assert ["too long" in (r["error"] or "") for r in found] == [True, False, False]
    assert "content_filter" in found[1]["error"] and found[2]["reply"] == "fine"
    assert set(server.asked.values()) == {1}


def test_a_stage_with_too_many_failures_is_not_published_and_goes_on_where_it_was(place):
    """3 of 20 fail; 5 %, that is 1, may."""
    table = publish(place, "prompts", *prompts(20))
    bad = {"judge 3", "judge 4", "judge 5"}
    with serving(lambda prompt, n: "500" if prompt in bad else yes(prompt, n)) as server:
        with pytest.raises(
            EngineDied, match=r"[23] of 20 requests failed, and 1 may .*repeat the command"
        ):
            stage(place, server.url, table, retries=0, max_concurrency=1)
        assert place.store.find(place.address("rollouts", "judge")) is None
        before = set(server.asked) - bad
        bad.clear()
        rows = stage(place, server.url, table, retries=0).rows()
    # in the order of the prompts
    assert [r["prompt_id"] for r in rows] == [f"p{i}" for i in range(20)]
    assert all(r["reply"].startswith("<score>1") for r in rows)
    assert before and {server.asked[prompt] for prompt in before} == {1}


@pytest.mark.parametrize("status", [401, 402, 404])
def test_what_no_request_gets_past_stops_at_once_and_names_no_key(place, status):
    refusal = status, {"error": f"Incorrect API key provided: {KEY}"}
    says = pytest.raises(ValueError, match=rf"serves nobody: status {status}: .*\[key\]")
    with serving(lambda prompt, n: refusal) as server, says:
        ask(place, server.url, prompts(50), max_concurrency=4)
    assert len(server.requests) <= 4


def test_the_same_rows_cost_nothing_again_whoever_asks(place, store):
    with serving(yes) as server:
        first = ask(place, server.url, prompts(5), group_size=2, **PRICED)
        again = ask(store.run("another"), server.url, prompts(5), group_size=2, **PRICED)
    assert len(server.requests) == 10
    assert [r["reply"] for r in again] == [r["reply"] for r in first]
    assert {r["usage"]["cached"] for r in again} == {True}
    assert {r["usage"]["cached"] for r in first} == {False}


def test_the_cache_of_an_older_store_is_read_and_its_replies_are_nobodys(place):
    with serving(yes) as server:
        first = ask(place, server.url, prompts(2))
        with contextlib.closing(sqlite3.connect(place.store.root / FILE)) as connection:
            connection.execute("alter table replies drop column rollout_id")
        again = ask(place, server.url, prompts(3))
    assert len(server.requests) == 3
    assert [r["reply"] for r in again[:2]] == [r["reply"] for r in first]
    assert [r["usage"]["cached"] for r in again] == [True, True, False]


@pytest.mark.parametrize("damage", [b"", b"SQLite format 3"], ids=["not a database", "torn"])
def test_a_damaged_cache_is_named_with_what_moving_it_away_means(place, damage):
    path = place.store.root / FILE
    with serving(yes) as server:
        ask(place, server.url, prompts(300))
        whole = path.read_bytes()
        path.write_bytes(damage + b"\xff" * (len(whole) - len(damage)))
        with pytest.raises(Damaged, match=r"replies\.sqlite is damaged .*: move it away and"):
            ask(place, server.url, prompts(300))
        path.rename(path.with_suffix(".damaged"))
        assert len(ask(place, server.url, prompts(3))) == 3


def test_a_cache_that_cannot_be_written_is_an_error_of_the_disk(place):
    (place.store.root / FILE).mkdir()
    with serving(yes) as server, pytest.raises(OSError, match=r"unable to open.*replies\.sqlite"):
        ask(place, server.url, prompts(1))
    assert server.requests == []


@pytest.mark.parametrize(
    "change",
    [
        {"sampling": Sampling(temperature=0, max_tokens=9)},
        {"extra": {"a": 1}},
        {"provider": "b"},
        {"omit": ("seed",)},
    ],
)
def test_another_setting_or_endpoint_is_another_request(place, change):
    with serving(yes) as server:
        ask(place, server.url, prompts(1))
        ask(place, server.url, prompts(1), **change)
    assert len(server.requests) == 2


def test_alike_requests_are_sent_once_and_at_a_temperature_seeds_tell_them_apart(place):
    warm = Sampling(temperature=0.7, max_tokens=8)
    with serving(lambda prompt, n: str(n)) as server:
        same = ask(place, server.url, prompts(4, "judge the same"))
        assert [r["reply"] for r in same] == ["1"] * 4 and len(server.requests) == 1
        assert sum(r["usage"]["cached"] for r in same) == 3
        drawn = [
            ask(place, server.url, prompts(1), warm, seed=seed)[0]["reply"] for seed in (1, 1, 2)
        ]
    assert drawn == ["1", "1", "2"]


def test_nobody_asks_before_retry_after_is_over(place):
    """The first request is told to wait a second; until then no thread sends another, except those
    already in
    flight."""
    with serving(lambda prompt, n: yes(prompt, n)) as server:
        first = threading.Event()

        def say(prompt, n):
            if first.is_set():
                return yes(prompt, n)
            first.set()
            return 429, {"error": "slow down"}, {"Retry-After": "1"}

        server.say = say
        ask(place, server.url, prompts(6), max_concurrency=1, max_wait_s=5)
    told, *later = server.times
    assert len(later) == 6 and min(later) - told >= 0.99


def test_a_wait_longer_than_allowed_is_a_failure_of_its_row(place):
    with serving(lambda prompt, n: (429, {}, {"Retry-After": "900"})) as server:
        (found,) = ask(place, server.url, prompts(1), max_failed_share=1, max_wait_s=5)
    assert "asks to wait 900 s" in found["error"]


def test_the_spending_cap_is_never_exceeded_and_nothing_is_lost(place):
    """A reply costs 2 and may cost up to 6.4: 0.1 per byte of the prompt (8 and 16 of markup) and
    0.5 for each of 8 tokens. Of 20 requests the first is sent at 0 spent and the seventh at 12;
    then 14 + 6.4 exceeds the cap."""
    table = publish(place, "prompts", *prompts(10, "judging{}"))
    with serving(yes) as server:
        with pytest.raises(
            SpendingCapReached,
            match=r"^14\.0000 of 20 is spent, and the next request may cost 6\.4",
        ):
            stage(place, server.url, table, max_cost=20, max_concurrency=3, **PRICED)
        assert len(server.requests) == 7 and PaidReplies(place.store.root).spent("r") == 14
        rows = stage(place, server.url, table, max_cost=200, **PRICED).rows()
    assert len(server.requests) == 10 and len({r["rollout_id"] for r in rows}) == 10
    with (
        serving(yes) as server,
        pytest.raises(SpendingCapReached, match=r"^20\.0000 of 25 is spent"),
    ):
        ask(place, server.url, prompts(1, "new {} on it"), max_cost=25, **PRICED)
    assert server.requests == []


def test_sql_tells_tokens_and_cost_of_each_stage(place):
    table = publish(
        place,
        "prompts",
        *prompts(3),
        *[{**p, "prompt_id": "x" + p["prompt_id"]} for p in prompts(1)],
    )
    with serving(lambda prompt, n: "500" if prompt == "judge 2" else yes(prompt, n)) as server:
        stage(place, server.url, table, retries=0, max_failed_share=1, **PRICED)
    (found,) = query(place.store.root, "select * from spending")
    where = {
        "run": "r",
        "iteration": 1,
        "phase": "solver",
        "step": 2,
        "label": "judge",
        "role": "judge",
        "policy": "m",
    }
    counts = {
        "num_replies": 3,
        "num_failed": 1,
        "num_cached": 1,
        "num_prompt_tokens": 30,
        "num_completion_tokens": 6,
    }
    assert found == {**where, **counts, "cost": 6.0, "paid": 4.0}


@pytest.mark.parametrize("status", [400, 200])
def test_no_part_of_the_key_is_left_where_a_text_is_cut(place, status):
    """A refusal is cut after 300 characters, a body that is no JSON after 100: the key begins at
    each of 40 places before."""
    longest = 300 if status == 400 else 100

    def quote(prompt: str, _: int) -> tuple[int, str]:
        return status, "x" * (longest - int(prompt.split()[1])) + KEY

    with serving(quote) as server:
        rows = ask(place, server.url, prompts(40), retries=0, max_failed_share=1)
    assert all(row["error"] for row in rows)
    assert KEY[:9] not in repr(rows)


def test_the_key_reaches_no_row_recipe_log_or_error(place, caplog):
    """The server repeats the key wherever it can: in errors, in replies, as the model's name."""
    caplog.set_level("DEBUG")
    says = {
        "judge 0": "echo",
        "judge 1": completion(f"the key is {KEY}", model=KEY),
        "judge 2": KEY,
    }
    with serving(lambda prompt, n: says.get(prompt, (500, {"error": KEY}))) as server:
        table = stage(
            place, server.url, publish(place, "prompts", *prompts(4)), retries=1, max_failed_share=1
        )
        with pytest.raises(EngineDied) as died:
            ask(place, server.url, prompts(9, "more {}"), retries=0, max_failed_share=0)
    rows = table.rows()
    assert (
        "[key]" in rows[0]["error"]
        and rows[1]["reply"] == "the key is [key]"
        and "[key]" in rows[3]["error"]
    )
    assert KEY not in caplog.text + str(died.value) + repr(rows)
    files = [path for path in place.store.root.rglob("*") if path.is_file()]
    assert {"replies.sqlite", "recipe.json"} <= {path.name for path in files}
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_of_many_replies_through_a_server_that_fails_none_is_lost_or_doubled_and_the_second_run_is_free(  # noqa: E501
    place,
):
    """Every fifth request fails in some way; the table is made twice."""
    chance = random.Random(5)

    def say(prompt, n):
        return (
            chance.choice(FAULTS)
            if chance.random() < 0.2
            else f"<score>{int(prompt[6:]) % 2}</score>"
        )

    table = publish(place, "prompts", *prompts(300))
    with serving(say) as server:
        rows = stage(place, server.url, table).rows()
        num_asked = len(server.requests)
        again = stage(place.store.run("again"), server.url, table).rows()
    assert num_asked > 300 and len(server.requests) == num_asked
    for found in (rows, again):
        assert [(r["prompt_id"], r["reply"]) for r in found] == [
            (f"p{i}", f"<score>{i % 2}</score>") for i in range(300)
        ]


def test_roles_that_search_or_take_several_turns_are_refused(place):
    api = endpoint("http://127.0.0.1:9/v1")
    fleet, talk = (
        ChatFleet(api, place.store.root, "r"),
        Dialogue(max_turns=2, final="answer", format_error="x"),
    )
    with pytest.raises(ValueError, match="roles of one reply, without searches"):
        next(fleet.roll_out(prompts(1), api.policy("api:m"), GREEDY, talk))
    with pytest.raises(ValueError, match="does not tell how likely a reply is"):
        fleet.reply_logprobs([], api.policy("api:m"), talk)
