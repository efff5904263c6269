"""One conversation: its turns so far, and what is said next.

Sampled ids are never retokenised: text between turns is tokenised separately and appended.
"""

import hashlib
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

from tasks.models.engine import OVER_LIMIT, Completion, Engine, Policy, Sampling
from tasks.readers.thoughts import is_thinking, spoken
from tasks.rollouts.dialogue import SPEAKERS, Dialogue, Results, say
from tasks.rollouts.neutral import special_tokens_of, without_special
from tasks.rollouts.search_syntax import ends_with_final, find_search, result_role, tools
from tasks.rollouts.searches import Hits, Searches
from warehouse.schemas import PromptRow, Turn

SENTINEL = "sentinelturn"
# The date given to chat templates that state it: with today's date, a run resumed tomorrow would
# sample from different prompts.
PROMPT_DATE = date(2025, 1, 1)


@dataclass
class Conversation:
    """One rollout under way."""

    prompt: PromptRow
    sample: int
    seed: int
    messages: list[dict[str, str]]
    context: list[int]
    num_searches: int = 0
    num_insisted: int = 0
    turns: list[Turn] = field(default_factory=list)
    # the first part of a turn, if a stop string cut it off within a thought
    begun: Completion | None = None
    next: Literal["search", "searched_out", "format_error", "insist"] = "format_error"
    finish: str | None = None
    error: str | None = None


