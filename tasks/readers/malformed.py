"""What every reader raises when a reply cannot be read."""


class Malformed(ValueError):
    """A reply that cannot be read, with the reason: stored beside the rollout, never scored."""
