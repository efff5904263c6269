"""Readers extract what a model's reply says. A reader returns a value or raises `Malformed` with
the reason, and raises nothing else.

Every reader ignores think blocks, takes the last match, and runs in time linear in the reply's
length.
"""
