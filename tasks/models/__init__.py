"""Models: policies, the interface of the engines that sample from them, and their files."""
