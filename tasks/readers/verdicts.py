"""Verdicts: a mark in tags or a word in double brackets. The last deciding one counts.

A reply may also name verdicts that it does not give: it restates the rule, rules out the other
verdict, supposes one, or quotes the text that it judges.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from tasks.readers.boxed import without_boxes
from tasks.readers.malformed import Malformed
from tasks.readers.markup import without_latex
from tasks.readers.tags import elements
from tasks.readers.thoughts import spoken

BRACKETED = re.compile(r"\\?\[\\?\[\s*+(\w++(?:\\_\w++|[ -]\w++)*+)\s*+\\?\]\\?\]")
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|\n")
_GIVE = r"(?:be|give|say|answer|award|assign|choose|justify|warrant)"
_DENIED = re.compile(
    # "it does not: [[NO]]" denies nothing that follows
    rf"\b(?:not|never|cannot|\w+n['’]t)(?:\s+an?)?[^\w.!?\n:;,–—]{{0,9}}$"
    rf"|\b(?:(?:not|never|cannot|\w+n['’]t)\s+{_GIVE}(?:\s+an?)?|than|instead\s+of"
    rf"|(?:no|(?:not|n['’]t)\s+\w+\s+an?)\s+(?:reason|need|grounds)\s+(?:for|to\s+{_GIVE})"
    r"(?:\s+an?)?)[^\w.!?\n]{0,9}$"
    r"|\b(?:over|short\s+of|as\s+opposed\s+to|neither|nor"
    r"|fail(?:s|ed)?\s+to\s+(?:earn|reach|get|merit|deserve|receive|justify))\s+[*_`\"'“(]{0,4}$",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(  # "If" begins a new sentence
    r"[^\w.!?\n]{0,9}\b(?:(?:is|was)(?:n['’]t|\s+not)|if|when|unless|in\s+case|otherwise(?!\s+(?:[iI]|it)(?:['’]d|\s+would)))\b"
)
_WOULD = re.compile(  # or explains the scale: "1 = met, 0 = not met"
    r"[^\w.!?\n]{0,9}(?:=\s*\w+"
    r"|\b(?:would|could|might|needs?|requires?|means|stands\s+for|applies))\b"
)
_SUPPOSED = re.compile(
    r"\b(?:otherwise|else|unless|in\s+case|would\s+have)\b|^\W*+(?:had|were|when)\b"
    r"|\bif\b.*\b(?:i|would|were|had|could|might|must|should)\b|^\W*+if\b(?:\W+\w+){0,5}\W*$"
    r"|^\W*+(?:with|without)\b.*\bwould\b|(?:^|[:(])\W*+(?:to\s+(?:be|get|earn|receive|deserve)|for)\b\W*(?:an?\W*)?$",
    re.IGNORECASE,
)
_JUDGED = (
    r"\b(?:response|answer|text|candidate|submission|document|passage|reply|student|author|set)\b"
)
_SAYS = (
    r"(?:says?|claims?|contains?|asks?|tells?|instructs?|includes?|demands?|reads?|ends?\s+with|wants?|requests?|states?"
    r"|writes?|mentions?|embeds?)"
)
_THE_TEXT = r"the\s+(?:text|string|words?|phrase|tags?|instruction|sentence|line)"
_REPORTED = re.compile(  # the answer says "...; the text "...; the answer's own "...
    rf"{_JUDGED}(?:\s+(?!(?:i|we)\b)\w+){{0,3}}?\s+{_SAYS}(?:\s+(?:me|us|the\s+(?:judge|grader)))?"
    rf"(?:\s+(?:to\s+)?(?:{_GIVE}|output|write|print|return))?(?:\s+{_THE_TEXT})?"
    rf"(?:[\s:(]*[\"'“‘`](?:[^\W\d][^\n\"'”’`]{{0,40}})?|\s*)$"
    rf"|\b(?:{_THE_TEXT}|{_JUDGED}['’]s\s+own)\s*[\"'“‘`]+$",
    re.IGNORECASE,
)
_RESTATED = re.compile(  # Response: "...
    rf"^\W*(?:\w+\s+){{0,2}}{_JUDGED}(?:['’]s(?:\s+\w+){{1,2}})?(?:\s+\d)?\W{{0,3}}:"
    r"\W*[\"“`][^\"”`\n]*\w[^\"”`\n]*$",
    re.IGNORECASE,
)
_DISOWNED = re.compile(
    r"[\"'”’`]+\s+(?:is|was)\s+what\b"
    r"|(?:[\"'”’`]+[^\n.!?]{0,80}?|,?\s+(?:which|that|is|was)\b[^\n.!?]{0,80}?)"
    r"\b(?:ignored|disregarded|injection|manipulat|trick|i\s+(?:will\s+)?(?:ignore|disregard)\b)",
    re.IGNORECASE,
)
_UNREAL = re.compile(
    r"(?:^\W*+had|\bif)\s+(?!i\b|one\b|forced|asked|pressed)[^\n]*(?:\bwould|['’]d)\s+(?:be|have\s+been|get|give|say|earn|answer"
    r"|score|deserve|receive)\W*(?:an?\W*)?$",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    r"\b(?:so|thus|hence|therefore|final(?:ly)?|verdict|decision|now)\b", re.IGNORECASE
)
# words in a line that changes an earlier verdict
_REVISES = re.compile(
    r"\bno\s*[,:;–—]"
    r"|\b(?:so|thus|hence|therefore|finally|now|wait|oops|sorry|actually|correct(?:ion|ed)"
    r"|edit|update|revis\w+|reconsider\w*|recheck\w*|(?:look|read|check)(?:ing|ed)?\s+again"
    r"|i\s+change|second\s+thoughts?|reflection"
    r"|rereading|after\s+all|(?:verdict|decision|score)\s+(?:is|becomes))\b"
    r"|\bi\s+(?:give|assign|award|say|rate|choose|decide)\b"
    r"|\b(?:it|which|this(?:\s+\w+)?)\b[^.!?\n]*"
    r"\b(?:gets|earns|merits|receives|deserves|is)\W*(?:an?\W*)?$",
    re.IGNORECASE,
)
_LABEL = re.compile(r"\W*(?:(?:\w+\W+){1,4}(?<=[:：→>]))?\W*")
# "The response was:" lines above, a quoted line, or a quotation: it may be the judged text's own
_MAY_BE_RESTATED = re.compile(rf"{_JUDGED}[^\n.]*:|(?:^|\n)\s*>[^\n]*$|[\"“]\s*$", re.IGNORECASE)
_SHOWN = re.compile(
    r"\b(?:example|e\.g|sample|format|template|fake|injected|embedded|hidden)\b", re.IGNORECASE
)
_QUOTED = re.compile(
    r"\s*+[\"'”’`]*+\s*+\b(?:which|that|is|was|are|to|in|into|inside|at|from|tries|but|so)\b[^\n]*[^.!?)\s\n]\s*$"
)
_CLOSING_TAGS = re.compile(r"(?:</\w{1,20}>\s*)+$")
_LAST_TAGS = 100  # number of characters searched for closing tags after the last sentence
_AROUND = r"[\s*_`'\"“”‘’$()\[\]{}]*"
_DIGIT = re.compile(rf"{_AROUND}([01])(?:\.0*)?{_AROUND}")
_HTML = re.compile(r"</?(?:b|strong|i|em|u)>", re.IGNORECASE)
# the form of a score that an instruction shows, as in <score>0 or 1</score> or <score>N</score>
_FORM = re.compile(r"\d+\s*(?:or|to)\s*\d+|[NX]", re.IGNORECASE)
# a quotation of which the verdict is a part
_QUOTE = re.compile(r"[\"“`][^\"“”`\n]*\w[^\"“”`\n]*$")
_QUOTE_ENDS = re.compile(r"[^\"“”`\n]{0,40}[\"”`]")
_OR = re.compile(r"[^\w.!?\n/]*+(?:(?:or|and|versus|vs)\b|/)[^\w.!?\n]*+", re.IGNORECASE)
_COMMA = re.compile(r"[^\w.!?\n]*,[^\w.!?\n]*")
_MOST = 12  # the deciding verdict is one of this many at the end of a reply
_ABOUT = 400  # characters around a verdict that can make it a mere mention


@dataclass(frozen=True)
class Mention:
    """A verdict that a reply names, with the text between it and its neighbours."""

    value: str
    before: str
    after: str


def marked(reply: str, name: str = "score") -> int:
    """1 or 0, from the last deciding element named `name`.

    Raises Malformed if the element is missing, or holds neither 0 nor 1.

    >>> marked("<think><score>0</score></think> <Score>**1.0**</Score>")
    1
    >>> marked("<score>0</score> Had it given the year, <score>1</score>.")
    0
    """
    text = unicodedata.normalize("NFKC", deciding(reply, name))
    digit = _DIGIT.fullmatch(without_boxes(without_latex(_HTML.sub("", text))))
    if digit is None:
        raise Malformed(f"{name} is neither 0 nor 1")
    return int(digit[1])


def deciding(reply: str, name: str) -> str:
    """The text of the last deciding `<name>` element.

    Raises Malformed if the element is missing, or if the reply is cut off within its verdict.
    """
    parts = elements(reply, name)[-_MOST:]
    if not parts:
        raise Malformed(f"no {name} element")
    parts = [part for part in parts if not _FORM.fullmatch(part.text)] or parts
    edges = [(element.start, element.end) for element in parts]
    if _QUOTED.fullmatch(
        reply[:-_LAST_TAGS] + _CLOSING_TAGS.sub("", reply[-_LAST_TAGS:]), edges[-1][1]
    ):
        raise Malformed(f"cut off in a sentence about the {name}")
    return _decided(
        [Mention(e.text, *around) for e, around in zip(parts, _around(reply, edges), strict=True)]
    )


def bracketed(reply: str, values: Mapping[str, int]) -> int:
    """The value of the last deciding word in double brackets.

    Raises Malformed for a reply without a verdict.

    >>> bracketed("They differ in form only: [[Yes]], and not [[NO]].", {"YES": 1, "NO": 0})
    1
    >>> bracketed("Do they say the same? They do not. [[NO]]", {"YES": 1, "NO": 0})
    0
    """
    text = spoken(reply)
    last_first = reversed(list(BRACKETED.finditer(text)))
    named = ((re.sub(r"\\?[_ -]", "_", match[1]).upper(), match.span()) for match in last_first)
    mentions = list(
        itertools.islice(((word, span) for word, span in named if word in values), _MOST)
    )[::-1]
    if not mentions:
        raise Malformed("no verdict")
    around = _around(text, [span for _, span in mentions])
    words = [word for word, _ in mentions]
    decided = _decided([Mention(word, *beside) for word, beside in zip(words, around, strict=True)])
    return values[decided]


def yes_or_no(reply: str) -> int:
    """1 for [[YES]] and 0 for [[NO]], whichever was last given as the verdict. Raises Malformed for
    a reply without a verdict."""
    return bracketed(reply, {"YES": 1, "NO": 0})


def _around(text: str, spans: list[tuple[int, int]]) -> list[tuple[str, str]]:
    """The text before and after each span, up to the neighbouring spans, without thoughts."""
    starts = [*(start for start, _ in spans), len(text)]
    ends = [0, *(end for _, end in spans)]
    return [
        (
            spoken(text[max(ends[i], start - _ABOUT) : start]),
            spoken(text[end : min(starts[i + 1], end + _ABOUT)]),
        )
        for i, (start, end) in enumerate(spans)
    ]


def _decided(mentions: list[Mention]) -> str:
    words = [
        m
        for m in mentions
        if not (_DENIED.search(m.before) or _TAKEN_BACK.match(m.after) or _is_reported(m))
    ]
    if len({mention.value for mention in mentions}) > 1:
        offered = _offered(mentions)
        words = [m for m in words if m not in offered and not _is_supposed(m)]
        words = _without_remarks(words)
    if not words:
        raise Malformed("no verdict is decided on")
    unquoted = [m for m in words if not (_QUOTE.search(m.before) and _QUOTE_ENDS.match(m.after))]
    return (unquoted or words)[-1].value


def _without_remarks(mentions: list[Mention]) -> list[Mention]:
    """The verdicts without those named in a remark on an earlier, plainly stated verdict. A verdict
    that replaces the earlier one stands alone or after a label, or its line concludes or revises.
    """
    kept: list[Mention] = []
    is_stated = False
    for mention in mentions:
        sentence = _SENTENCE_END.split(mention.before)[-1]
        shown = _SHOWN.search(sentence)
        alone = bool(_LABEL.fullmatch(sentence)) and not shown
        states = alone and not _MAY_BE_RESTATED.search(mention.before)
        revises = _REVISES.search(mention.before.rpartition("\n")[2]) and not shown
        if alone or revises or not is_stated:
            kept.append(mention)
        is_stated = is_stated or states
    return kept


def _is_reported(mention: Mention) -> bool:
    """Whether the verdict is one that the judged text asks for, or would hold only if things were
    otherwise."""
    sentence = _SENTENCE_END.split(mention.before)[-1]
    line = mention.before.rpartition("\n")[2]
    if _REPORTED.search(sentence) or _RESTATED.search(line) or _DISOWNED.match(mention.after):
        return True
    return bool(_UNREAL.search(sentence)) and not _CONCLUDES.search(sentence)


def _is_supposed(mention: Mention) -> bool:
    """Whether a verdict's sentence only supposes it."""
    sentence = _SENTENCE_END.split(mention.before)[-1]
    supposed = _WOULD.match(mention.after) or _SUPPOSED.search(sentence)
    return bool(supposed) and not _CONCLUDES.search(sentence)


def _offered(mentions: list[Mention]) -> list[Mention]:
    """Different verdicts joined by "or", which decide nothing, and those listed before them."""
    offered: list[Mention] = []
    for a, b in reversed(list(itertools.pairwise(mentions))):
        if a.value != b.value and (
            _OR.fullmatch(a.after) or (b in offered and _COMMA.fullmatch(a.after))
        ):
            offered += [a, b]
    return offered