class Talk:
    """The rules of one call's conversations."""

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        sampling: Sampling,
        dialogue: Dialogue,
        searches: Searches,
    ):
        self.engine = engine
        self.policy = policy
        self.sampling = sampling
        self.dialogue = dialogue
        self.searches = searches
        self.searching: list[tuple[int, Conversation]] = []  # since the engine's last replies
        self.tokenizer = engine.tokenizer
        self.max_context = min(
            engine.max_model_len, dialogue.context_tokens or engine.max_model_len
        )
        self.results = Results(dialogue, engine.tokenizer)
        self.special = special_tokens_of(engine.tokenizer)
        self._opens_think: bool | None = None
        self._prompt_ids: tuple[Any, list[int]] = (None, [])

    def start(self, prompt: PromptRow, sample: int, seed: int) -> Conversation:
        """Begin conversation number `sample` of a prompt, without sampling anything yet. `seed` is
        the call's; the conversation's own derives from it. A prompt over the dialogue's limit ends
        the conversation with an error."""
        messages = [
            {"role": m["role"], "content": self.without_markup(m["content"])}
            for m in prompt["messages"]
        ]
        own = seed_from(seed, prompt["prompt_id"], sample)
        if self._prompt_ids[0] != prompt["prompt_id"]:  # samples of a prompt are consecutive
            self._prompt_ids = prompt["prompt_id"], self.opening(messages)
        conversation = Conversation(prompt, sample, own, messages, list(self._prompt_ids[1]))
        limit = self.dialogue.prompt_tokens
        if limit is not None and len(conversation.context) > limit:
            conversation.finish = "error"
            conversation.error = (
                f"prompt of {len(conversation.context)} tokens {OVER_LIMIT} of {limit}"
            )
        return conversation

    def without_markup(self, content: str) -> str:
        """A prompt's message without special tokens: neither a template nor an outside text may add
        any."""
        return without_special(content, self.special)

    def opening(self, messages: list[dict[str, str]]) -> list[int]:
        """The ids of the first prompt. A chat template contains the beginning-of-text token;
        without a template the tokenizer adds it, if the model has one."""
        bare = self.dialogue.chat_template != "model"
        return self.tokenizer(self.render(messages), add_special_tokens=bare)["input_ids"]

    def submit(self, key: int, conversation: Conversation) -> None:
        """Have the engine sample the next turn, or the rest of one that was cut in a thought, under
        `key`. Its seed depends only on the conversation."""
        begun = conversation.begun.token_ids if conversation.begun else []
        context = conversation.context + begun
        room = min(self.sampling.max_tokens - len(begun), self.max_context - len(context))
        sampling = self.sampling.model_copy(update={"max_tokens": max(room, 1)})
        parts = (len(conversation.turns), len(begun)) if begun else (len(conversation.turns),)
        self.engine.submit(
            key, context, sampling, seed_from(conversation.seed, *parts), self.policy
        )

    def go_on(
        self, replies: list[tuple[int, Conversation, Completion]]
    ) -> list[tuple[int, Conversation]]:
        """Process the replies, run their searches together, and submit the next turns; return the
        finished conversations."""
        through = self.searching
        self.searching = []
        self.say_next(through, self.searches.begun())
        for key, conversation, completion in replies:
            whole = joined(conversation.begun, completion)
            conversation.begun = whole if self.is_cut_in_thought(conversation, whole) else None
            if conversation.begun:
                self.submit(key, conversation)
            else:
                self.take(conversation, whole)
        taken = [
            (key, conversation) for key, conversation, _ in replies if conversation.begun is None
        ]
        going = [(key, conversation) for key, conversation in taken if conversation.finish is None]
        searching = [pair for pair in going if pair[1].next == "search"]
        turns = [conversation.turns[-1] for _, conversation in searching]
        hits = []
        if self.searches.behind is None:
            hits = self.searches.of(turns)
        else:
            going = [pair for pair in going if pair[1].next != "search"]
            self.searching = searching
            self.searches.begin(turns)
        self.say_next(going, hits)
        return [
            (key, conversation)
            for key, conversation in [*through, *taken]
            if conversation.finish is not None
        ]

    def say_next(self, going: list[tuple[int, Conversation]], hits: list[Hits]) -> None:
        """Answer conversations and submit their next turns; `hits` has one item per conversation
        that searches."""
        hits_of_search = iter(hits)
        for key, conversation in going:
            self.answer(conversation, next(hits_of_search) if conversation.next == "search" else [])
            if conversation.finish is None:
                self.submit(key, conversation)

    def is_cut_in_thought(self, conversation: Conversation, completion: Completion) -> bool:
        """Whether a stop string ended a turn inside a thought that merely mentions the tag, with
        room left to go on."""
        ids = completion.token_ids
        if completion.finish_reason != "stop" or not ids or self.may_leave_thoughts_open:
            return False
        ended_itself = any(
            token in self.special for token in self.tokenizer.convert_ids_to_tokens(ids[-1:])
        )
        room = min(self.sampling.max_tokens, self.max_context - len(conversation.context)) - len(
            ids
        )
        return is_thinking(self.text_of(conversation, completion)) and not ended_itself and room > 0

    def text_of(self, conversation: Conversation, completion: Completion) -> str:
        """The text of a turn, including what opened it: the chat template's `<think>` or, with the
        syntax `lines`, the name of the line that ends the last message (`Search:`)."""
        if self._opens_think:
            return f"<think>{completion.text}"
        if self.dialogue.search != "lines":
            return completion.text
        message = conversation.messages[-1]["content"]
        if conversation.turns:
            message = conversation.turns[-1]["message"] or ""
        last_line = message.rpartition("\n")[2]
        return (last_line if last_line.endswith(":") else "") + completion.text

    def take(self, conversation: Conversation, completion: Completion) -> None:
        """Append the turn, and decide whether the conversation ends here, or what is said next."""
        text = self.text_of(conversation, completion)
        syntax = self.dialogue.search
        if syntax:
            search = find_search(text, syntax, open_thoughts=self.may_leave_thoughts_open)
        else:
            search = None
        queries = [self.results.query(query) for query in search.queries] if search else []
        conversation.turns.append(
            self.turn(conversation, completion, text, queries, bool(search and search.valid))
        )
        if completion.finish_reason == "error":
            conversation.finish = "error"
            conversation.error = completion.error
        elif self.is_final(text, completion):
            conversation.finish = "final"
        elif (
            completion.finish_reason == "length"
            or len(conversation.turns) >= self.dialogue.max_turns
        ):
            self.end_or_insist(conversation, completion)
        elif search is None or not search.valid:
            conversation.next = "format_error"
        elif conversation.num_searches >= self.dialogue.search_limit(conversation.prompt):
            conversation.next = "searched_out"
        else:
            conversation.next = "search"

    def is_final(self, text: str, completion: Completion) -> bool:
        """Whether a turn ends the conversation. If the dialogue has a final element, the turn's
        text must end with it; otherwise, the model must have ended the turn."""
        if self.dialogue.final is None:
            return completion.finish_reason == "stop"
        syntax = self.dialogue.search
        open_thoughts = self.may_leave_thoughts_open
        return ends_with_final(text, self.dialogue.final, syntax, open_thoughts=open_thoughts)

    @property
    def may_leave_thoughts_open(self) -> bool:
        """Whether an open think block may be one that the model forgot to close, because it writes
        think tags as plain text. If the model was trained to reason, or its template opens the
        block, an open block means that it is still thinking."""
        return not (self.dialogue.reasoning or self._opens_think)

    def end_or_insist(self, conversation: Conversation, completion: Completion) -> None:
        """End a conversation that is out of turns or whose turn was cut off, or, if allowed, tell
        it to answer now."""
        used = len(conversation.context) + len(completion.token_ids)
        if used >= self.max_context:
            conversation.finish = "context"
        elif conversation.num_insisted < self.dialogue.insist_times:
            conversation.num_insisted += 1
            conversation.next = "insist"
        else:
            conversation.finish = "length" if completion.finish_reason == "length" else "turns"

    def answer(self, conversation: Conversation, hits: Hits) -> None:
        """Add the message that follows the last turn, and update the context for the next turn."""
        turn = conversation.turns[-1]
        role = result_role(self.dialogue.search) if conversation.next == "search" else "user"
        message = {"role": role, "content": self.message(conversation, hits)}
        turn["message"] = message["content"]
        turn["message_role"] = role
        if self.dialogue.reasoning:
            conversation.messages += [
                {"role": "assistant", "content": self.history(turn["text"])},
                message,
            ]
            conversation.context = self.encode(self.render(conversation.messages))
        else:
            added = turn["sampled_token_ids"] + self.between(turn["sampled_token_ids"], message)
            conversation.context = conversation.context + added
        if len(conversation.context) >= self.max_context:
            conversation.finish = "context"

    def message(self, conversation: Conversation, hits: Hits) -> str:
        """The text that follows the last turn, according to `conversation.next`; `hits` are those
        of the turn's search."""
        if conversation.next == "search":
            return self.result_message(conversation, hits)
        if conversation.next == "searched_out":
            return say(self.dialogue.searched_out, results="", searches_left=0)
        return say(
            self.dialogue.insist if conversation.next == "insist" else self.dialogue.format_error
        )

    def result_message(self, conversation: Conversation, hits: Hits) -> str:
        """The results of the last turn's search, as text. The turn gets the ids of the documents
        shown, and the search is counted."""
        turn = conversation.turns[-1]
        results, shown = self.results.text(turn["queries"], hits)
        ids_of_query = zip(turn["queries"], shown, strict=True)
        turn["results"] = [{"query": query, "document_ids": ids} for query, ids in ids_of_query]
        conversation.num_searches += 1
        left = self.dialogue.search_limit(conversation.prompt) - conversation.num_searches
        text = self.dialogue.searched if left > 0 else self.dialogue.searched_out
        return say(text, results=results, searches_left=left)

    def history(self, text: str) -> str:
        """An earlier reply as shown to a reasoning model: without thoughts or special tokens."""
        text = spoken(text)
        for token in self.special:
            text = text.replace(token, "")
        return text.strip()

    def render(self, messages: list[dict[str, str]]) -> str:
        """Messages rendered with the chat template, generation prompt included; or as they are."""
        if self.dialogue.chat_template != "model":
            self._opens_think = False
            if self.dialogue.chat_template == "none":
                return "".join(message["content"] for message in messages)
            lines = [SPEAKERS.get(message["role"], "") + message["content"] for message in messages]
            return "\n\n".join([*lines, "Assistant:"])
        text = self.tokenizer.apply_chat_template(
            messages,
            tools=tools(self.dialogue.search),
            tokenize=False,
            add_generation_prompt=True,
            strftime_now=PROMPT_DATE.strftime,
            **self.dialogue.template_arguments,
        )
        if self._opens_think is None:
            self._opens_think = text.rstrip().endswith("<think>")
        return text

    def between(self, sampled: list[int], message: dict[str, str]) -> list[int]:
        """The ids after a sampled turn: its end-of-turn markup, the message, the generation prompt.

        A sampled end-of-turn token is not repeated.

        Raises ValueError for a chat template that drops the message after a turn.
        """
        turns = [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": SENTINEL},
            message,
        ]
        before, _, after = self.render(turns).rpartition(SENTINEL)
        if not before or message["content"].strip() not in after:
            raise ValueError(
                f"the chat template loses the {message['role']} message after a turn: use another"
                " search syntax"
            )
        ids = self.encode(after)
        if sampled and ids and sampled[-1] == ids[0]:
            return ids[1:]
        return ids

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, without tokens that the tokenizer adds."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def turn(
        self,
        conversation: Conversation,
        completion: Completion,
        text: str,
        queries: list[str],
        valid_search: bool,
    ) -> Turn:
        """The next `Turn`, with those tokens of its context that are in no earlier turn."""
        continues = bool(conversation.turns) and not self.dialogue.reasoning
        known = sum(
            len(turn["context_token_ids"]) + len(turn["sampled_token_ids"])
            for turn in conversation.turns
        )
        return {
            "context_token_ids": conversation.context[known if continues else 0 :],
            "continues": continues,
            "sampled_token_ids": completion.token_ids,
            "logprobs": completion.logprobs,
            "text": text,
            "finish_reason": completion.finish_reason,
            "queries": queries,
            "valid_search": valid_search,
            "results": [],
            "message": None,
            "message_role": None,
        }


def joined(begun: Completion | None, rest: Completion) -> Completion:
    """A turn sampled in two parts. If the second part failed, the turn failed."""
    if begun is None:
        return rest
    ids = begun.token_ids + rest.token_ids
    logprobs = begun.logprobs + rest.logprobs
    return replace(rest, token_ids=ids, logprobs=logprobs, text=begun.text + rest.text)


def digest(*parts: str | int) -> bytes:
    """A hash of a list of parts; ("ab", "c") and ("a", "bc") differ."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def seed_from(*parts: str | int) -> int:
    """A seed below 2**63, derived from parts."""
    return int.from_bytes(digest(*parts)[:8], "big") >> 1
