"""A reader with a fault, in a module of its own: an export copies all that a reader's module
imports."""


def faulty_reader(reply: str) -> str:
    raise KeyError(reply)
