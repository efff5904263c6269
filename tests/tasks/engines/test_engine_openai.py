"""Endpoints: hand-made ones that misbehave, and vLLM's real server."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tasks.engines import pool
from tasks.engines.chat import ChatFleet
from tasks.engines.child import CPU_ENVIRONMENT, ENVIRONMENT
from tasks.engines.endpoint import ChatEndpoint
from tasks.engines.fleet import Fleet
from tasks.engines.openai import EndpointEngine
from tasks.models.engine import EngineConfig, EngineDied, Policy, Sampling
from tasks.rollouts.replies import reply_logprobs
from tasks.rollouts.rollout import Dialogue, roll_out
from tests.support.engine_threads import EngineThread
from tests.support.scripted import model_folder

SAMPLING = Sampling(temperature=0.7, max_tokens=12)
MESSAGES = [[{"role": "user", "content": "a b " * (i + 1)}] for i in range(4)]
PROMPTS = [
    {"prompt_id": f"p{i}", "role": "r", "messages": MESSAGES[i], "search_turns": None}
    for i in range(4)
]


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return Policy(
        id="p", weights=str(model_folder(tmp_path_factory.mktemp("model"))), content_hash="1"
    )


@pytest.fixture
def endpoint():
    """Start a server that answers a completion request (a dict) with what a function returns:
    (status, body)."""
    servers = []

    def start(answer):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, body = answer(request)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/v1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def engine(policy, *urls, **settings):
    settings = {"retries": 0, "max_model_len": 64, "max_num_seqs": 4, **settings}
    return EndpointEngine(EngineConfig(kind="openai", model=policy.weights, urls=urls, **settings))


def reply(request, **changes):
    """A valid reply of one token, id 21, whose log-probability depends on the temperature."""
    logprobs = {"token_logprobs": [-0.25], "top_logprobs": [{"a": -0.25 / request["temperature"]}]}
    return {
        "choices": [{"token_ids": [21], "logprobs": logprobs, "finish_reason": "stop", **changes}]
    }


def rows(engine, policy, prompts=PROMPTS):
    return sorted(
        roll_out(engine, prompts, policy, SAMPLING, Dialogue()), key=lambda row: row["prompt_id"]
    )


def test_an_endpoint_without_token_ids_is_refused(endpoint, policy):
    url = endpoint(lambda request: (200, reply(request, token_ids=None)))
    with pytest.raises(ValueError, match="returns no token ids"):
        engine(policy, url).use(policy)


def test_an_endpoint_whose_logprobs_ignore_the_temperature_is_refused(endpoint, policy):
    raw = {"token_logprobs": [-0.25], "top_logprobs": [{"a": -0.25}]}
    url = endpoint(lambda request: (200, reply(request, logprobs=raw)))
    with pytest.raises(ValueError, match="--logprobs-mode processed_logprobs"):
        engine(policy, url).use(policy)


def test_a_server_may_not_add_settings_of_the_models_own(endpoint, policy):
    """vLLM's takes every one that is missing from the model's generation_config.json."""
    asked = []
    rows(
        engine(policy, endpoint(lambda request: (200, asked.append(request) or reply(request)))),
        policy,
    )
    names = ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
    assert {tuple(request[name] for name in names) for request in asked} == {(-1, 0, 1, 0, 0)}


def test_an_endpoint_that_is_away_is_refused(policy):
    with pytest.raises(ValueError, match=r"does not serve .* is up"):
        engine(policy, "http://127.0.0.1:9/v1").use(policy)


def test_an_endpoint_serves_no_other_full_weights(endpoint, policy, tmp_path):
    url = endpoint(lambda request: (200, reply(request)))
    other = policy.model_copy(update={"weights": str(model_folder(tmp_path, seed=5))})
    with pytest.raises(ValueError, match="serves the weights it was started with"):
        engine(policy, url).use(other)


def test_a_failure_costs_one_row_and_keeps_its_reason(endpoint, policy):
    def answer(request):
        return (
            (400, {"error": "too many b"})
            if len(request["prompt"]) == 11
            else (200, reply(request))
        )

    found = rows(engine(policy, endpoint(answer)), policy)
    assert [row["finish_reason"] for row in found] == ["final", "final", "error", "final"]
    assert "400" in found[2]["error"] and "too many b" in found[2]["error"]
    assert found[0]["turns"][0]["sampled_token_ids"] == [21] and found[0]["turns"][0][
        "logprobs"
    ] == [-0.25]


def test_a_reply_that_the_server_aborted_is_no_reply(endpoint, policy):
    answers = iter(["stop", "stop", "abort"])
    url = endpoint(lambda request: (200, reply(request, finish_reason=next(answers))))
    (found,) = rows(engine(policy, url), policy, PROMPTS[:1])
    assert found["finish_reason"] == "error" and "ended the request: abort" in found["error"]


@pytest.mark.parametrize("status", [401, 404, 500, None])
def test_a_server_that_goes_away_stops_the_engine_and_fails_no_row(endpoint, policy, status):
    """It answers the two requests of the check; the next ones fail, or find no server at all."""
    num_asked = 0

    def answer(request):
        nonlocal num_asked
        num_asked += 1
        return (200, reply(request)) if num_asked <= 2 else (status, {"error": "gone"})

    served = engine(policy, endpoint(answer), max_num_seqs=1)
    served.use(policy)
    if status is None:
        served.config = served.config.model_copy(update={"urls": ("http://127.0.0.1:9/v1",)})
    with pytest.raises(EngineDied, match=r"http://127.*Repeat the command once the server answers"):
        rows(served, policy)


def test_a_restarted_server_gets_its_adapter_again_and_no_row_is_lost(
    endpoint, policy, tmp_path, monkeypatch
):
    (tmp_path / "adapter_config.json").write_text('{"r": 4}')
    adapted = policy.model_copy(update={"adapter": str(tmp_path)})
    loaded = []
    num_served = 0

    def answer(request):
        nonlocal num_served
        if "lora_name" in request:
            loaded.append(request["lora_name"])
            return 200, {}
        num_served += 1
        if len(loaded) < 2 and num_served > 4:
            return 404, {"error": f"The model {request['model']} does not exist"}
        return 200, reply(request)

    def child(config, number, log_dir):
        return EngineThread(EndpointEngine(config), number, log_dir)

    monkeypatch.setattr(pool, "Child", child)
    settings = {"max_model_len": 64, "max_num_seqs": 1, "max_lora_rank": 4}
    config = EngineConfig(kind="openai", model=policy.weights, urls=(endpoint(answer),), **settings)
    fleet = Fleet(config, 1, tmp_path)
    found = list(fleet.roll_out(PROMPTS, adapted, SAMPLING, Dialogue(), group_size=3))
    fleet.close()
    assert len({row["rollout_id"] for row in found}) == 12 and len(loaded) == 2
    assert {row["finish_reason"] for row in found} == {"final"}


def test_prompts_that_begin_alike_are_spread_over_the_servers(endpoint, policy):
    """A role's prompts open with the same words; the samples of each go to one server."""
    asked = [[], []]

    def answer_of(number):
        def answer(request):
            asked[number].append(request["prompt"])
            return 200, reply(request)

        return answer

    served = engine(policy, *(endpoint(answer_of(number)) for number in (0, 1)), max_model_len=256)
    served.use(policy)
    prompts = [[20] * 100 + [20 + last] for last in range(16)]
    for key, prompt in enumerate(2 * prompts):
        served.submit(key, prompt, SAMPLING, key, policy)
    left = 2 * len(prompts)
    while left:
        left -= len(served.poll())
    long = [[prompt for prompt in of_one if len(prompt) > 100] for of_one in asked]
    assert sorted(long[0] + long[1]) == sorted(2 * prompts)
    assert min(map(len, long)) >= 6
    assert not {tuple(prompt) for prompt in long[0]} & {tuple(prompt) for prompt in long[1]}


