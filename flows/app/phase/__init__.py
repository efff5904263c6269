"""The phase diagram of self-play: how much error, of which kind, a method tolerates before it
collapses, and which monitor would have warned."""
