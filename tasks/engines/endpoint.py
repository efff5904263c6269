"""A chat model behind an API: its address, rate limits, and prices."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tasks.models.engine import Policy, VariableName

API = "api:"  # prefix of the name of a model that an endpoint serves: api:gpt-4.1-mini
SHORTEST_KEY = 6  # a shorter key may be a word of any text, such as vLLM's EMPTY


def _plain(url: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", url):
        raise ValueError(
            "write it as http(s)://HOST/v1, without a user, a query or a key: keys come from the"
            " environment"
        )
    return url.rstrip("/")


class ChatEndpoint(BaseModel):
    """An OpenAI-compatible endpoint (`/chat/completions`) for models that are not trained.

    The model is named among the other models: `models.judge = "api:gpt-4.1-mini"`. Only `provider`,
    `extra` and `omit` affect the replies: they are part of the model's identity in recipes and in
    the cache of replies.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    url: Annotated[str, AfterValidator(_plain)] = Field(
        description="address up to `/v1`, without the key"
    )
    api_key_env: VariableName = Field(
        default="OPENAI_API_KEY",
        description="the environment variable that holds the key; empty: no key is sent",
    )
    provider: str = Field(
        default="",
        description=(
            "identifies the endpoint; empty: its url does. Set it if the url changes but the model"
            " does not"
        ),
    )
    extra: dict[str, Any] = Field(
        default={},
        description="fields added to every request, such as reasoning_effort; they are stored",
    )
    omit: tuple[str, ...] = Field(
        default=(),
        description="request fields to leave out because the endpoint rejects them, such as seed",
    )
    max_concurrency: int = Field(
        default=32, ge=1, description="maximum number of requests in flight"
    )
    requests_per_minute: float | None = Field(
        default=None, gt=0, description="the provider's limit; null: as fast as it answers"
    )
    tokens_per_minute: float | None = Field(
        default=None,
        gt=0,
        description="the provider's limit on tokens of prompts and replies together",
    )
    timeout_s: float = Field(
        default=120, gt=0, description="time limit of one request, from sending it to the last byte"
    )
    retries: int = Field(default=6, ge=0, description="retries of a failed request")
    max_wait_s: float = Field(default=120, gt=0, description="maximum wait before one retry")
    max_failed_share: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description=(
            "maximum share of a stage's replies that may fail; above it the stage stops and is not"
            " published"
        ),
    )
    price_in: float = Field(default=0, ge=0, description="price of a million prompt tokens")
    price_out: float = Field(default=0, ge=0, description="price of a million reply tokens")
    max_cost: float | None = Field(
        default=None, gt=0, description="maximum cost of a run, in the currency of the prices"
    )

    @model_validator(mode="after")
    def _cap_has_prices(self) -> ChatEndpoint:
        if self.max_cost is not None and not (self.price_in or self.price_out):
            raise ValueError(
                "max_cost needs price_in and price_out: without them nothing is known to cost"
                " anything"
            )
        return self

    @model_validator(mode="after")
    def _cap_bounds_replies(self) -> ChatEndpoint:
        """A reply of unlimited length could cost more than what is left."""
        if self.max_cost is None:
            return self
        for name in ("max_tokens", "max_completion_tokens"):
            limit = self.extra.get(name, 1)
            if type(limit) is not int or limit < 1:
                raise ValueError(f"with max_cost, extra.{name} must be a number of tokens")
        has_other_limit = "max_completion_tokens" in self.extra.keys() - set(self.omit)
        if "max_tokens" in self.omit and not has_other_limit:
            raise ValueError(
                "max_cost needs a limit on the length of replies: take max_tokens out of omit, or"
                " add max_completion_tokens to extra"
            )
        return self

    @model_validator(mode="after")
    def _one_reply_to_a_request(self) -> ChatEndpoint:
        if self.extra.get("n", 1) != 1:
            raise ValueError("extra.n: one reply of each request is read, so ask for no more")
        return self

    def policy(self, model: str) -> Policy:
        """The model `api:NAME` of this endpoint."""
        # imports pyarrow, too slow for a module that every configuration imports
        from warehouse.draft import hash_json

        identity = [model, self.provider or self.url, self.extra, sorted(self.omit)]
        return Policy(id=model.removeprefix(API), weights=model, content_hash=hash_json(identity))

    def key(self) -> str:
        """The key; empty if none is needed.

        Raises ValueError if the environment has no valid one.
        """
        if not self.api_key_env:
            return ""
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise ValueError(
                f"api.api_key_env names {self.api_key_env}, which is not set. Set it in the"
                " environment of `selfplay up` (or of `selfplay run --here`), or set"
                ' api.api_key_env = "" for an endpoint without keys'
            )
        if not re.fullmatch(r"[\x21-\x7e]+", key):
            raise ValueError(
                f"{self.api_key_env} holds blanks or characters that no HTTP header takes"
            )
        return key

    def cost(self, num_prompt_tokens: int, num_completion_tokens: int) -> float:
        """The cost of one reply, in the currency of the prices, which are per million tokens."""
        return (num_prompt_tokens * self.price_in + num_completion_tokens * self.price_out) / 1e6


def without(key: str, text: str) -> str:
    """`text` without the key, which servers may quote back.

    >>> without("sk-12345", "Incorrect API key: sk-12345")
    'Incorrect API key: [key]'
    """
    if len(key) < SHORTEST_KEY:
        return text
    return text.replace(key, "[key]")
