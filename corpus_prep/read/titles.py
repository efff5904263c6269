"""The titles of documents that have none, and when a title is worth showing."""

MAX_TITLE_CHARS = 80


def opening(text: str) -> str:
    """The beginning of a text's first line, which serves as the title of an untitled document.

    >>> opening("\\n Ada wrote.\\nShe lived in London.")
    'Ada wrote.'
    """
    return text.lstrip().partition("\n")[0].strip()[:MAX_TITLE_CHARS]


def shown_title(title: str | None, text: str) -> str:
    """The title to show before `text`: empty if `text` opens with it anyway.

    >>> shown_title("Ada", "She wrote."), shown_title("She wrote.", "She wrote.")
    ('Ada', '')
    """
    if title is None or title == opening(text):
        return ""
    return title


def titled(title: str | None, text: str) -> str:
    """`text` after its title in brackets, if it has one to show.

    >>> titled("Ada", "She wrote."), titled("She wrote.", "She wrote.")
    ('[Ada] She wrote.', 'She wrote.')
    """
    shown = shown_title(title, text)
    return f"[{shown}] {text}" if shown else text
