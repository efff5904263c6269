"""Models: policies, the interface of engines that sample from them, and their files."""
