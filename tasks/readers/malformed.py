"""The error that every reader raises if a reply cannot be read."""


class Malformed(ValueError):
    """A reply that cannot be read, with the reason: stored beside the rollout, never scored."""