def test_a_server_that_repeats_the_key_gets_it_into_no_row(endpoint, policy, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")

    def answer(request):
        return (
            (400, {"error": "no such key: sk-0123456789"})
            if len(request["prompt"]) > 3
            else (200, reply(request))
        )

    (found,) = rows(engine(policy, endpoint(answer)), policy, PROMPTS[:1])
    assert "no such key: [key]" in found["error"] and "0123456789" not in repr(found)


def test_a_busy_endpoint_is_asked_again(endpoint, policy):
    asked = []

    def answer(request):
        asked.append(request["seed"])
        return (503, {}) if asked.count(request["seed"]) == 1 else (200, reply(request))

    found = rows(engine(policy, endpoint(answer), retries=1), policy, PROMPTS[:1])
    assert found[0]["finish_reason"] == "final" and len(asked) == 3 + 2


def test_a_wait_for_a_slow_endpoint_is_interrupted_and_its_unwanted_reply_comes_to_nobody(
    endpoint, policy
):
    released = threading.Event()

    def answer(request):
        return 200, reply(request) if len(request["prompt"]) < 9 or released.wait(600) else {}

    slow = engine(policy, endpoint(answer))
    slow.use(policy)
    slow.submit("slow", [20] * 9, SAMPLING, 0, policy)
    assert slow.poll(lambda: True) == []
    slow.abort(["slow"])
    slow.submit("fast", [20] * 3, SAMPLING, 0, policy)
    released.set()
    assert [key for key, _ in slow.poll()] == ["fast"] and slow.poll() == []


def test_garbage_from_an_endpoint_is_a_row_with_its_reason(endpoint, policy):
    answers = iter([None, None, {"choices": []}, {"choices": [{}]}, ["no"], "no"])

    def answer(request):
        return 200, next(answers) or reply(request)

    found = rows(engine(policy, endpoint(answer)), policy)
    assert [row["finish_reason"] for row in found] == ["error"] * 4 and all(
        row["error"] for row in found
    )


def weighed(engine, policy, reply_ids):
    asked = [
        {**prompt, "between_token_ids": [20], "reply_token_ids": reply_ids} for prompt in PROMPTS
    ]
    return sorted(
        reply_logprobs(engine, asked, policy, Dialogue()), key=lambda row: row["prompt_id"]
    )


def test_an_endpoint_without_prompt_logprobs_cannot_weigh_and_says_so(endpoint, policy):
    without = engine(policy, endpoint(lambda request: (200, reply(request))))
    with pytest.raises(ValueError, match=r"returns no prompt_logprobs.*vLLM's server can"):
        weighed(without, policy, [21])

    def refuse(request):
        return (
            (400, {"error": "unknown field"})
            if "prompt_logprobs" in request
            else (200, reply(request))
        )

    with pytest.raises(ValueError, match=r"refuses prompt_logprobs.*unknown field"):
        weighed(engine(policy, endpoint(refuse)), policy, [21])


def test_the_log_probability_of_a_given_reply_is_that_of_its_own_positions(endpoint, policy):
    """-1 for each token of the reply, -9 for each token before it; each comes with another
    likely token."""

    def answer(request):
        ids = request["prompt"]
        values = {i: {"logprob": -1.0 if i in (21, 22) else -9.0} for i in ids}
        found = [None] + [{str(i): values[i], "7": {"logprob": -0.1}} for i in ids[1:]]
        broken = len(ids) == 11 + 3
        return 200, reply(request, prompt_logprobs=found[:1] if broken else found)

    found = weighed(engine(policy, endpoint(answer)), policy, [21, 22])
    assert [row["logprob"] for row in found] == [-2.0, -2.0, None, -2.0]
    assert "http" in found[2]["error"]


@pytest.fixture(scope="module")
def server(policy, tmp_path_factory):
    """vLLM's own server; yields its process and url."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        policy.weights,
    ]
    options = (
        f"--host 127.0.0.1 --port {port} --dtype float32 --max-model-len 128 --max-num-seqs 8"
        " --enforce-eager"
    )
    options += (
        " --logprobs-mode processed_logprobs --kv-cache-memory-bytes 16777216 --generation-config"
        " vllm"
    )
    command += options.split()
    settings = os.environ | ENVIRONMENT | CPU_ENVIRONMENT | {"OMP_NUM_THREADS": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=settings, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        for _ in range(600):
            assert process.poll() is None, log.read_text()[-2000:]
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(1)
        yield process, f"http://127.0.0.1:{port}/v1"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its engine, too
        process.wait(30)


@pytest.mark.slow
def test_vllms_server_serves_as_a_judge_behind_an_api_and_is_asked_once(server, policy, store):
    """Tokens are counted: in prompts, two repeated letters and their markup; in replies, at most
    12. A prompt that is too long for the model is refused, and only its row is lost."""
    _, url = server
    api = ChatEndpoint(url=url, api_key_env="", provider="vllm", price_in=1, max_failed_share=1)
    judge = api.policy(f"api:{policy.weights}")
    long = {
        **PROMPTS[0],
        "prompt_id": "long",
        "messages": [{"role": "user", "content": "a " * 130}],
    }
    found = []
    for run in ("first", "second"):
        fleet = ChatFleet(api, store.root, run)
        rows = fleet.roll_out([long, *PROMPTS], judge, SAMPLING, Dialogue(), group_size=2, seed=3)
        found.append({(row["prompt_id"], row["sample"]): row for row in rows})
        fleet.close()
    first, second = found
    assert {row["finish_reason"] for key, row in first.items() if key[0] == "long"} == {"error"}
    assert "status 400" in first["long", 0]["error"]
    for (name, sample), row in first.items():
        if name == "long":
            continue
        assert row["reply"] == second[name, sample]["reply"] and row["finish_reason"] in (
            "final",
            "length",
        )
        assert (row["usage"]["cached"], second[name, sample]["usage"]["cached"]) == (False, True)
        assert row["usage"]["num_prompt_tokens"] > 2 * (1 + int(name[1:]))
        assert 1 <= row["usage"]["num_completion_tokens"] <= 12
        assert row["usage"]["model"] == policy.weights
    assert len({row["reply"] for row in first.values()}) > 2  # it samples: seeds differ


@pytest.mark.slow
def test_vllms_server_gives_token_ids_and_logprobs_of_the_sampled_distribution(server, policy):
    from tests.tasks.engines.test_engine_vllm import load, reference

    process, url = server
    endpoint = engine(policy, url, max_model_len=128, retries=1)
    long = {
        **PROMPTS[0],
        "prompt_id": "long",
        "messages": [{"role": "user", "content": "a " * 130}],
    }
    found = rows(endpoint, policy, [*PROMPTS, long])
    assert found[0]["finish_reason"] == "error" and "leaves no room" in found[0]["error"]
    model = load(policy)
    for row in found[1:]:
        assert row["turns"][0]["logprobs"] == pytest.approx(
            reference(model, row, temperature=0.7), abs=2e-5
        )
    for row, same in zip(weighed(endpoint, policy, [21, 22, 3]), found[1:], strict=True):
        turn = {**same["turns"][0], "sampled_token_ids": [21, 22, 3]}
        turn["context_token_ids"] = [*turn["context_token_ids"], 20]
        assert row["logprob"] == pytest.approx(sum(reference(model, {"turns": [turn]})), abs=1e-4)
    again = rows(endpoint, policy, PROMPTS[::-1])
    assert [row["turns"][0]["sampled_token_ids"] for row in again] == [
        row["turns"][0]["sampled_token_ids"] for row in found[1:]
    ]
    process.kill()
    process.wait()
    with pytest.raises(EngineDied, match=url):
        rows(endpoint, policy)
