"""Does a question stand alone? One that refers to "the passage" or to a table "above" needs a
source that is not shown."""

from __future__ import annotations

import re

_SOURCE = "document|passage|article|excerpt|paragraph"
# not a source: the passage of a law or of time, the Northwest Passage, the second article of a law
_OTHER = (
    r"(?:\w+\s+)?passages?\s+of\b"
    r"|(?-i:[A-Z]\w*\s+Passages?\b)"
    r"|(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|\d+(?:st|nd|rd|th))"
    r"\s+articles?\b"
    r"|(?:in)?definite\s+articles?\b"
)
_SHOWN = "given|provided|above|following|original|short|whole|full|attached"
_EXHIBIT = "table|figure|fig\\.|chart|graph|diagram|map|image|picture|exhibit|appendix"
# "in the lecture", unlike "in the study", refers only to a source that the reader should have
_HEARD = "lecture|transcript|video|podcast|interview|reading"
_REPORT = f"{_HEARD}|study|report|paper|textbook|book|website|web\\s?page|survey|story|researchers?"
_NUMBERED = (
    "theorem|lemma|proposition|corollary|definition|example|exercise|section|chapter"
    "|equation|eq\\.|formula"
)
_DOTTED = r"\d{1,3}\.\d+(?!\d|\s*[a-z]{1,2}\b)"  # Theorem 4.2, and not a section 4.2 m long
LEANS_ON_SOURCE = re.compile(
    rf"\b(?:(?:the|this|that|these)\s+(?!{_OTHER})(?:\w+\s+)?(?:{_SOURCE})s?\b"
    rf"|(?:{_SHOWN})\s+(?:\w+\s+)?(?:{_SOURCE}|text)s?\b"
    r"|(?:the|this|that)\s+(?:(?:reading|source)\s+)?texts?\b(?!\s+(?:message|editor|file|box|string|field))"
    rf"|(?:this|that|{_SHOWN})\s+(?:source|reading)s?\b|(?:according\s+to|based\s+on)\s+the\s+(?:source|reading)s?\b"
    r"|according\s+to\s+the\s+"
    r"(?:author|writer|narrator|speaker|(?:information|data)(?![\s-]+(?:theor|process)))"
    rf"|according\s+to\s+the\s+(?:\w+\s+)?(?:{_REPORT})\b(?!\s+of\b|-)"
    rf"|(?:in|from)\s+the\s+(?:{_HEARD})\s*[,.?]"
    r"|the\s+narrator\b(?!\s+of\b)"
    r"|(?:information|details|context|description|example|scenario)\s+"
    r"(?:above|(?:provided|given)\s*[,.?])"
    r"|(?:given|provided|above)\s+(?:information|context|description)|(?:provided|above)\s+(?:data|values|facts)\b"
    r"|based\s+on\s+the\s+(?:\w+\s+)?(?:information|data|facts|details|context)\s+(?:provided|given|above)"
    rf"|the\s+(?:attached|accompanying|provided|above)\s+(?:\w+\s+)?(?:{_EXHIBIT})s?\b"
    rf"|(?:{_EXHIBIT})s?\s+(?:given|provided|attached)\s*[,.:;?]"
    rf"|(?:look\s+at|refer\s+to|consult)\s+the\s+(?:\w+\s+)?(?:{_EXHIBIT})s?\b(?!\s+of\b)"
    rf"|(?:{_EXHIBIT})s?\s+(?:(?:(?:that\s+is\s+)?(?:shown|given|provided)\s+)?(?:below|above)|shown\b|{_DOTTED})"
    rf"|(?:in|from|to|see|of|with|using|on)\s+(?:the\s+)?(?:{_EXHIBIT})\s*\d"
    rf"|(?:{_NUMBERED})s?\s*(?:\s{_DOTTED}|\(\d[\d.]*\))"
    r"|(?:mentioned|stated|described|discussed|noted|listed|shown|introduced)\s+(?:above|earlier|previously)"
    r"|as\s+mentioned|as\s+(?:stated|described|discussed|noted)\s*(?:,|$)|based\s+on\s+the\s+analysis)",
    re.IGNORECASE,
)
