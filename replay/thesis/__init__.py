"""The replay of the thesis: events timed one by one, black holes that answer at once (ch. 7)."""
